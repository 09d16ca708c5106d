package ttl

import (
	"math"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/txn"
)

// ByExpiry walks the keys of a family that have an expiry, in the order of expiry. The transaction
// may write meanwhile.
type ByExpiry struct {
	r       Rows
	c       txn.Cursor
	started bool
}

// ByExpiry returns a walk before its first row.
func (r Rows) ByExpiry() *ByExpiry {
	w := &ByExpiry{r: r}
	w.c.Init(r.Tx, r.Family.ExpiryIndex())
	return w
}

// OverGaps makes a new walk continue over damage, as txn.Cursor.OverGaps does: Next then finds
// nothing, Gap describes the loss, and the next Next continues behind it.
func (w *ByExpiry) OverGaps() { w.c.OverGaps() }

// Gap returns the damage that ended the last Next; ok is false if there was none.
func (w *ByExpiry) Gap() (g txn.Gap, ok bool) { return w.c.Gap() }

// Next returns the next key; the slice is valid until the next call. ok is false at the end.
func (w *ByExpiry) Next() (expiry int64, key []byte, ok bool, err error) {
	switch _, gap := w.c.Gap(); {
	case gap:
		ok = w.c.Skip(true)
	case w.started:
		ok = w.c.Next()
	default:
		w.started = true
		ok = w.c.First()
	}
	if !ok {
		return 0, nil, false, w.c.Err()
	}
	if expiry, key, err = decodeDue(w.c.Key()); err != nil {
		return 0, nil, false, w.r.treeErr("expiry index", err)
	}
	return expiry, key, true, nil
}

// First returns the earliest expiry; ok is false if no key has one.
func (r Rows) First() (expiry int64, ok bool, err error) {
	if !r.HasExpiries() {
		return 0, false, nil
	}
	expiry, _, ok, err = r.ByExpiry().Next()
	return expiry, ok, err
}

// Due counts the keys that are expired at now and still stored. It costs one descent.
func (r Rows) Due(now int64) (n int64, err error) {
	switch {
	case !r.HasExpiries() || now < 0:
		return 0, nil
	case now == math.MaxInt64:
		return r.Count(), nil
	}
	var first [expirySize]byte
	rows, err := r.Tx.Rank(r.Family.ExpiryIndex(), appendExpiry(first[:0], now+1))
	return int64(rows), err
}

// AnyDue says whether a key is expired at now.
func (r Rows) AnyDue(now int64) (bool, error) {
	expiry, ok, err := r.First()
	return ok && Expired(now, expiry), err
}

// AnyDue says whether a row of a family of either kind can be purged at now.
func AnyDue(tx *txn.Tx, f *cf.Family, now int64) (bool, error) {
	if f.Partitioned() {
		list, err := TimeRows{Tx: tx, Family: f}.Due(now)
		return len(list) > 0, err
	}
	return Rows{Tx: tx, Family: f}.AnyDue(now)
}

// ExpiringFamilies lists the families that have keys with an expiry or are time-partitioned, in the
// order of their names.
func ExpiringFamilies(tx *txn.Tx) (families []*cf.Family, err error) {
	err = cf.Each(tx, func(f *cf.Family) bool {
		if f.Partitioned() || (Rows{Tx: tx, Family: f}).HasExpiries() {
			families = append(families, f)
		}
		return true
	})
	return families, err
}
