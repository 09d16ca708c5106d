package kv

import (
	"bytes"
	"iter"
	"runtime/debug"
	"time"

	"github.com/ebbkv/ebb/ttl"
)

// All ranges over all rows in the order of keys. Key and value slices are valid until the next step.
// The body may put and delete. An error ends the range and becomes the transaction's error: see
// Tx.Err; ErrTxnDone if iter.Pull2 keeps the range beyond the end of its transaction.
func (v *verbs) All() iter.Seq2[[]byte, []byte] { return v.Scan(ScanOptions{}) }

// Prefix is All of the rows whose keys begin with p.
func (v *verbs) Prefix(p []byte) iter.Seq2[[]byte, []byte] { return v.Scan(ScanOptions{Prefix: p}) }

// Scan is All of the rows within the bounds of o, which are copied when the range begins.
func (v *verbs) Scan(o ScanOptions) iter.Seq2[[]byte, []byte] {
	// Short enough to be inlined: then neither this function nor the caller's loop is allocated.
	return func(yield func(key, value []byte) bool) { v.scan(&o, yield) }
}

func (v *verbs) scan(o *ScanOptions, yield func(key, value []byte) bool) {
	tx := v.tx
	if o.Limit < 0 {
		tx.fail(invalid("ScanOptions: Limit %d is negative", o.Limit))
		return
	}
	step := toNext
	if o.Reverse {
		step = toPrev
	}
	c := tx.db.ranges.Get().(*Cursor)
	c.begin(v, o)
	if err := c.each(step, o.Limit, yield); err != nil {
		tx.fail(err)
	}
	c.forget()
	tx.db.ranges.Put(c) // not after a panic of the body
}

// begin makes c the cursor of a range of v, whatever it was before.
func (c *Cursor) begin(v *verbs, o *ScanOptions) {
	c.v, c.keysOnly, c.eager = v, o.KeysOnly, !o.KeysOnly
	c.placed, c.timed, c.lost, c.forward = false, false, false, false
	c.pos, c.expiry, c.err, c.damage = nowhere, 0, nil, nil
	c.bound(o)
}

// forget drops what c refers to of the transaction.
func (c *Cursor) forget() { c.v, c.key, c.value, c.err, c.damage = nil, nil, nil, nil, nil }

// each yields rows until limit, the end, or until yield returns false.
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

// eachUnlocked is each in a read transaction, which needs no lock: it arms the guard once for all
// rows, and yields rows of one leaf in a loop of their own.
func (c *Cursor) eachUnlocked(s step, limit int, yield func(key, value []byte) bool) (err error) {
	var body bool
	defer c.v.tx.disarm(debug.SetPanicOnFault(true), &body, &err)
	left := limit
	if limit == 0 {
		left = -1
	}
	for left != 0 {
		err := c.advance(s, nil)
		for err == nil && c.damage != nil {
			found := c.pos == onRow // and only its value is lost
			body = true
			err = c.reportDamage()
			body = false
			if err == nil && !found {
				err = c.advance(toResume, nil)
			}
		}
		if err != nil || c.pos != onRow {
			return err
		}
		left--
		body = true
		if !yield(c.key, c.value) {
			return nil
		}
		body = false
		if left == 0 || c.v.tx.stopsRanges() {
			continue
		}
		var more bool
		if left, more = c.scanRows(s == toNext, left, &body, yield); !more {
			return nil
		}
	}
	return nil
}

// stopsRanges says that the next step of any range returns an error.
func (tx *Tx) stopsRanges() bool { return tx.hasEnded() || tx.dead }

// scanRows yields the rows behind the cursor's, at most left of them, up to the first one that is
// expired or large. It leaves the cursor on the last row that it yielded, unless the transaction has
// ended meanwhile. It returns what is left, and whether yield wants more. body is true while yield
// runs.
func (c *Cursor) scanRows(
	forward bool, left int, body *bool, yield func(key, value []byte) bool,
) (int, bool) {
	tx := c.v.tx
	minTag := int64(0)
	if c.timed {
		minTag = max(tx.instant()+1, 0) // the first expiry that is not ttl.Expired
	}
	if !c.inner.BeginScan(forward, minTag) {
		return left, true
	}
	for left != 0 {
		key, value, ok := c.inner.ScanRow()
		if !ok {
			break
		}
		if c.keysOnly {
			value = nil
		}
		left--
		*body = true
		if !yield(key, value) {
			return left, false
		}
		*body = false
		if tx.stopsRanges() {
			break // The next step of the cursor returns the error. The leaf may be reused.
		}
	}
	return left, true
}

// bound sets the bounds of c to those of o, copied.
func (c *Cursor) bound(o *ScanOptions) {
	lo, hi := o.Lower, o.Upper
	if bytes.Compare(o.Prefix, lo) > 0 {
		lo = o.Prefix
	}
	n := len(lo)
	both := appendAfterPrefix(append(c.bounds[:0], lo...), o.Prefix)
	if end := both[n:]; len(hi) > 0 && (len(end) == 0 || bytes.Compare(hi, end) < 0) {
		both = append(both[:n], hi...)
	}
	c.bounds, c.lo, c.hi = both, nil, nil
	if n > 0 {
		c.lo = both[:n:n]
	}
	if len(both) > n {
		c.hi = both[n:]
	}
}

// appendAfterPrefix appends the lowest key above all keys that begin with p, or nothing if there is none.
func appendAfterPrefix(dst, p []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xff {
			dst = append(dst, p[:i+1]...)
			dst[len(dst)-1]++
			break
		}
	}
	return dst
}

// Expiring ranges over the keys that have an expiry before that instant, with their expiries, in
// ascending order of expiry: keys that are expired and still stored come first. The zero Time means
// all keys with an expiry. Otherwise it is like All; a key that the body gives a later expiry comes
// again.
func (v *verbs) Expiring(before time.Time) iter.Seq2[[]byte, time.Time] {
	return func(yield func(key []byte, at time.Time) bool) {
		end, bound := ttl.CeilMs(before)
		bound = bound && !before.IsZero()
		var rows *ttl.ByExpiry
		for {
			var damage *Damage
			expiry, key, ok, err := v.nextExpiring(&rows, &damage)
			if damage != nil {
				if err = v.tx.reportDamage(damage); err == nil {
					continue
				}
			}
			if err != nil {
				v.tx.fail(err)
				return
			}
			if !ok || bound && expiry >= end || !yield(key, time.UnixMilli(expiry)) {
				return
			}
		}
	}
}

// nextExpiring makes one step of Expiring within the transaction. If the step finds damage, the next
// one continues behind it.
func (v *familyView) nextExpiring(
	rows **ttl.ByExpiry, damage **Damage,
) (expiry int64, key []byte, ok bool, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.ready(false); err != nil {
		return 0, nil, false, err
	}
	if !v.rows().HasExpiries() {
		return 0, nil, false, nil
	}
	if *rows == nil {
		*rows = v.rows().ByExpiry()
		if v.tx.onDamage != nil {
			(*rows).OverGaps()
		}
	}
	expiry, key, ok, err = (*rows).Next()
	if g, gap := (*rows).Gap(); gap && !ok {
		*damage = &Damage{Family: v.fam.Name, Rows: int64(g.Rows), Err: fromBelow(g.Err)}
		return 0, nil, false, nil
	}
	if ok {
		v.tx.db.clock.hides(v.tx.instant(), expiry) // The caller learns that the key has expired.
	}
	return expiry, key, ok, v.below(err)
}
