package keyspace

import (
	"encoding/binary"
	"errors"

	"github.com/ebbkv/ebb/kv"
)

const (
	// smallCollection is the number of elements up to which a collection is deleted at once.
	smallCollection = 64
	// reclaimStep bounds the rows that one step of Reclaim deletes.
	reclaimStep = 4096
)

// drop deletes the rows of a collection, at once or, if there are many, later.
func (s *Space) drop(row *Row) error {
	if row.Count <= smallCollection && row.fieldMax == 0 {
		return s.changing(s.elements()).DeletePrefix(s.header(row.ID))
	}
	return s.retire(row.ID)
}

// retire leaves the rows of a dead collection to Reclaim.
func (s *Space) retire(id uint64) error {
	s.store.setRetired(s.DB, true)
	return s.changing(s.elements()).Put(retiredKey(id), nil)
}

func retiredKey(id uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 8, 16), id)
}

// reclaim deletes rows of dead collections, a bounded number of them. more says that some are left.
func reclaim(s *Space) (more bool, err error) {
	retired := s.elements().CursorIn(kv.ScanOptions{Prefix: make([]byte, 8)})
	if !retired.First() {
		return false, retired.Err()
	}
	id := binary.BigEndian.Uint64(retired.Key()[8:])
	prefix := binary.BigEndian.AppendUint64(nil, id)
	rows := 0
	var last []byte
	for key := range s.elements().Scan(kv.ScanOptions{Prefix: prefix, KeysOnly: true}) {
		if rows++; rows > reclaimStep {
			last = append([]byte(nil), key...)
			break
		}
	}
	if last != nil {
		return true, s.changing(s.elements()).DeleteRange(prefix, last)
	}
	// Rows that have expired are hidden from the scan, and go with the prefix.
	elements := s.changing(s.elements())
	return true, errors.Join(elements.DeletePrefix(prefix), elements.Delete(retiredKey(id)))
}

// Sweep looks at up to limit collections with an id after the given one and returns those that are
// dead, and the id of the last one that it has seen; 0: there are no more.
func (s *Space) Sweep(after uint64, limit int) (dead []uint64, last uint64, err error) {
	c := s.elements().Cursor()
	for range limit {
		if after+1 == 0 || !c.Seek(binary.BigEndian.AppendUint64(nil, after+1)) {
			return dead, 0, c.Err()
		}
		key := c.Key()
		after = binary.BigEndian.Uint64(key)
		alive := false
		if len(key) == 8 {
			owner := append([]byte(nil), c.Value()...)
			if alive, err = ownsCollection(s, owner, after); err != nil {
				return dead, after, err
			}
		}
		if !alive {
			dead = append(dead, after)
		}
	}
	return dead, after, c.Err()
}

// RetireDead retires those of ids that are dead in this transaction, too.
func (s *Space) RetireDead(ids []uint64) (n int, err error) {
	for _, id := range ids {
		again, _, err := s.Sweep(id-1, 1)
		if err != nil {
			return n, err
		}
		if len(again) == 1 && again[0] == id {
			n++
			if err := s.retire(id); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// Reclaim deletes rows of dead collections of all databases, a bounded number of them.
func (st *Store) Reclaim(tx *kv.Tx) (more bool, err error) {
	for db := range st.databases {
		if !st.hasRetired(db) {
			continue
		}
		left, err := reclaim(st.Space(tx, db))
		if err != nil {
			return true, err
		}
		if left {
			return true, nil
		}
		st.setRetired(db, false)
	}
	return false, nil
}

func (st *Store) setRetired(db int, is bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.retired[db] = is
}

func (st *Store) hasRetired(db int) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.retired[db]
}

// Pending says whether TakeExpired, Purge or Reclaim have work at the instant of tx.
func (st *Store) Pending(tx *kv.Tx) (bool, error) {
	st.mu.Lock()
	pending := len(st.names) > 0
	for _, is := range st.retired {
		pending = pending || is
	}
	st.mu.Unlock()
	for db := range st.databases {
		if pending {
			break
		}
		for _, kind := range []byte{masterFamily, elementFamily} {
			at, ok, err := tx.CF(familyName(kind, db)).NextExpiry()
			if err != nil {
				return false, err
			}
			pending = pending || ok && !at.After(tx.Now())
		}
	}
	return pending, nil
}

// Purge deletes up to limit keys and fields of all databases that are due, and retires the
// collections among them, in one transaction. more says that others are due. After a jump of the
// clock it deletes nothing without force.
func (st *Store) Purge(tx *kv.Tx, limit int, force bool) (purged int64, more bool, err error) {
	r, err := tx.PurgeExpired(nil, kv.PurgeOptions{Limit: limit, Force: force})
	if errors.Is(err, kv.ErrClockJump) {
		return 0, false, nil
	}
	return r.Purged, r.More, err
}
