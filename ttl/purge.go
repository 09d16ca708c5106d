package ttl

import (
	"bytes"
	"slices"

	"github.com/ebbkv/ebb/txn"
)

// PurgeStats counts the deletes of a purge or an eviction.
type PurgeStats struct {
	Keys  int64 // keys
	Bytes int64 // of these keys and their values
	// expiry rows that the key index does not confirm, or whose key has no data row: results of
	// damage
	Stale int64
}

// Changed says whether anything was deleted.
func (s PurgeStats) Changed() bool { return s.Keys > 0 || s.Stale > 0 }

// OnExpire is called for a key that expired, in the transaction that deletes it.
type OnExpire func(key, value []byte) error

// Callbacks of a purge or an eviction; each may be nil. Before is called before its key is deleted.
// After is called when its key is deleted, and before the next key is looked at: it may change
// rows of the same transaction, also those that were found due.
type Callbacks struct{ Before, After OnExpire }

// purgeBatch are the rows of one batch, in the order of expiry: expiry rows, concatenated in buf.
type purgeBatch struct {
	buf  []byte
	ends []int
}

func (d *purgeBatch) add(expiry int64, key []byte) {
	d.buf = appendDue(d.buf, expiry, key)
	d.ends = append(d.ends, len(d.buf))
}

func (d *purgeBatch) row(i int) []byte {
	from := 0
	if i > 0 {
		from = d.ends[i-1]
	}
	return d.buf[from:d.ends[i]:d.ends[i]]
}

func (d *purgeBatch) key(i int) []byte { return d.row(i)[expirySize:] }

// expiry is the i-th expiry as the key index stores it.
func (d *purgeBatch) expiry(i int) []byte { return d.row(i)[:expirySize] }

// byKey lists the rows in the order of their keys: neighbours share pages, or most of the path.
func (d *purgeBatch) byKey() []int {
	order := make([]int, len(d.ends))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return bytes.Compare(d.key(i), d.key(j)) })
	return order
}

// Purge deletes up to limit keys that are expired at now, in the order of expiry, and says whether
// more are due. It reads at most one row that is not due. If the key index does not confirm an
// expiry row, only that row is deleted; if a key has no data row, both its index rows are deleted.
// Such rows count for the limit.
//
// Without After, no key is deleted before Before has been called for all: after its error or panic
// all rows remain. With After, the keys before the failed one are deleted, and the caller rolls back.
// If limit keys do not fit into the transaction, fewer are deleted. If not even one fits, the error is
// txn.ErrTxnTooBig.
func (r Rows) Purge(now int64, limit int, call Callbacks) (s PurgeStats, more bool, err error) {
	if limit <= 0 || !r.HasExpiries() {
		return PurgeStats{}, false, nil
	}
	var d *purgeBatch
	var next []byte
	for fits := false; !fits; {
		if d, next, more, err = r.collect(now, limit); err != nil || len(d.ends) == 0 {
			return PurgeStats{}, more, err
		}
		err = r.Tx.EnsureTxnBytes(2*len(d.buf) + 2*opOverhead*(len(d.ends)+1) + len(next))
		if fits = err == nil; !fits && len(d.ends) == 1 {
			return PurgeStats{}, true, err
		}
		limit = len(d.ends) / 2
	}
	if call.After != nil {
		s, full, err := r.deleteEach(d, call)
		return s, more || full, err
	}
	if err := r.notifyExpire(d, call.Before); err != nil {
		return PurgeStats{}, more, err
	}
	// Rows that are due are adjacent, at the start of the expiry index.
	if _, err := r.Tx.DeleteRange(r.Family.ExpiryIndex(), nil, next); err != nil {
		return PurgeStats{}, more, err
	}
	s, err = r.deleteRows(d)
	return s, more, err
}

// collect reads the first rows that are due, and the row behind them: nil if there is none.
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
	for i := range d.ends {
		confirmed, err := r.confirms(d, i)
		if err != nil {
			return err
		}
		if !confirmed {
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

func (r Rows) confirms(d *purgeBatch, i int) (bool, error) {
	expiry, found, err := r.lookupExpiry(d.key(i))
	var at [expirySize]byte
	return found && bytes.Equal(appendExpiry(at[:0], expiry), d.expiry(i)), err
}

// deleteEach deletes the keys one after the other, in the order of the batch, with the callbacks of
// each. A callback may have changed any later key of the batch: it is looked up again. full says that
// the rest does not fit into the transaction.
func (r Rows) deleteEach(d *purgeBatch, call Callbacks) (s PurgeStats, full bool, err error) {
	for i := range d.ends {
		if err := r.Tx.EnsureTxnBytes(deleteSize(d.key(i))); err != nil {
			if s.Changed() {
				return s, true, nil
			}
			return s, true, err
		}
		if err := r.deleteOne(d, i, call, &s); err != nil {
			return s, false, err
		}
	}
	return s, false, nil
}

func (r Rows) deleteOne(d *purgeBatch, i int, call Callbacks, s *PurgeStats) error {
	key := d.key(i)
	confirmed, err := r.confirms(d, i)
	if err != nil {
		return err
	}
	if !confirmed {
		was, err := r.Tx.Delete(r.Family.ExpiryIndex(), d.row(i))
		if was.Found {
			s.Stale++
		}
		return err
	}
	value, _, found, err := r.Tx.Get(r.Family.Data(), key)
	if err != nil {
		return err
	}
	if err := r.requireIndexes(); err != nil {
		return err
	}
	if found && call.Before != nil {
		if err := call.Before(key, value); err != nil {
			return err
		}
	}
	if _, err := r.Tx.Delete(r.Family.ExpiryIndex(), d.row(i)); err != nil {
		return err
	}
	if _, err := r.Tx.Delete(r.Family.KeyIndex(), key); err != nil {
		return err
	}
	if !found {
		s.Stale++
		return nil
	}
	if _, err := r.Tx.Delete(r.Family.Data(), key); err != nil {
		return err
	}
	s.Keys++
	s.Bytes += int64(len(key) + len(value))
	if call.After == nil {
		return nil
	}
	return call.After(key, value)
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

// maxPurgeRows bounds the keys that are deleted together; each takes some hundred bytes of memory.
const maxPurgeRows = 2048

// deleteSome does the same for some keys, given as deletes in the key index. It overwrites keys. was
// is memory for as many rows.
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
		if _, _, err := r.lookupExpiry(key.Key); err != nil { // damage, or only another expiry
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

// Evict deletes those noted keys that still have the noted expiry, if they are expired at now: as many
// of them as fit into the transaction. Readers find the others again. The callbacks are those of
// Purge, each called as its key is deleted. After an error the caller rolls back.
func (r Rows) Evict(now int64, notes []Note, call Callbacks) (s PurgeStats, err error) {
	if !r.HasExpiries() {
		return PurgeStats{}, nil
	}
	d := new(purgeBatch)
	for _, n := range notes {
		if Expired(now, n.Expiry) {
			d.add(n.Expiry, []byte(n.Key))
		}
	}
	s, _, err = r.deleteEach(d, call)
	return s, err
}

// A Note is a key that a reader found expired.
type Note struct {
	Base   txn.TreeID // of the family, as the reader saw it
	Family string
	Key    string
	Expiry int64
}
