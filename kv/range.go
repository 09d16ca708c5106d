package kv

import (
	"bytes"
	"iter"
	"math"
	"runtime/debug"
	"time"

	"github.com/ebbkv/ebb/ttl"
)

// All ranges over every row in the order of keys. Key and value slices are read-only and valid until the next step. The
// body may put and delete. An error ends the range and stays on the transaction: see Tx.Err.
func (v *verbs) All() iter.Seq2[[]byte, []byte] { return v.Scan(ScanOptions{}) }

// Prefix ranges over the rows whose keys begin with p, as All does.
func (v *verbs) Prefix(p []byte) iter.Seq2[[]byte, []byte] { return v.Scan(ScanOptions{Prefix: p}) }

// Scan ranges over the rows within the bounds of o, as All does. A negative limit is the error ErrInvalidOptions.
func (v *verbs) Scan(o ScanOptions) iter.Seq2[[]byte, []byte] {
	lo, hi := o.bounds()
	return func(yield func(key, value []byte) bool) {
		if o.Limit < 0 {
			v.tx.fail(invalid("ScanOptions: Limit %d is negative", o.Limit))
			return
		}
		c := Cursor{v: v, lo: lo, hi: hi, keysOnly: o.KeysOnly, eager: !o.KeysOnly}
		step := toNext
		if o.Reverse {
			step = toPrev
		}
		if err := c.each(step, o.Limit, yield); err != nil {
			v.tx.fail(err)
		}
	}
}

// each passes rows on until limit, the end, or yield says no.
func (c *Cursor) each(s step, limit int, yield func(key, value []byte) bool) error {
	if !c.v.tx.writable {
		return c.eachUnlocked(s, limit, yield)
	}
	for n := 0; limit == 0 || n < limit; n++ {
		if err := c.step(s, nil); err != nil || c.pos != onRow || !yield(c.key, c.value) {
			return err
		}
	}
	return nil
}

// eachUnlocked is each in a read transaction: nothing is locked, so the guard is armed once for all rows.
func (c *Cursor) eachUnlocked(s step, limit int, yield func(key, value []byte) bool) (err error) {
	var body bool
	defer c.v.tx.disarm(debug.SetPanicOnFault(true), &body, &err)
	for n := 0; limit == 0 || n < limit; n++ {
		if err := c.advance(s, nil); err != nil || c.pos != onRow {
			return err
		}
		body = true
		if !yield(c.key, c.value) {
			return nil
		}
		body = false
	}
	return nil
}

// bounds is the range [lo, hi) that o describes; nil does not bound. The slices are copies: a range outlives the call.
func (o *ScanOptions) bounds() (lo, hi []byte) {
	lo, hi = o.Lower, o.Upper
	if bytes.Compare(o.Prefix, lo) > 0 {
		lo = o.Prefix
	}
	if end := afterPrefix(o.Prefix); end != nil && (len(hi) == 0 || bytes.Compare(end, hi) < 0) {
		hi = end
	}
	if len(lo) == 0 {
		lo = nil
	}
	if len(hi) == 0 {
		hi = nil
	}
	return bytes.Clone(lo), bytes.Clone(hi)
}

// afterPrefix is the lowest key above all keys that begin with p; nil if there is none.
func afterPrefix(p []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xff {
			end := bytes.Clone(p[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}

// Expiring ranges over the keys that have an expiry before that instant, with their expiries, the earliest first: keys
// that are expired and still stored come first. The zero Time means all. Otherwise it is as All; a key that the body
// gives a later expiry comes again.
func (v *verbs) Expiring(before time.Time) iter.Seq2[[]byte, time.Time] {
	return func(yield func(key []byte, at time.Time) bool) {
		end := int64(math.MaxInt64)
		if !before.IsZero() {
			end, _ = ttl.CeilMs(before)
		}
		var rows *ttl.ByExpiry
		for {
			expiry, key, ok, err := v.nextExpiring(&rows)
			if err != nil {
				v.tx.fail(err)
				return
			}
			if !ok || (!before.IsZero() && expiry >= end) || !yield(key, time.UnixMilli(expiry)) {
				return
			}
		}
	}
}

// nextExpiring makes one step of Expiring within the transaction.
func (v *verbs) nextExpiring(rows **ttl.ByExpiry) (expiry int64, key []byte, ok bool, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.ready(false); err != nil {
		return 0, nil, false, err
	}
	if !v.rows().Timed() {
		return 0, nil, false, nil
	}
	if *rows == nil {
		*rows = v.rows().ByExpiry()
	}
	expiry, key, ok, err = (*rows).Next()
	return expiry, key, ok, v.below(err)
}
