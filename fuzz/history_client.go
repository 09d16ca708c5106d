package fuzz

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/kv"
)

// client is one goroutine of operations.
type client struct {
	r      *recorder
	id     int
	rnd    *rand.Rand
	events []Event
	held   *kv.Tx // a reader that stays over some operations
	old    Event
}

// expected are the errors of a store that was lost.
func (c *client) expected(err error) bool {
	return c.r.gone.Load() &&
		(errors.Is(err, kv.ErrFailed) || errors.Is(err, kv.ErrCommitUnknown) || errors.Is(err, crashfs.ErrIO))
}

func (c *client) operation() error {
	switch n := c.rnd.IntN(100); {
	case n < 40:
		return c.read(func(tx *kv.Tx, e *Event) error { return c.look(tx, e, 1+c.rnd.IntN(4)) })
	case n < 44:
		return c.read(c.r.readAll)
	case n < 50:
		return c.hold()
	case n < 51:
		err := c.r.db.Checkpoint(context.Background())
		if c.expected(err) {
			return nil
		}
		return err
	case n < 54:
		return c.write(true)
	default:
		return c.write(false)
	}
}

func (c *client) read(fn func(tx *kv.Tx, e *Event) error) error {
	return c.r.transactionOf(c, fn)
}

// transaction is a read transaction of no client in particular.
func (r *recorder) transaction(rnd *rand.Rand, id int, fn func(tx *kv.Tx, e *Event) error) error {
	c := &client{r: r, id: id, rnd: rnd}
	err := r.transactionOf(c, fn)
	r.h.Events = append(r.h.Events, c.events...)
	return err
}

func (r *recorder) transactionOf(c *client, fn func(tx *kv.Tx, e *Event) error) error {
	e := Event{Client: c.id, Begin: r.tick.Add(1)}
	tx, err := r.db.Begin(context.Background(), false)
	if err != nil {
		return err
	}
	e.Seq = tx.Seq()
	err = errors.Join(fn(tx, &e), tx.Rollback())
	e.End = r.tick.Add(1)
	c.events = append(c.events, e)
	return err
}

func historyKey(k int) []byte { return fmt.Appendf(nil, "key%04d", k) }

// historyValue pads, so that some values need extents.
func historyValue(v uint64) []byte {
	b := strconv.AppendUint(nil, v, 10)
	return append(append(b, ' '), make([]byte, mix(v)%97*(mix(v)/97%40))...)
}

func parseHistoryValue(b []byte) (uint64, error) {
	i := slices.Index(b, ' ')
	if i < 0 {
		return 0, fmt.Errorf("value of %d bytes is none of ours", len(b))
	}
	v, err := strconv.ParseUint(string(b[:i]), 10, 64)
	if err == nil && len(b) != len(historyValue(v)) {
		err = fmt.Errorf("value %d has %d bytes, want %d", v, len(b), len(historyValue(v)))
	}
	return v, err
}

func (c *client) get(tx *kv.Tx, k int) (uint64, error) {
	b, err := tx.Get(historyKey(k))
	if errors.Is(err, kv.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return parseHistoryValue(b)
}

// look reads n keys.
func (c *client) look(tx *kv.Tx, e *Event, n int) error {
	for range n {
		k := c.rnd.IntN(c.r.o.Keys)
		v, err := c.get(tx, k)
		if err != nil {
			return err
		}
		e.Reads = append(e.Reads, Access{k, v})
	}
	return nil
}

// readAll reads every key, in one range.
func (r *recorder) readAll(tx *kv.Tx, e *Event) error {
	values := make([]uint64, r.o.Keys)
	for key, value := range tx.All() {
		k, err := strconv.Atoi(string(key[3:]))
		if err != nil || k >= len(values) {
			return fmt.Errorf("key %q is none of ours", key)
		}
		if values[k], err = parseHistoryValue(value); err != nil {
			return err
		}
	}
	for k, v := range values {
		e.Reads = append(e.Reads, Access{k, v})
	}
	return tx.Err()
}

// hold begins a reader that stays, or ends it: it must see what it saw.
func (c *client) hold() error {
	if c.held != nil {
		return c.releaseSnapshot()
	}
	c.old = Event{Client: c.id, Begin: c.r.tick.Add(1)}
	tx, err := c.r.db.Begin(context.Background(), false)
	if err != nil {
		return err
	}
	c.held, c.old.Seq = tx, tx.Seq()
	return c.look(tx, &c.old, 3)
}

func (c *client) releaseSnapshot() error {
	if c.held == nil {
		return nil
	}
	err := errors.Join(c.look(c.held, &c.old, 3), c.held.Rollback())
	c.held = nil
	c.old.End = c.r.tick.Add(1)
	c.events = append(c.events, c.old)
	return err
}

// write is a transaction that reads and writes.
func (c *client) write(rollback bool) error {
	e := Event{Client: c.id, Begin: c.r.tick.Add(1), Relax: c.rnd.IntN(4) == 0, Fate: Void}
	tx, err := c.r.db.Begin(context.Background(), true)
	if err != nil {
		if c.expected(err) {
			return nil
		}
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if e.Relax {
		tx.SetDurability(kv.NoSync)
	}
	e.Seq = tx.Seq() + 1
	if err := c.change(tx, &e); err != nil {
		if c.expected(err) {
			return nil
		}
		return err
	}
	if rollback {
		err = tx.Rollback()
	} else if err = tx.Commit(); err == nil {
		switch e.Fate = Done; {
		case tx.Seq() == e.Seq-1: // It deleted what was not there: nothing to commit, so it has only looked.
			e.Seq, e.Fate, e.Reads, e.Writes = tx.Seq(), "", append(e.Reads, e.Writes...), nil
		case tx.Seq() != e.Seq:
			return fmt.Errorf("commit has number %d, want %d", tx.Seq(), e.Seq)
		}
	}
	e.End = c.r.tick.Add(1)
	if errors.Is(err, kv.ErrCommitUnknown) {
		e.Fate = Unknown
	}
	c.events = append(c.events, e)
	if c.expected(err) {
		return nil
	}
	return err
}

// change reads some keys and writes others, each once.
func (c *client) change(tx *kv.Tx, e *Event) error {
	if err := c.look(tx, e, c.rnd.IntN(3)); err != nil {
		return err
	}
	for range 1 + c.rnd.IntN(3) {
		k := c.rnd.IntN(c.r.o.Keys)
		if slices.ContainsFunc(e.Writes, func(a Access) bool { return a.Key == k }) {
			continue
		}
		if c.rnd.IntN(5) == 0 {
			e.Writes = append(e.Writes, Access{k, 0})
			if err := tx.Delete(historyKey(k)); err != nil {
				return err
			}
			continue
		}
		v := c.r.value.Add(1)
		e.Writes = append(e.Writes, Access{k, v})
		if err := tx.Put(historyKey(k), historyValue(v)); err != nil {
			return err
		}
	}
	return nil
}
