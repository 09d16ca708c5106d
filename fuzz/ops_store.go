package fuzz

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/kv"
)

// Operations on the store as a whole.

func opCheckpoint(r *Run, _ *rand.Rand) error {
	r.Disk.SetPhase("checkpoint")
	if err := r.db.Checkpoint(context.Background()); err != nil {
		return err
	}
	r.durable(r.newest())
	return nil
}

func opSync(r *Run, _ *rand.Rand) error {
	r.Disk.SetPhase("commit")
	if err := r.db.Sync(); err != nil {
		return err
	}
	r.durable(r.newest())
	return nil
}

// opRotate writes more than a segment of log, durable and relaxed by turns.
func opRotate(r *Run, rnd *rand.Rand) error {
	for i := range 3 {
		err := r.update(kv.Durability(i%2), func(t *tx) error {
			for j := range int(r.config.Segment / 3 / 800) {
				if err := t.put(defaultFamily, fmt.Sprintf("r%d-%d", i, j), newValue(rnd, 800)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func opReopen(r *Run, _ *rand.Rand) error {
	if r.db != nil {
		if err := r.close(); err != nil {
			return err
		}
	}
	return r.open()
}

// opKill ends the process, as it were: nothing more is written, the page cache stays. The next
// process recovers.
func opKill(r *Run, _ *rand.Rand) error {
	if r.db != nil {
		if err := r.release(); err != nil {
			return err
		}
		dead := r.Disk.Inject(crashfs.Fault{Kinds: crashfs.KindChanges, Sticky: true})
		_ = r.db.Close() // Only to let go of memory and locks.
		r.db = nil
		dead.Disarm()
	}
	return r.open()
}

func opHold(r *Run, _ *rand.Rand) error { return r.hold() }

// opBulk creates a family and fills it past the log. The load is a commit of its own.
func opBulk(r *Run, rnd *rand.Rand) error {
	name := freeName(r.model, rnd)
	if err := r.update(kv.NoSync, func(t *tx) error { return t.create(name, 0) }); err != nil {
		return err
	}
	m := r.model.clone()
	n := 1 + rnd.IntN(150)
	r.Disk.SetPhase("bulk")
	next := r.begun(m)
	var rows iter.Seq2[[]byte, []byte] = func(yield func(k, v []byte) bool) {
		for i := range n {
			key, value := fmt.Sprintf("b%05d", i), newValue(rnd, rnd.IntN(200))
			m.put(name, key, value, 0)
			if !yield([]byte(key), []byte(value)) {
				return
			}
		}
	}
	got, err := r.db.BulkLoad(context.Background(), name, rows)
	if err != nil {
		return err
	}
	if got != int64(n) {
		return wrong("BulkLoad counts %d rows, want %d", got, n)
	}
	r.committed(m)
	r.durable(next)
	return nil
}

// opSpoil is a load whose last row comes too early in the order of keys: nothing of it is there.
func opSpoil(r *Run, rnd *rand.Rand) error {
	name := freeName(r.model, rnd)
	if err := r.update(kv.NoSync, func(t *tx) error { return t.create(name, 0) }); err != nil {
		return err
	}
	n := 1 + rnd.IntN(150)
	r.Disk.SetPhase("bulk")
	var rows iter.Seq2[[]byte, []byte] = func(yield func(k, v []byte) bool) {
		for i := range n {
			if !yield(fmt.Appendf(nil, "b%05d", i), []byte(newValue(rnd, rnd.IntN(200)))) {
				return
			}
		}
		yield([]byte("a"), nil)
	}
	_, err := r.db.BulkLoad(context.Background(), name, rows)
	switch {
	case err == nil:
		return wrong("BulkLoad of rows that are not in order passes")
	case !errors.Is(err, kv.ErrKeyOrder):
		return err
	}
	return nil
}

// opBeside is a checkpoint with commits in its middle, which fill more than half of the next
// segment, and write a large value to the main file. They must not start a checkpoint themselves,
// which would wait for this one: only stores with room enough have them.
func opBeside(r *Run, rnd *rand.Rand) error {
	if r.config.Checkpoint < wide.Checkpoint {
		return opCheckpoint(r, rnd)
	}
	r.beside = func() error {
		for _, c := range []struct {
			d     kv.Durability
			sizes []int // of values
		}{{kv.NoSync, slices.Repeat([]int{800}, 8)}, {kv.Sync, append(slices.Repeat([]int{800}, 13), 2500)}} {
			err := r.update(c.d, func(t *tx) error {
				for _, size := range c.sizes {
					if err := t.put(defaultFamily, newKey(r, rnd), newValue(rnd, size)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				r.noteFate(err) // What the checkpoint makes of it no longer tells.
				r.attempt = nil
				return err
			}
		}
		r.Disk.SetPhase("checkpoint")
		return nil
	}
	before := r.newest()
	r.Disk.SetPhase("checkpoint")
	err := r.db.Checkpoint(context.Background())
	r.beside = nil
	if err == nil {
		r.durable(before)
	}
	return err
}
