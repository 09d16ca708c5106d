package fuzz

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// Operations on expiries, and on the clock that they are measured by.

// someTTL is a time to live of whole milliseconds.
func someTTL(rnd *rand.Rand) time.Duration {
	return time.Duration(1+rnd.Int64N(longestTTLMs)) * time.Millisecond
}

// pickTimed picks a key that has an expiry, due or not.
func pickTimed(m *Model, family string, rnd *rand.Rand) (string, bool) {
	keys := slices.Sorted(maps.Keys(m.families[family].expiry))
	if len(keys) == 0 {
		return "", false
	}
	return keys[rnd.IntN(len(keys))], true
}

// opPutTTL makes a key with an expiry, and gives another one a new value and expiry.
func opPutTTL(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Durability(rnd.IntN(3)/2), func(t *tx) error {
		family := pickFamily(t.m, rnd)
		if key, ok := pickKey(t.m, family, rnd); ok {
			if err := t.putTTL(family, key, newValue(rnd, rnd.IntN(300)), someTTL(rnd)); err != nil {
				return err
			}
		}
		return t.putTTL(family, newKey(r, rnd), newValue(rnd, rnd.IntN(300)), someTTL(rnd))
	})
}

// opClearTTL makes a key permanent by a plain put; where no key has an expiry, one gets it in a
// commit before.
func opClearTTL(r *Run, rnd *rand.Rand) error {
	family := pickFamily(r.model, rnd)
	if _, ok := pickTimed(r.model, family, rnd); !ok {
		err := r.update(kv.NoSync, func(t *tx) error {
			return t.putTTL(family, newKey(r, rnd), newValue(rnd, 80), someTTL(rnd))
		})
		if err != nil {
			return err
		}
	}
	return r.update(kv.Sync, func(t *tx) error {
		key, ok := pickTimed(t.m, family, rnd)
		if !ok { // It was evicted just before.
			key = newKey(r, rnd)
		}
		return t.put(family, key, newValue(rnd, rnd.IntN(200)))
	})
}

// opExpire changes expiries and leaves values, then a value and leaves its expiry. Each key may be
// permanent, alive, expired or absent.
func opExpire(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		family := pickFamily(t.m, rnd)
		if key, ok := pickKey(t.m, family, rnd); ok {
			if err := t.expire(family, key, someTTL(rnd)); err != nil {
				return err
			}
		}
		if key, ok := pickTimed(t.m, family, rnd); ok {
			if err := t.expire(family, key, 0); err != nil {
				return err
			}
		}
		key, ok := pickTimed(t.m, family, rnd)
		if !ok {
			key = newKey(r, rnd)
		}
		if err := t.expire(family, "absent", someTTL(rnd)); err != nil {
			return err
		}
		return t.putKeep(family, key, newValue(rnd, rnd.IntN(300)))
	})
}

// opIncrement counts. A counter that something else was written to is none.
func opIncrement(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Durability(rnd.IntN(2)), func(t *tx) error {
		family, key := pickFamily(t.m, rnd), fmt.Sprintf("counter%d", rnd.IntN(3))
		delta, ttl := int64(rnd.IntN(9)-4), someTTL(rnd)
		want, counts := delta, true
		f := t.m.families[family]
		live := t.m.live(family, key, t.now)
		expiry := t.after(ttl)
		if live {
			b := []byte(f.value[key])
			if counts = len(b) == 8; counts {
				want += int64(binary.BigEndian.Uint64(b))
			}
			expiry = f.expiry[key]
		}
		t.finds(family, key)
		f = t.m.families[family]
		got, err := t.CF(family).Increment([]byte(key), delta, ttl)
		if !counts {
			if !errors.Is(err, kv.ErrNotCounter) {
				return wrong("counting on %d bytes gives %v", len(f.value[key]), err)
			}
			return nil
		}
		if err != nil {
			return err
		}
		t.m.put(family, key, string(binary.BigEndian.AppendUint64(nil, uint64(want))), expiry)
		if got != want {
			return wrong("%s/%q counts to %d, want %d", family, key, got, want)
		}
		return nil
	})
}

// opCompareAndDelete takes a key that has an expiry once, as one takes a code: with its value it is
// gone, with another one it stays, and an expired one is not there to be taken.
func opCompareAndDelete(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		family := pickFamily(t.m, rnd)
		key, ok := pickTimed(t.m, family, rnd)
		if !ok {
			key = "absent"
		}
		old := t.m.families[family].value[key]
		want := t.m.live(family, key, t.now)
		if rnd.IntN(3) == 0 {
			old, want = old+"?", false
		}
		got, err := t.CF(family).CompareAndDelete([]byte(key), []byte(old))
		if err != nil {
			return err
		}
		if got != want {
			return wrong("CompareAndDelete of %s/%q says %v, want %v", family, key, got, want)
		}
		if got {
			t.m.delete(family, key)
		}
		return nil
	})
}

// opClock sets the clock, in one of the ways in which clocks go wrong, or right again. What is
// written then must live its full time by that clock.
func opClock(r *Run, rnd *rand.Rand) error {
	at := r.clock.ms
	switch rnd.IntN(8) {
	case 0:
		at += rnd.Int64N(longestTTLMs)
	case 1: // a year ahead
		at = min(at+int64(365*24*time.Hour/time.Millisecond), year2262)
	case 2: // nudged
		at -= rnd.Int64N(maxStepMs)
	case 3:
		at -= maxStepMs + 1 + rnd.Int64N(longestTTLMs)
	case 4:
		at = year1970
	case 5:
		at = year2262
	default: // corrected
		at = startMs + rnd.Int64N(longestTTLMs)
	}
	if err := r.moveClock(at); err != nil {
		return err
	}
	return r.update(kv.Sync, func(t *tx) error {
		family, key, ttl := pickFamily(t.m, rnd), newKey(r, rnd), someTTL(rnd)
		if err := t.putTTL(family, key, newValue(rnd, 40), ttl); err != nil {
			return err
		}
		return t.hasLeft(family, key, ttl)
	})
}

// opFrozen moves the clock while a reader and a writer are at work: to both, time stands still.
// After the commit the key that was written has expired.
func opFrozen(r *Run, rnd *rand.Rand) error {
	reader, err := r.db.Begin(context.Background(), false)
	if err != nil {
		return err
	}
	defer func() { _ = reader.Rollback() }()
	seen, key := r.now(), newKey(r, rnd)
	err = r.update(kv.Sync, func(t *tx) error {
		if err := t.putTTL(defaultFamily, key, newValue(rnd, 40), longestTTL); err != nil {
			return err
		}
		if err := r.moveClock(r.clock.ms + 2*longestTTLMs); err != nil {
			return err
		}
		return t.hasLeft(defaultFamily, key, longestTTL)
	})
	if err != nil {
		return err
	}
	left, err := r.db.TTL([]byte(key))
	if err != nil || left != 0 {
		return errors.Join(wrong("%q should have expired, and has %v", key, left), err)
	}
	hash, err := hashOf(reader)
	if err == nil && hash != seen.hash {
		err = wrong("a reader sees something else when the clock has moved")
	}
	return err
}
