package fuzz

import (
	"fmt"
	"math/rand/v2"

	"github.com/ebbkv/ebb/kv"
)

// Operations on the sequence of a family, and on a key that is read and kept alive in one step.

// opNext takes numbers from the sequence of a family and puts a row under each; some of them are
// rolled back, and taken again.
func opNext(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Durability(rnd.IntN(2)), func(t *tx) error {
		family := pickFamily(t.m, rnd)
		if rnd.IntN(3) == 0 {
			sp, before := t.Savepoint(), t.m.clone()
			for range 1 + rnd.IntN(2) {
				if err := t.next(family); err != nil {
					return err
				}
			}
			if err := t.RollbackTo(sp); err != nil {
				return err
			}
			t.m = before
		}
		for range 1 + rnd.IntN(3) {
			if err := t.next(family); err != nil {
				return err
			}
		}
		return t.put(family, fmt.Sprintf("n%06d", t.m.families[family].last), newValue(rnd, rnd.IntN(60)))
	})
}

// next takes the next number of a family.
func (t *tx) next(family string) error {
	want := t.m.families[family].last + 1
	t.m.setLast(family, want)
	got, err := t.CF(family).NextSequence()
	if err == nil && got != want {
		err = wrong("the sequence of %s goes on with %d, want %d", family, got, want)
	}
	return err
}

// opTouch reads keys and gives them a new expiry: one that is there, one that has an expiry, due or
// not, and one that is absent.
func opTouch(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Durability(rnd.IntN(2)), func(t *tx) error {
		family := pickFamily(t.m, rnd)
		keys := []string{"absent"}
		if key, ok := pickKey(t.m, family, rnd); ok {
			keys = append(keys, key)
		}
		if key, ok := pickTimed(t.m, family, rnd); ok {
			keys = append(keys, key)
		}
		for _, key := range keys {
			if err := t.touch(family, key, rnd); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *tx) touch(family, key string, rnd *rand.Rand) error {
	ttl := someTTL(rnd)
	got, err := t.CF(family).GetAndExpire([]byte(key), ttl)
	if !t.m.live(family, key, t.now) {
		return t.missing(family, key, err)
	}
	want := t.m.families[family].value[key]
	t.m.put(family, key, want, t.after(ttl))
	if err == nil && string(got) != want {
		err = wrong("GetAndExpire of %s/%q gives %d bytes, want %d", family, key, len(got), len(want))
	}
	return err
}
