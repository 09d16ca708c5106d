package keyspace

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// Expiries of a key or a field are milliseconds since 1970.
const (
	NoExpiry   = 0  // permanent
	KeepExpiry = -1 // as it was; a new key or field is permanent
)

// Space is one database in one transaction. Its methods that write need a write transaction.
type Space struct {
	Now int64 // instant of the transaction, ms
	DB  int

	store       *Store
	tx          *kv.Tx
	master      *kv.CF
	elementRows *kv.CF // nil until elements is called: strings have none

	rowKeys
	rowBuf []byte // the store copies the values of writes

	emptied [][]byte
}

// Tx returns the transaction of the space.
func (s *Space) Tx() *kv.Tx { return s.tx }

func (s *Space) elements() *kv.CF {
	if s.elementRows == nil {
		s.elementRows = s.tx.CF(familyName(elementFamily, s.DB))
	}
	return s.elementRows
}

// changing counts a write to a family of the space.
func (s *Space) changing(cf *kv.CF) *kv.CF {
	s.store.writes++
	return cf
}

// absent turns the errors of a key or family that is not there into ok false.
func absent(err error) (ok bool, other error) {
	if err == nil {
		return true, nil
	}
	if errors.Is(err, kv.ErrNotFound) {
		return false, nil
	}
	return false, err
}

// Load returns the master row of key. The Type of an absent key is 0.
func (s *Space) Load(key []byte) (Row, error) {
	if len(key) > s.store.maxKey() {
		return Row{}, nil // such a key cannot be stored
	}
	value, err := s.master.Get(s.masterKey(key))
	if ok, err := absent(err); !ok {
		return Row{}, err
	}
	row, err := decodeRow(value)
	if err != nil {
		return Row{}, fmt.Errorf("key %q: %w", key, err)
	}
	return row, nil
}

// LoadAs is Load of a key that is absent or has the type.
func (s *Space) LoadAs(key []byte, t Type) (Row, error) {
	row, err := s.Load(key)
	if err == nil && row.Type != 0 && row.Type != t {
		return Row{}, ErrWrongType
	}
	return row, err
}

// Expiry returns the expiry of a present key, 0 if it is permanent. That of a hash is what the user
// has set, not that of its last field.
func (s *Space) Expiry(key []byte, row *Row) (int64, error) {
	if row.fieldMax > 0 {
		return row.userExpiry, nil
	}
	at, err := s.master.Expiry(s.masterKey(key))
	if ok, err := absent(err); !ok || at.IsZero() {
		return 0, err
	}
	return at.UnixMilli(), nil
}

// NextChange returns the earliest instant at which the key or one of its fields expires; 0: none
// does.
func (s *Space) NextChange(key []byte, row *Row) (int64, error) {
	expiry, err := s.Expiry(key, row)
	if err != nil || row.fieldMax == 0 {
		return expiry, err
	}
	next, err := s.NextFieldExpiry(row)
	if next == 0 || expiry > 0 && expiry < next {
		next = expiry
	}
	return next, err
}

// put writes a master row with an expiry. The caller has vacated the key.
func (s *Space) put(key []byte, row *Row, expiry int64) error {
	s.rowBuf = appendRow(s.rowBuf[:0], row)
	row.stored = row.Count
	o := kv.PutOptions{}
	switch {
	case expiry == KeepExpiry:
		o.KeepTTL = true
	case expiry > 0:
		o.ExpireAt = time.UnixMilli(expiry)
	}
	_, err := s.changing(s.master).PutWith(s.masterKey(key), s.rowBuf, o)
	if cap(s.rowBuf) > 1<<20 {
		s.rowBuf = nil
	}
	return err
}

// vacate prepares key for another row: the collection that it names is retired. An expired row that
// is still stored under the key goes with its collection when the other one is put: see OnExpireTx.
func (s *Space) vacate(old *Row) error {
	if old.Type == 0 || old.Type == TypeString {
		return nil
	}
	return s.drop(old)
}

// SetString makes key a string. old is what Load returned.
func (s *Space) SetString(key, value []byte, old *Row, expiry int64) (err error) {
	if expiry == KeepExpiry && old.Type != 0 && old.Type != TypeString {
		if expiry, err = s.Expiry(key, old); err != nil {
			return err
		}
	}
	if err := s.vacate(old); err != nil {
		return err
	}
	return s.put(key, &Row{Type: TypeString, Value: value}, expiry)
}

// Delete deletes a present key.
func (s *Space) Delete(key []byte, row *Row) error {
	if row.Type != TypeString {
		if err := s.drop(row); err != nil {
			return err
		}
	}
	if row.unsaved {
		return nil
	}
	return s.changing(s.master).Delete(s.masterKey(key))
}

// SetExpiry sets or, with NoExpiry, removes the expiry of a present key. It lies after Now.
func (s *Space) SetExpiry(key []byte, row *Row, expiry int64) error {
	if row.fieldMax > 0 {
		row.userExpiry = expiry
		return saveHash(s, key, row)
	}
	if expiry == NoExpiry {
		return s.changing(s.master).Persist(s.masterKey(key))
	}
	return s.changing(s.master).ExpireAt(s.masterKey(key), time.UnixMilli(expiry))
}

// Rename moves the value and the expiry of a present key to another name, where target was.
func (s *Space) Rename(from []byte, row *Row, to []byte, target *Row) error {
	if err := s.vacate(target); err != nil {
		return err
	}
	at, err := s.master.Expiry(s.masterKey(from))
	if err != nil {
		return err
	}
	expiry := int64(NoExpiry)
	if !at.IsZero() {
		expiry = at.UnixMilli()
	}
	value := Row(*row)
	value.Value = append([]byte(nil), row.Value...)
	if err := s.changing(s.master).Delete(s.masterKey(from)); err != nil {
		return err
	}
	if err := s.put(to, &value, expiry); err != nil || row.Type == TypeString {
		return err
	}
	return s.changing(s.elements()).Put(s.header(row.ID), to)
}

// Count returns the number of live keys.
func (s *Space) Count() (int64, error) { return s.master.CountLive() }

// CountExpiring returns the number of live keys with an expiry, counted up to a limit.
func (s *Space) CountExpiring(most int) (n int64, err error) {
	for _, at := range s.master.Expiring(time.Time{}) {
		if at.UnixMilli() > s.Now {
			n++
		}
		if n >= int64(most) {
			break
		}
	}
	return n, s.tx.Err()
}

// Flush deletes all keys.
func (s *Space) Flush() error {
	if err := s.changing(s.master).Clear(); err != nil {
		return err
	}
	return s.changing(s.elements()).Clear()
}

// create makes row a new collection at key, which is absent. Save stores its master row.
func (s *Space) create(key []byte, t Type) (Row, error) {
	if len(key) > s.store.maxKey() {
		return Row{}, kv.ErrKeyTooLarge
	}
	id, err := s.tx.Increment([]byte("last-id"), 1, 0)
	if err != nil {
		return Row{}, err
	}
	row := Row{Type: t, ID: uint64(id), unsaved: true}
	return row, s.changing(s.elements()).Put(s.header(row.ID), key)
}

// LoadOrCreate is LoadAs for a write that makes the collection if it is absent.
func (s *Space) LoadOrCreate(key []byte, t Type) (Row, error) {
	row, err := s.LoadAs(key, t)
	if err == nil && row.Type == 0 {
		return s.create(key, t)
	}
	return row, err
}

// Save stores the master row of a collection after its elements have changed. An empty collection
// is deleted.
func (s *Space) Save(key []byte, row *Row) error {
	if row.Type == TypeHash {
		return saveHash(s, key, row)
	}
	if row.Count == 0 {
		return s.deleteEmpty(key, row)
	}
	return s.putKeep(key, row)
}

// putKeep stores the master row of a collection, whose key keeps its expiry. That of a new one is
// not looked up.
func (s *Space) putKeep(key []byte, row *Row) error {
	expiry := int64(KeepExpiry)
	if row.unsaved {
		expiry, row.unsaved = NoExpiry, false
	}
	return s.put(key, row, expiry)
}

func (s *Space) deleteEmpty(key []byte, row *Row) error {
	if !row.unsaved {
		s.emptied = append(s.emptied, bytes.Clone(key))
	}
	return s.Delete(key, row)
}

// TakeEmptied returns the keys whose collections Save has found empty, and deleted, since the last
// call.
func (s *Space) TakeEmptied() (keys [][]byte) {
	keys, s.emptied = s.emptied, nil
	return keys
}

// ownsCollection says whether id is the collection of a stored key, or may be: an expired row that is still
// stored hides its id.
func ownsCollection(s *Space, key []byte, id uint64) (bool, error) {
	row, err := s.Load(key)
	if err != nil {
		return true, err
	}
	if row.Type != 0 {
		return row.Type != TypeString && row.ID == id, nil
	}
	_, err = s.master.TTL(s.masterKey(key))
	return absent(err)
}
