package fuzz

import (
	"encoding/binary"
	"iter"
	"maps"
	"slices"

	"github.com/ebbkv/ebb/kv"
)

// A shelf is what can be read of a store, family by family: each is whole, as the hash of its rows
// and expiries, or an error.
type shelf struct {
	seq      uint64
	families map[string]uint64
	errs     map[string]error
	err      error // the list of families, or the transaction
}

// readShelf reads everything. An error ends its transaction, so each family has one of its own;
// no writer runs meanwhile.
func readShelf(db *kv.DB) (s shelf) {
	s.families, s.errs = map[string]uint64{}, map[string]error{}
	var names []string
	s.err = db.View(func(tx *kv.Tx) (err error) {
		s.seq = tx.Seq()
		names, err = tx.ListCFs()
		return err
	})
	s.read(db, slices.Values(names))
	return s
}

// read reads families by name.
func (s *shelf) read(db *kv.DB, names iter.Seq[string]) {
	for name := range names {
		err := db.View(func(tx *kv.Tx) (err error) {
			s.families[name], err = shelve(tx, name)
			return err
		})
		if err != nil {
			delete(s.families, name)
			s.errs[name] = err
		}
	}
}

// shelve is a sum over rows, so that one more row can be added to it.
func shelve(tx *kv.Tx, name string) (sum uint64, err error) {
	family, n := familyHash(name), int64(0)
	c := tx.CF(name).Cursor()
	for ok := c.First(); ok; ok = c.Next() {
		expiry := int64(0)
		if at, timed := c.Expiry(); timed {
			expiry = at.UnixMilli()
		}
		sum += timedHash(family, c.Key(), c.Value(), expiry)
		n++
	}
	if err := c.Err(); err != nil {
		return 0, err
	}
	count, err := tx.CF(name).Count()
	return sum + uint64(count-n), err
}

func timedHash(family uint64, key, value []byte, expiry int64) uint64 {
	return rowHash(
		family+binary.LittleEndian.Uint64(binary.BigEndian.AppendUint64(nil, uint64(expiry))),
		key,
		value,
	)
}

func (s shelf) firstError() error {
	for _, err := range s.errs {
		return err
	}
	return s.err
}

// equal compares contents, not numbers.
func (s shelf) equal(t shelf) bool { return maps.Equal(s.families, t.families) }
