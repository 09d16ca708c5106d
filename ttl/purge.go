package ttl

import (
	"bytes"
	"slices"

	"github.com/ebbkv/ebb/txn"
)

// PurgeStats is what a purge or an eviction deleted.
type PurgeStats struct {
	Keys  int64 // keys
	Bytes int64 // of these keys and their values
	// expiry rows that no key-index row confirmed, or whose key has no data row: only damage leaves
	// such rows
	Stale int64
}

// Changed says whether anything was deleted.
func (s PurgeStats) Changed() bool { return s.Keys > 0 || s.Stale > 0 }

// OnExpire hears of a key before it is deleted, in the transaction that deletes it. An error keeps
// everything as it is.
type OnExpire func(key, value []byte) error

// purgeBatch are the rows of one batch, in the order of their expiry: expiry rows, one after the
// other in buf.
type purgeBatch struct {
	buf  []byte
	ends []int
}

func (d *purgeBatch) add(expiry int64, key []byte) {
	d.buf = appendDue(d.buf, expiry, key)
	d.ends = append(d.ends, len(d.buf))
}

// row is the i-th expiry row.
func (d *purgeBatch) row(i int) []byte {
	from := 0
	if i > 0 {
		from = d.ends[i-1]
	}
	return d.buf[from:d.ends[i]:d.ends[i]]
}

func (d *purgeBatch) key(i int) []byte { return d.row(i)[expirySize:] }

// expiry is the i-th expiry as the key index has it.
func (d *purgeBatch) expiry(i int) []byte { return d.row(i)[:expirySize] }

// byKey lists the rows in the order of their keys: neighbours share pages, or at least the way to
// them.
func (d *purgeBatch) byKey() []int {
	order := make([]int, len(d.ends))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return bytes.Compare(d.key(i), d.key(j)) })
	return order
}

// Purge deletes up to limit keys that are expired at now, in the order of their expiry, and says
// whether more are due. It reads at most one row that is not due. An expiry row that the key index
// does not confirm goes alone, and both index rows of a key without a data row go; such rows count
// for the limit.
//
// Nothing is deleted before onExpire, which may be nil, has heard of all: after its error or panic
// all rows stand. Where so many do not fit into the transaction any more, fewer are deleted; not
// one: then it is txn.ErrTxnTooBig.
func (r Rows) Purge(now int64, limit int, onExpire OnExpire) (s PurgeStats, more bool, err error) {
	if limit <= 0 || !r.HasExpiries() {
		return PurgeStats{}, false, nil
	}
	var d *purgeBatch
	var next []byte
	for fits := false; !fits; {
		if d, next, more, err = r.collect(now, limit); err != nil || len(d.ends) == 0 {
			return PurgeStats{}, more, err
		}
		err = r.room(2*len(d.buf) + 2*opOverhead*(len(d.ends)+1) + len(next))
		if fits = err == nil; !fits && len(d.ends) == 1 {
			return PurgeStats{}, true, err
		}
		limit = len(d.ends) / 2
	}
	if err := r.notifyExpire(d, onExpire); err != nil {
		return PurgeStats{}, more, err
	}
	// The rows that are due lie together at the start of the expiry index.
	if _, err := r.Tx.DeleteRange(r.Family.ExpiryIndex(), nil, next); err != nil {
		return PurgeStats{}, more, err
	}
	s, err = r.deleteRows(d)
	return s, more, err
}

// collect finds the first rows that are due, and the row behind them: nil if there is none.
func (r Rows) collect(now int64, limit int) (d *purgeBatch, next []byte, more bool, err error) {
	d = new(purgeBatch)
	for w := r.ByExpiry(); ; {
		expiry, key, ok, err := w.Next()
		if err != nil || !ok {
			return d, nil, false, err
		}
		if due := Expired(now, expiry); !due || len(d.ends) == limit {
			return d, bytes.Clone(w.c.Key()), due, nil
		}
		d.add(expiry, key)
	}
}

// notifyExpire calls onExpire for each row that the key index confirms.
func (r Rows) notifyExpire(d *purgeBatch, onExpire OnExpire) error {
	if onExpire == nil {
		return nil
	}
	var at [expirySize]byte
	for i := range d.ends {
		expiry, found, err := r.lookupExpiry(d.key(i))
		if err != nil {
			return err
		}
		if !found || !bytes.Equal(appendExpiry(at[:0], expiry), d.expiry(i)) {
			continue
		}
		value, _, found, err := r.Tx.Get(r.Family.Data(), d.key(i))
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if err := onExpire(d.key(i), value); err != nil {
			return err
		}
	}
	return nil
}

// deleteRows deletes from data and key index the keys whose expiry the key index confirms.
func (r Rows) deleteRows(d *purgeBatch) (s PurgeStats, err error) {
	e := NewIndexBuffer() // for its memory
	defer e.Release()
	for some := range slices.Chunk(d.byKey(), maxPurgeRows) {
		e.Reset()
		for _, i := range some {
			e.keys = append(e.keys, Change{Key: d.key(i), Value: d.expiry(i), Delete: true})
		}
		if err := r.deleteSome(e.keys, e.infos(len(some)), &s); err != nil {
			return s, err
		}
	}
	return s, nil
}

// maxPurgeRows is how many keys are deleted together at most: some hundred bytes each are kept for
// them.
const maxPurgeRows = 2048

// deleteSome does that for some keys, which it is given as deletions from the key index. It
// overwrites them. was is memory for as many.
func (r Rows) deleteSome(keys []Change, was []txn.Info, s *PurgeStats) error {
	if err := r.Tx.Apply(r.Family.KeyIndex(), keys, was); err != nil {
		return err
	}
	rows := keys[:0]
	for i, key := range keys {
		if was[i].Found {
			rows = append(rows, Change{Key: key.Key, Delete: true})
			continue
		}
		s.Stale++
		if _, _, err := r.lookupExpiry(key.Key); err != nil { // It may be damaged, not only another one.
			return err
		}
	}
	if err := r.Tx.Apply(r.Family.Data(), rows, was); err != nil {
		return err
	}
	for i := range rows {
		if !was[i].Found {
			s.Stale++
			continue
		}
		s.Keys++
		s.Bytes += int64(len(rows[i].Key) + was[i].Size)
	}
	return nil
}

// Evict deletes those of the keys noted by readers that still have the expiry that the reader saw,
// if they are expired at now. As with Purge, nothing is deleted before onExpire has heard of all.
func (r Rows) Evict(now int64, notes []Note, onExpire OnExpire) (s PurgeStats, err error) {
	if !r.HasExpiries() {
		return PurgeStats{}, nil
	}
	d := new(purgeBatch)
	for _, n := range notes {
		if !Expired(now, n.Expiry) {
			continue
		}
		key := []byte(n.Key)
		at, found, err := r.lookupExpiry(key)
		if err != nil {
			return PurgeStats{}, err
		}
		if found && at == n.Expiry {
			d.add(at, key)
		}
	}
	if len(d.ends) == 0 {
		return PurgeStats{}, nil
	}
	if err := r.loadIndexes(); err != nil {
		return PurgeStats{}, err
	}
	if err := r.room(3*len(d.buf) + 3*opOverhead*len(d.ends)); err != nil {
		return PurgeStats{}, err
	}
	if err := r.notifyExpire(d, onExpire); err != nil {
		return PurgeStats{}, err
	}
	for i := range d.ends {
		if _, err := r.Tx.Delete(r.Family.ExpiryIndex(), d.row(i)); err != nil {
			return PurgeStats{}, err
		}
	}
	return r.deleteRows(d)
}

// A Note is a key that a reader found expired.
type Note struct {
	Base   txn.TreeID // of the family, as the reader saw it
	Family string
	Key    string
	Expiry int64
}
