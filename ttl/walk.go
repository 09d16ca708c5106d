package ttl

import (
	"bytes"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/txn"
)

// Companion tells the expiries of the rows that a cursor over the data tree meets. It walks the key index beside that
// cursor: as a rule the next row with the flag is the next row there, and costs a step instead of a descent.
type Companion struct {
	r      Rows
	c      txn.Cursor
	placed bool
}

// Init makes w a companion of cursors over r, in memory of the caller's.
func (w *Companion) Init(r Rows) {
	w.r, w.placed = r, true
	w.c.Init(r.Tx, r.Family.KeyIndex())
}

// Placed says whether Init was called.
func (w *Companion) Placed() bool { return w.placed }

// Expiry returns the expiry of key, whose cell has the flag. forward says which way the other cursor goes.
func (w *Companion) Expiry(key []byte, forward bool) (expiry int64, err error) {
	if !w.r.Timed() {
		return w.r.Expiry(key) // Damage, told without a look at an index.
	}
	var ok bool
	if forward {
		ok = w.c.Next()
	} else {
		ok = w.c.Prev()
	}
	if !ok || !bytes.Equal(w.c.Key(), key) {
		ok = w.c.Seek(key) && bytes.Equal(w.c.Key(), key)
	}
	value := []byte(nil)
	if ok {
		value = w.c.Value()
	}
	if err := w.c.Err(); err != nil {
		return 0, err
	}
	if !ok {
		return 0, w.r.damage("a key with the flag of an expiry has none")
	}
	if expiry, err = decodeExpiry(value); err != nil {
		err = w.r.wrong("key index", err)
	}
	return expiry, err
}

// ByExpiry walks the keys of a family that have an expiry, the earliest first. The transaction may write meanwhile.
type ByExpiry struct {
	r       Rows
	c       txn.Cursor
	started bool
}

// ByExpiry returns a walk that has not begun.
func (r Rows) ByExpiry() *ByExpiry {
	w := &ByExpiry{r: r}
	w.c.Init(r.Tx, r.Family.ExpiryIndex())
	return w
}

// Next returns the next key, which is valid until the next call. ok is false at the end.
func (w *ByExpiry) Next() (expiry int64, key []byte, ok bool, err error) {
	if w.started {
		ok = w.c.Next()
	} else {
		w.started = true
		ok = w.c.First()
	}
	if !ok {
		return 0, nil, false, w.c.Err()
	}
	if expiry, key, err = decodeDue(w.c.Key()); err != nil {
		return 0, nil, false, w.r.wrong("expiry index", err)
	}
	return expiry, key, true, nil
}

// First is the earliest expiry; ok is false if no key has one.
func (r Rows) First() (expiry int64, ok bool, err error) {
	if !r.Timed() {
		return 0, false, nil
	}
	expiry, _, ok, err = r.ByExpiry().Next()
	return expiry, ok, err
}

// Due counts the keys that are expired at now and still stored. It reads as many rows.
func (r Rows) Due(now int64) (n int64, err error) {
	if !r.Timed() {
		return 0, nil
	}
	for w := r.ByExpiry(); ; n++ {
		expiry, _, ok, err := w.Next()
		if err != nil || !ok || !Expired(now, expiry) {
			return n, err
		}
	}
}

// AnyDue says whether a key is expired at now.
func (r Rows) AnyDue(now int64) (bool, error) {
	expiry, ok, err := r.First()
	return ok && Expired(now, expiry), err
}

// Timed lists the families that have keys with an expiry, in the order of their names.
func Timed(tx *txn.Tx) (families []*cf.Family, err error) {
	err = cf.Each(tx, func(f *cf.Family) bool {
		if (Rows{Tx: tx, Family: f}).Timed() {
			families = append(families, f)
		}
		return true
	})
	return families, err
}
