package fuzz

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/ebbkv/ebb/kv"
)

// Operations in which the store deletes what has expired.

// purgeBatches is how many commits a purge of the bed is meant to take.
const purgeBatches = 3

// makeDue sees to it that keys are due: it moves the clock past some expiries, and makes such keys
// before if there are few.
func (r *Run) makeDue(rnd *rand.Rand, least int) error {
	soon := 0
	for _, family := range r.model.names() {
		soon += len(r.model.dueAt(family, r.clock.read()+longestTTLMs/2))
	}
	if soon < least {
		err := r.update(kv.NoSync, func(t *tx) error {
			family := pickFamily(t.m, rnd)
			for range least {
				if err := t.putTTL(family, newKey(r, rnd), newValue(rnd, 20+rnd.IntN(60)),
					someTTL(rnd)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return r.moveClock(r.clock.ms + longestTTLMs/2 + rnd.Int64N(longestTTLMs/2))
}

// opPurge purges the store, or a family.
func opPurge(r *Run, rnd *rand.Rand) error {
	if err := r.makeDue(rnd, 16); err != nil {
		return err
	}
	if err := r.dropDueFirst(); err != nil {
		return err
	}
	now := r.clock.read()
	families, purge := r.model.names(), r.db.PurgeExpired
	if rnd.IntN(4) == 0 {
		family := pickFamily(r.model, rnd)
		families, purge = []string{family}, r.db.CF(family).PurgeExpired
	}
	due := 0
	for _, family := range families {
		due += len(r.model.dueAt(family, now))
	}
	o := kv.PurgeOptions{Batch: due/purgeBatches + 1, Progress: func(int64) { r.swept(kv.Sync) }}
	batches := 0
	for _, family := range families {
		batches += (len(r.model.dueAt(family, now)) + o.Batch - 1) / o.Batch
	}
	r.Disk.SetPhase("purge")
	before := r.newest()
	res, err := purge(context.Background(), o)
	if err != nil {
		return err
	}
	if res.Purged != int64(due) || res.Batches != batches || r.newest() != before+uint64(batches) ||
		res.More {
		return wrong(
			"purge of %d keys in %d commits, want %d in %d; more: %v",
			res.Purged,
			res.Batches,
			due,
			batches,
			res.More,
		)
	}
	for _, family := range families {
		if left := r.model.dueAt(family, now); len(left) > 0 {
			return wrong("%s: %d keys are due after a purge", family, len(left))
		}
	}
	return nil
}

// opPurgeWithin purges within a transaction that writes besides, and takes another purge back.
func opPurgeWithin(r *Run, rnd *rand.Rand) error {
	if err := r.makeDue(rnd, 8); err != nil {
		return err
	}
	return r.update(kv.Sync, func(t *tx) error {
		r.amid = t
		defer func() { r.amid = nil }()
		if err := t.putTTL(defaultFamily, newKey(r, rnd), newValue(rnd, 60), someTTL(rnd)); err != nil {
			return err
		}
		sp, before := t.Savepoint(), t.m.clone()
		t.m.dropDue(t.now)
		if _, err := t.PurgeExpired(context.Background(), kv.PurgeOptions{}); err != nil {
			return err
		}
		if rnd.IntN(2) == 0 {
			if err := t.RollbackTo(sp); err != nil {
				return err
			}
			t.m = before
			return nil
		}
		for _, family := range t.m.names() {
			if left := t.m.dueAt(family, t.now); len(left) > 0 {
				return wrong("%s: %d keys are due after a purge", family, len(left))
			}
		}
		return nil
	})
}

// opEvict meets expired keys: one by name, or all that a scan comes by. They are evicted before the
// next write, which after a get by name comes at once.
func opEvict(r *Run, rnd *rand.Rand) error {
	if err := r.makeDue(rnd, 4); err != nil {
		return err
	}
	if rnd.IntN(3) == 0 {
		got, err := readContents(r.db)
		if want := r.now(); err == nil && got != want {
			err = wrong("a scan sees commit %d, want %d; contents right: %v", got.seq, want.seq,
				got.hash == want.hash)
		}
		return err
	}
	if err := r.evictNoted(); err != nil { // It would go before those of here.
		return err
	}
	family, due := defaultFamily, []string(nil)
	for _, name := range r.model.names() {
		if keys := r.model.dueAt(name, r.clock.read()); len(keys) > 0 {
			family, due = name, keys
		}
	}
	if len(due) == 0 {
		return nil
	}
	r.Disk.SetPhase("evict")
	key, before := due[rnd.IntN(len(due))], r.newest()
	_, err := r.db.CF(family).Get([]byte(key))
	if !errors.Is(err, kv.ErrNotFound) {
		if err == nil {
			return wrong("%s/%q has expired and is found", family, key)
		}
		return err
	}
	if err := r.evicted(); err != nil { // a batch of keys that scans had met
		return err
	}
	if err := r.evictNoted(); err != nil {
		return err
	}
	if _, stored := r.model.families[family].value[key]; r.fault == nil &&
		(stored || r.newest() != before+1) {
		return wrong("%s/%q was met expired and is still stored", family, key)
	}
	return nil
}
