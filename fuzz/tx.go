package fuzz

import (
	"context"
	"errors"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// tx is a write transaction and the model as it changes.
type tx struct {
	*kv.Tx
	m   *Model
	now int64 // its instant

	derives bool // as Run.derives says
}

// update runs a write transaction with fn, and commits it. An eviction may be committed before.
func (r *Run) update(d kv.Durability, fn func(t *tx) error) error {
	r.Disk.SetPhase("fill")
	t := &tx{now: r.clock.read(), derives: r.derives()}
	var err error
	if t.Tx, err = r.db.Begin(context.Background(), true); err != nil {
		r.lookForEviction()
		return err
	}
	if err := r.evicted(); err != nil {
		return errors.Join(err, t.Rollback())
	}
	t.m = r.model.clone()
	r.within = t
	defer func() { r.within = nil }()
	if got := t.Now().UnixMilli(); got != t.now {
		return errors.Join(wrong("a transaction is told %d, want %d", got, t.now), t.Rollback())
	}
	t.SetDurability(d)
	if err := fn(t); err != nil {
		_ = t.Rollback()
		if errors.Is(err, errRollback) {
			return nil
		}
		return err
	}
	return r.commit(t, d)
}

// errRollback from the function of update means that it shall be rolled back.
var errRollback = errors.New("rolled back as wanted")

func (r *Run) commit(t *tx, d kv.Durability) error {
	r.Disk.SetPhase("commit")
	next := r.begun(t.m)
	if err := t.Commit(); err != nil {
		return err
	}
	if got := t.Seq(); got == next-1 && t.m.hash == r.model.hash {
		r.attempt = nil
		return nil // Nothing to commit.
	} else if got != next {
		return wrong("commit has number %d, want %d", got, next)
	}
	r.committed(t.m)
	if d == kv.Sync {
		r.durable(next)
	} else {
		r.Disk.AckedRelaxed(next)
	}
	return nil
}

// put is a plain put: the key is permanent, or gets what is usual in its family.
func (t *tx) put(family, key, value string) error {
	t.finds(family, key)
	t.m.put(family, key, value, t.usual(family))
	return t.CF(family).Put([]byte(key), []byte(value))
}

// usual is the expiry that a plain put gives, 0 for none.
func (t *tx) usual(family string) int64 {
	if usual := t.m.families[family].usual; usual != 0 {
		return t.after(usual)
	}
	return 0
}

// after is the expiry of what lives for ttl from the transaction's instant on: whole milliseconds,
// after 1970.
func (t *tx) after(ttl time.Duration) int64 { return max(t.now+ttl.Milliseconds(), 1) }

// hasLeft asks for the ttl of a key that this transaction gave it.
func (t *tx) hasLeft(family, key string, ttl time.Duration) error {
	got, err := t.CF(family).TTL([]byte(key))
	if want := time.Duration(t.after(ttl)-t.now) * time.Millisecond; err == nil && got != want {
		return wrong("%s/%q was given %v and has %v left, want %v", family, key, ttl, got, want)
	}
	return err
}

func (t *tx) putTTL(family, key, value string, ttl time.Duration) error {
	t.finds(family, key)
	t.m.put(family, key, value, t.after(ttl))
	return t.CF(family).PutTTL([]byte(key), []byte(value), ttl)
}

// putKeep replaces the value and keeps the expiry of a key that is there; else it is put.
func (t *tx) putKeep(family, key, value string) error {
	if !t.m.live(family, key, t.now) {
		return t.put(family, key, value)
	}
	t.m.put(family, key, value, t.m.families[family].expiry[key])
	written, err := t.CF(family).PutWith([]byte(key), []byte(value), kv.PutOptions{KeepTTL: true})
	if err == nil && !written {
		return wrong("PutWith has not written %s/%q", family, key)
	}
	return err
}

// expire gives a key an expiry, or takes it away with ttl 0. A key that is not there stays away.
func (t *tx) expire(family, key string, ttl time.Duration) error {
	var err error
	expiry := int64(0)
	if ttl == 0 {
		err = t.CF(family).Persist([]byte(key))
	} else {
		expiry = t.after(ttl)
		err = t.CF(family).Expire([]byte(key), ttl)
	}
	if t.m.live(family, key, t.now) {
		t.m.put(family, key, t.m.families[family].value[key], expiry)
		return err
	}
	return t.missing(family, key, err)
}

// missing judges the error of a new expiry for a key that is not there.
func (t *tx) missing(family, key string, err error) error {
	if err == nil {
		return wrong("%s/%q is not there, and has a new expiry", family, key)
	} else if errors.Is(err, kv.ErrNotFound) {
		return nil
	}
	return err
}

func (t *tx) remove(family, key string) error {
	t.finds(family, key)
	t.m.delete(family, key)
	return t.CF(family).Delete([]byte(key))
}

func (t *tx) removeRange(family, lo, hi string) error {
	t.m.deleteRange(family, lo, hi)
	return t.CF(family).DeleteRange([]byte(lo), []byte(hi))
}

// create makes a family in which a plain put lives for usual; 0: for ever.
func (t *tx) create(family string, usual time.Duration) error {
	t.m.create(family, usual)
	return t.CreateCF(family, kv.CFOptions{DefaultTTL: usual})
}

// alter changes what a plain put lives for.
func (t *tx) alter(family string, usual time.Duration) error {
	t.m.alter(family, usual)
	return t.AlterCF(family, kv.CFOptions{DefaultTTL: usual})
}

func (t *tx) drop(family string) error {
	t.m.drop(family)
	return t.DropCF(family)
}

func (t *tx) rename(from, to string) error {
	t.m.rename(from, to)
	return t.RenameCF(from, to)
}
