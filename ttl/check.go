package ttl

import (
	"context"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/txn"
)

// Check verifies the invariants of Rows for one family, from all its rows. report gets each finding,
// a *badfile.Error whose detail begins with the number of the invariant; it returns false to stop.
// The returned error ended the check early: that of ctx, or of unreadable pages.
func Check(ctx context.Context, tx *txn.Tx, f *cf.Family, report func(err *badfile.Error) bool) error {
	if f.NoTrees() {
		return nil
	}
	c := &checker{ctx: ctx, r: Rows{Tx: tx, Family: f}, report: report, more: true}
	if f.Partitioned() {
		return c.partitions()
	}
	for _, part := range [...]func() error{c.counts, c.keyIndex, c.expiryIndex, c.data} {
		if err := part(); err != nil || !c.more {
			return err
		}
	}
	return nil
}

type checker struct {
	ctx    context.Context
	r      Rows
	report func(*badfile.Error) bool
	more   bool // report has not stopped the check
	rows   int
}

func (c *checker) found(format string, args ...any) {
	if c.more {
		c.more = c.report(badfile.At("", -1, format, args...))
	}
}

func (c *checker) each(id txn.TreeID, visit func(cur *txn.Cursor) error) error {
	cur := c.r.Tx.Cursor(id)
	for ok := cur.First(); ok && c.more; ok = cur.Next() {
		if c.rows++; c.rows%1024 == 0 && c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		if err := visit(cur); err != nil {
			return err
		}
	}
	return cur.Err()
}

// counts verifies I4.
func (c *checker) counts() error {
	tx, f := c.r.Tx, c.r.Family
	if tx.Exists(f.KeyIndex()) != tx.Exists(f.ExpiryIndex()) {
		c.found("I4: one index exists, the other does not")
	}
	if keys, dues := tx.Rows(f.KeyIndex()), tx.Rows(f.ExpiryIndex()); keys != dues {
		c.found("I4: %d rows in the key index, %d in the expiry index", keys, dues)
	}
	return nil
}

// keyIndex verifies I1 from one side, I2 and I3.
func (c *checker) keyIndex() error {
	var due []byte
	tx, f := c.r.Tx, c.r.Family
	return c.each(f.KeyIndex(), func(cur *txn.Cursor) error {
		expiry, err := decodeExpiry(cur.Value())
		if cur.Err() != nil {
			return cur.Err()
		}
		if err != nil {
			c.found("I3: key index: %v", err)
			return nil
		}
		due = appendDue(due[:0], expiry, cur.Key())
		if row, err := tx.Info(f.ExpiryIndex(), due); err != nil {
			return err
		} else if !row.Found {
			c.found("I1: a key-index row has no expiry row (expiry %d)", expiry)
		}
		row, err := tx.Info(f.Data(), cur.Key())
		switch {
		case err != nil:
			return err
		case !row.Found:
			c.found("I2: a key-index row has no data row (expiry %d)", expiry)
		case row.Tag != expiry:
			c.found("I2: a key-index row has a data row with another expiry (%d, %d)", expiry, row.Tag)
		}
		return nil
	})
}

// expiryIndex verifies I1 from the other side, and I3.
func (c *checker) expiryIndex() error {
	tx, f := c.r.Tx, c.r.Family
	return c.each(f.ExpiryIndex(), func(cur *txn.Cursor) error {
		expiry, key, err := decodeDue(cur.Key())
		if err != nil {
			c.found("I3: expiry index: %v", err)
			return nil
		}
		if n := len(cur.Value()); n != 0 {
			c.found("I3: expiry row with a value of %d bytes", n)
		}
		value, _, found, err := tx.Get(f.KeyIndex(), key)
		if err != nil {
			return err
		}
		if at, err := decodeExpiry(value); !found || err == nil && at != expiry {
			c.found("I1: an expiry row has no key-index row (expiry %d)", expiry)
		}
		return nil
	})
}

// data verifies I2 from the other side. After keyIndex, a count suffices.
func (c *checker) data() error {
	tagged := int64(0)
	err := c.each(c.r.Family.Data(), func(cur *txn.Cursor) error {
		if cur.Tag() != 0 {
			tagged++
		}
		return nil
	})
	if err == nil && c.more && tagged != c.r.Count() {
		c.found("I2: %d data rows have an expiry, the key index has %d rows", tagged, c.r.Count())
	}
	return err
}

// partitions verifies the invariants of TimeRows.
func (c *checker) partitions() error {
	tx, f := c.r.Tx, c.r.Family
	for _, id := range [...]txn.TreeID{f.Data(), f.KeyIndex(), f.ExpiryIndex()} {
		if n := tx.Rows(id); n > 0 {
			c.found("P2: %d rows in the %s of a time-partitioned family", n, f.Role(id))
		}
	}
	list, err := cf.AllPartitions(tx, f)
	for i := 0; i < len(list) && err == nil && c.more; i++ {
		p := list[i]
		err = c.each(p.Tree, func(cur *txn.Cursor) error {
			ms, _, err := SplitTimeKey(cur.Key())
			switch {
			case err != nil:
				c.found("P1: partition %d: row with a key of %d bytes", p.Start, len(cur.Key()))
			case ms < p.Start || ms > p.Last:
				c.found("P1: partition from %d to %d has a row of %d", p.Start, p.Last, ms)
			case cur.Tag() != 0:
				c.found("P2: partition %d: row of %d with a tag", p.Start, ms)
			}
			return nil
		})
	}
	return err
}
