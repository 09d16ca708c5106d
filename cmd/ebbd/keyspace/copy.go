package keyspace

import (
	"time"

	"github.com/ebbkv/ebb/kv"
)

// Copy puts a copy of a present key, with its expiry, into to, where target was. Its rows are
// copied one by one.
func (s *Space) Copy(key []byte, row *Row, to *Space, name []byte, target *Row) error {
	at, err := s.master.Expiry(s.masterKey(key))
	if err != nil {
		return err
	}
	expiry := int64(NoExpiry)
	if !at.IsZero() {
		expiry = at.UnixMilli()
	}
	if row.Type == TypeString {
		value := append([]byte(nil), row.Value...)
		return to.SetString(name, value, target, expiry)
	}
	if target.Type != 0 {
		if err := to.Delete(name, target); err != nil {
			return err
		}
	}
	made, err := to.create(name, row.Type)
	if err != nil {
		return err
	}
	if err := copyElements(s, row.ID, to, made.ID); err != nil {
		return err
	}
	copied := *row
	copied.ID = made.ID
	return to.put(name, &copied, expiry)
}

func copyElements(s *Space, id uint64, to *Space, newID uint64) error {
	c := s.elements().CursorIn(kv.ScanOptions{Prefix: append([]byte(nil), s.header(id)...)})
	var key []byte
	for ok := c.First(); ok; ok = c.Next() {
		if len(c.Key()) == 8 {
			continue // the header row
		}
		key = append(append(key[:0], to.header(newID)...), c.Key()[8:]...)
		o := kv.PutOptions{}
		if at, ok := c.Expiry(); ok {
			o.ExpireAt = time.UnixMilli(at.UnixMilli())
		}
		if _, err := to.changing(to.elements()).PutWith(key, c.Value(), o); err != nil {
			return err
		}
	}
	return c.Err()
}

// Bytes returns the bytes of a present key's rows. It walks over the rows of a collection.
func (s *Space) Bytes(key []byte, row *Row) (n int64, err error) {
	n = int64(1 + len(key) + 1 + len(row.Value))
	if row.Type == TypeString {
		return n, nil
	}
	o := kv.ScanOptions{Prefix: append([]byte(nil), s.header(row.ID)...)}
	for k, v := range s.elements().Scan(o) {
		n += int64(len(k) + len(v))
	}
	return n + rowSize, s.tx.Err()
}
