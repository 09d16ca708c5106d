package fuzz

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// Operations on rows and families: one commit each.

func opPut(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		return t.put(pickFamily(t.m, rnd), newKey(r, rnd), newValue(rnd, rnd.IntN(300)))
	})
}

func opOverwrite(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		family := pickFamily(t.m, rnd)
		key, ok := pickKey(t.m, family, rnd)
		if !ok {
			key = newKey(r, rnd)
		}
		return t.put(family, key, newValue(rnd, rnd.IntN(500)))
	})
}

func opDelete(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		family := pickFamily(t.m, rnd)
		key, _ := pickKey(t.m, family, rnd)
		if key == "" {
			key = "absent"
		}
		return t.remove(family, key)
	})
}

// opBig writes a value that needs an overflow extent.
func opBig(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		return t.put(pickFamily(t.m, rnd), fmt.Sprintf("big%d", rnd.IntN(6)),
			newValue(rnd, 1500+rnd.IntN(9000)))
	})
}

// opNamed puts large values, which the log names where the commit waits for a sync, and overwrites,
// deletes and takes back some of them before it ends. In some commits it turns out late that they
// wait for none.
func opNamed(r *Run, rnd *rand.Rand) error {
	d := kv.Durability(rnd.IntN(3) % 2)
	return r.update(d, func(t *tx) error {
		if rnd.IntN(2) == 0 {
			t.SetDurability(kv.Sync)
			defer t.SetDurability(d)
		}
		family := pickFamily(t.m, rnd)
		put := func() error {
			return t.put(family, fmt.Sprintf("big%d", rnd.IntN(4)), newValue(rnd, 4200+rnd.IntN(9000)))
		}
		for range rnd.IntN(4) {
			var err error
			switch rnd.IntN(4) {
			case 0:
				err = t.remove(family, fmt.Sprintf("big%d", rnd.IntN(4)))
			case 1:
				sp, before := t.Savepoint(), t.m.clone()
				if err = put(); err == nil {
					err = t.RollbackTo(sp)
				}
				t.m = before
			default:
				err = put()
			}
			if err != nil {
				return err
			}
		}
		return put()
	})
}

func opBatch(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		family := pickFamily(t.m, rnd)
		for range 60 {
			if err := t.put(family, newKey(r, rnd), newValue(rnd, 20+rnd.IntN(100))); err != nil {
				return err
			}
		}
		return nil
	})
}

// opApply is one commit of puts and deletions that come in any order, often of a key that the batch
// has had before: a few in all families, or many in one. The log has it before the rows of the
// indexes are carried out. In one of three cases the commit is given up at its end, and made once
// more.
func opApply(r *Run, rnd *rand.Rand) error {
	if err := r.evictNoted(); err != nil {
		return err
	}
	t := r.newBatch()
	b := r.db.NewBatch()
	most := [...]int{20, 20, 300}[rnd.IntN(3)]
	key, last := newKey(r, rnd), defaultFamily
	if most == 300 {
		last = pickFamily(t.m, rnd)
	}
	for range 1 + rnd.IntN(most) {
		family := pickFamily(t.m, rnd)
		if most == 300 {
			family = last
		}
		rows := b.CF(family)
		if again, ok := pickKey(t.m, family, rnd); ok && rnd.IntN(2) == 0 {
			key = again
		} else if rnd.IntN(4) > 0 {
			key = newKey(r, rnd)
		}
		switch value := newValue(rnd, rnd.IntN(300)); rnd.IntN(6) {
		case 0, 1:
			t.finds(family, key)
			t.m.delete(family, key)
			rows.Delete([]byte(key))
		case 2:
			ttl := someTTL(rnd)
			t.finds(family, key)
			t.m.put(family, key, value, t.after(ttl))
			rows.PutTTL([]byte(key), []byte(value), ttl)
		default:
			t.finds(family, key)
			t.m.put(family, key, value, t.usual(family))
			rows.Put([]byte(key), []byte(value))
		}
	}
	lastRow(t, b, last)
	if rnd.IntN(3) == 0 {
		if err := r.givenUp(t, b); err != nil {
			return err
		}
	}
	return r.applied(t, b)
}

// lastRow makes a batch change something: else it would be no commit.
func lastRow(t *tx, b *kv.Batch, family string) {
	t.finds(family, "last")
	t.m.put(family, "last", "last", t.usual(family))
	b.CF(family).Put([]byte("last"), []byte("last"))
}

// newBatch is the model of a batch, which has no transaction that the workload sees.
func (r *Run) newBatch() *tx {
	return &tx{m: r.model.clone(), now: r.clock.read(), derives: r.derives()}
}

// applied commits a batch that does what was done to the model.
func (r *Run) applied(t *tx, b *kv.Batch) error {
	r.Disk.SetPhase("commit")
	next := r.begun(t.m)
	r.within = t
	defer func() { r.within = nil }()
	if err := r.db.Apply(context.Background(), b); err != nil {
		return err
	}
	r.committed(t.m)
	r.durable(next)
	return nil
}

// givenUp begins to commit a batch, and gives it up when all of it was carried out. Something that
// has nothing to do with the store happens then, so that there is a moment at which a crash finds
// what the call has left.
func (r *Run) givenUp(t *tx, b *kv.Batch) error {
	r.Disk.SetPhase("commit")
	r.begun(t.m)
	r.within = t
	defer func() { r.within = nil }()
	err := r.db.Apply(&endingContext{Context: context.Background()}, b)
	if !errors.Is(err, context.Canceled) {
		return err
	}
	r.noteFate(err)
	r.attempt = nil
	if f, err := r.Disk.Open("elsewhere/file", vfs.Write|vfs.Create); err == nil {
		_, _ = f.WriteAt([]byte("something"), 0)
		_ = f.Close()
	}
	return nil
}

// endingContext has ended when it is asked for the second time: after the begin of a transaction.
type endingContext struct {
	context.Context
	asked int
}

func (*endingContext) Done() <-chan struct{} { return make(chan struct{}) }

func (c *endingContext) Err() error {
	if c.asked++; c.asked > 1 {
		return context.Canceled
	}
	return nil
}

// opForetold is a commit that the log has before it is carried out: of puts and deletions where no
// key has an expiry. If there is no such family, one is made before. In one of two cases the commit
// is given up at its end, and made once more.
func opForetold(r *Run, rnd *rand.Rand) error {
	if len(r.model.plain()) == 0 {
		err := r.update(kv.Sync, func(t *tx) error {
			name := freeName(t.m, rnd)
			if err := t.create(name, 0); err != nil {
				return err
			}
			for range 60 {
				if err := t.put(name, newKey(r, rnd), newValue(rnd, 100)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := r.evictNoted(); err != nil {
		return err
	}
	t := r.newBatch()
	b := r.db.NewBatch()
	families := t.m.plain()
	most := [...]int{4, 60, 300}[rnd.IntN(3)]
	if most == 300 {
		families = families[rnd.IntN(len(families)):][:1]
	}
	for i := range 2 + rnd.IntN(most) {
		family := families[rnd.IntN(len(families))]
		key, there := pickKey(t.m, family, rnd)
		if rnd.IntN(4) == 0 && there || i == 1 && rnd.IntN(2) == 0 {
			if rnd.IntN(8) == 0 {
				key = newKey(r, rnd) // is not there
			}
			if key != "" {
				t.m.delete(family, key)
				b.CF(family).Delete([]byte(key))
			}
			continue
		}
		if !there || rnd.IntN(2) == 0 {
			key = newKey(r, rnd)
		}
		value := newValue(rnd, rnd.IntN(300))
		t.m.put(family, key, value, t.usual(family))
		b.CF(family).Put([]byte(key), []byte(value))
	}
	lastRow(t, b, families[0])
	if rnd.IntN(2) == 0 {
		if err := r.givenUp(t, b); err != nil {
			return err
		}
	}
	return r.applied(t, b)
}

// opCreate makes a family; in one of three, a plain put gives an expiry.
func opCreate(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		name, usual := freeName(t.m, rnd), time.Duration(0)
		if rnd.IntN(3) == 0 {
			usual = someTTL(rnd)
		}
		if err := t.create(name, usual); err != nil {
			return err
		}
		return t.put(name, newKey(r, rnd), newValue(rnd, 50))
	})
}

// opAlter changes the default ttl of a family; in one of three it has none afterwards.
func opAlter(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		name, usual := pickFamily(t.m, rnd), time.Duration(0)
		if rnd.IntN(3) > 0 {
			usual = someTTL(rnd)
		}
		if err := t.alter(name, usual); err != nil {
			return err
		}
		return t.put(name, newKey(r, rnd), newValue(rnd, 50))
	})
}

// opDrop drops a family; where there is none it makes one in the same commit.
func opDrop(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		name, ok := otherFamily(t.m, rnd)
		if !ok {
			name = freeName(t.m, rnd)
			if err := t.create(name, 0); err != nil {
				return err
			}
			if err := t.put(name, "k", "v"); err != nil {
				return err
			}
		}
		return t.drop(name)
	})
}

func opRelaxed(r *Run, rnd *rand.Rand) error {
	return r.update(kv.NoSync, func(t *tx) error {
		return t.put(pickFamily(t.m, rnd), newKey(r, rnd), newValue(rnd, rnd.IntN(300)))
	})
}

func opRename(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		to := freeName(t.m, rnd)
		from, ok := otherFamily(t.m, rnd)
		if !ok {
			return t.create(to, 0)
		}
		return t.rename(from, to)
	})
}

func opRange(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		family := pickFamily(t.m, rnd)
		a, _ := pickKey(t.m, family, rnd)
		b, _ := pickKey(t.m, family, rnd)
		return t.removeRange(family, min(a, b), max(a, b)+"~")
	})
}

func opClear(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		family := pickFamily(t.m, rnd)
		t.m.clear(family)
		return t.CF(family).Clear()
	})
}

// opSavepoint takes back the middle of a commit.
func opSavepoint(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		if err := t.put(defaultFamily, newKey(r, rnd), newValue(rnd, 60)); err != nil {
			return err
		}
		sp, before := t.Savepoint(), t.m.clone()
		for range 1 + rnd.IntN(40) {
			if err := t.put(defaultFamily, newKey(r, rnd), newValue(rnd, 120)); err != nil {
				return err
			}
		}
		if err := t.create(freeName(t.m, rnd), 0); err != nil {
			return err
		}
		if key, ok := pickKey(t.m, defaultFamily, rnd); ok {
			if err := t.remove(defaultFamily, key); err != nil {
				return err
			}
		}
		if err := t.RollbackTo(sp); err != nil {
			return err
		}
		t.m = before
		return t.put(defaultFamily, newKey(r, rnd), newValue(rnd, 60))
	})
}

func opAbort(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		for range rnd.IntN(1500) {
			if err := t.put(defaultFamily, newKey(r, rnd), newValue(rnd, 200)); err != nil {
				return err
			}
		}
		return errRollback
	})
}

// opMany grows the store, by more than the cache holds now and then.
func opMany(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Durability(rnd.IntN(2)), func(t *tx) error {
		family := pickFamily(t.m, rnd)
		for range rnd.IntN(1500) {
			if err := t.put(family, newKey(r, rnd), newValue(rnd, 50+rnd.IntN(400))); err != nil {
				return err
			}
		}
		return nil
	})
}

// opCut shrinks the store: keys go one by one, so that pages merge.
func opCut(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		for _, family := range t.m.names() {
			share := rnd.IntN(100)
			for _, key := range t.m.keys(family) {
				if rnd.IntN(100) < share {
					if err := t.remove(family, key); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// opBoth is one commit across families.
func opBoth(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Durability(rnd.IntN(2)), func(t *tx) error {
		for _, family := range t.m.names() {
			if err := t.put(family, newKey(r, rnd), newValue(rnd, rnd.IntN(200))); err != nil {
				return err
			}
			if key, ok := pickKey(t.m, family, rnd); ok && rnd.IntN(2) == 0 {
				if err := t.remove(family, key); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
