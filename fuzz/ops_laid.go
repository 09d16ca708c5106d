package fuzz

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/ebbkv/ebb/kv"
)

// opLaid is a session of a store that waits for no sync: batches of rows in order, behind all keys
// of a family, of which full leaves are written at once and named by the log. Between them, rows of
// these leaves are changed, and the store is synced or has a checkpoint. It ends with a Close or
// with a killed process.
func opLaid(r *Run, rnd *rand.Rand) error {
	r.relaxed = true
	err := opReopen(r, rnd)
	for range 1 + rnd.IntN(3) {
		if err == nil {
			err = r.lay(rnd)
		}
		if err != nil {
			break
		}
		switch rnd.IntN(6) {
		case 0:
			err = opSync(r, rnd)
		case 1:
			err = opCheckpoint(r, rnd)
		case 2:
			err = r.update(kv.Sync, func(t *tx) error { return changeLast(t, rnd) })
		case 3:
			err = r.update(kv.NoSync, func(t *tx) error { return changeLast(t, rnd) })
		}
	}
	if r.relaxed = false; err != nil {
		return err
	}
	if rnd.IntN(2) == 0 {
		return opKill(r, rnd)
	}
	return opReopen(r, rnd)
}

// lay commits a batch of rows in order. In one of four cases a row is among them that was there
// before.
func (r *Run) lay(rnd *rand.Rand) error {
	if err := r.evictNoted(); err != nil {
		return err
	}
	t := r.newBatch()
	b := r.db.NewBatch()
	family := pickFamily(t.m, rnd)
	n, odd := 40+rnd.IntN(120), -1
	if rnd.IntN(4) == 0 {
		odd = rnd.IntN(n)
	}
	for i := range n {
		key, value := fmt.Sprintf("z%06d-%03d", len(r.States), i), newValue(rnd, 60+rnd.IntN(140))
		if again, ok := pickKey(t.m, family, rnd); ok && i == odd {
			key = again
		}
		t.finds(family, key)
		t.m.put(family, key, value, t.usual(family))
		b.CF(family).Put([]byte(key), []byte(value))
	}
	r.Disk.SetPhase("lay")
	r.begun(t.m)
	r.within = t
	defer func() { r.within = nil }()
	if err := r.db.Apply(context.Background(), b); err != nil {
		return err
	}
	r.committed(t.m)
	return nil
}

// changeLast overwrites or deletes some of the last rows of a family, and puts one.
func changeLast(t *tx, rnd *rand.Rand) error {
	family := pickFamily(t.m, rnd)
	keys := t.m.keys(family)
	for _, key := range keys[max(len(keys)-60, 0):] {
		var err error
		switch rnd.IntN(4) {
		case 0:
			err = t.put(family, key, newValue(rnd, 60+rnd.IntN(140)))
		case 1:
			err = t.remove(family, key)
		}
		if err != nil {
			return err
		}
	}
	return t.put(family, "y", "last")
}
