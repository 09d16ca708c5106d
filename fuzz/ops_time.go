package fuzz

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// Operations on a time-partitioned family.

// opAppend creates the family if it is absent, and appends rows around the transaction's instant: to
// new and to present partitions, over present rows, and such as are refused. It deletes one, and now
// and then changes the retention, or clears or drops the family.
func opAppend(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Durability(rnd.IntN(2)), func(t *tx) error {
		if err := t.ensureSeries(rnd); err != nil {
			return err
		}
		for range 1 + rnd.IntN(6) {
			ms := t.now + rnd.Int64N(t.m.series.retention+2*t.m.series.width) - t.m.series.retention
			if err := t.append(ms, fmt.Sprint("s", rnd.IntN(3)), newValue(rnd, rnd.IntN(200))); err != nil {
				return err
			}
		}
		if rnd.IntN(3) == 0 {
			sp, before := t.Savepoint(), t.m.clone()
			if err := t.append(t.now-t.m.series.width, "undone", ""); err != nil {
				return err
			}
			if err := t.RollbackTo(sp); err != nil {
				return err
			}
			t.m = before
		}
		if keys := t.m.series.keys(); len(keys) > 0 && rnd.IntN(2) == 0 {
			if err := t.deleteAt(keys[rnd.IntN(len(keys))]); err != nil {
				return err
			}
		}
		return t.reshapeSeries(rnd)
	})
}

func (t *tx) ensureSeries(rnd *rand.Rand) error {
	if t.m.series != nil {
		return nil
	}
	width := 1 + rnd.Int64N(longestTTLMs/4)
	s := &series{
		retention: width + rnd.Int64N(longestTTLMs), width: width,
		rows: map[seriesKey]string{}, parts: map[int64]bool{},
	}
	t.m.setSeries(s)
	return t.CreateCF(seriesFamily, s.options())
}

func (s *series) options() kv.CFOptions {
	return kv.CFOptions{
		Retention: time.Duration(s.retention) * time.Millisecond,
		Partition: time.Duration(s.width) * time.Millisecond,
	}
}

// append appends a row, which is refused if it is expired or too far ahead.
func (t *tx) append(ms int64, key, value string) error {
	s := t.m.series
	err := t.CF(seriesFamily).Append(time.UnixMilli(ms), []byte(key), []byte(value))
	if !s.live(ms, t.now) || ms > t.now+s.width+maxStepMs {
		if err == nil {
			return wrong("a row of %d is taken at %d", ms, t.now)
		}
		if errors.Is(err, kv.ErrInvalidTTL) {
			return nil
		}
		return err
	}
	s = s.clone()
	s.parts[s.start(ms)] = true
	s.rows[seriesKey{ms, key}] = value
	t.m.setSeries(s)
	return err
}

func (t *tx) deleteAt(k seriesKey) error {
	s := t.m.series.clone()
	delete(s.rows, k)
	t.m.setSeries(s)
	return t.CF(seriesFamily).DeleteAt(time.UnixMilli(k.ms), []byte(k.key))
}

func (t *tx) reshapeSeries(rnd *rand.Rand) error {
	s := t.m.series.clone()
	switch rnd.IntN(16) {
	case 0:
		s.retention = s.width + rnd.Int64N(longestTTLMs)
		t.m.setSeries(s)
		return t.AlterCF(seriesFamily, s.options())
	case 1:
		clear(s.rows)
		clear(s.parts)
		t.m.setSeries(s)
		return t.CF(seriesFamily).Clear()
	case 2:
		t.m.setSeries(nil)
		return t.DropCF(seriesFamily)
	}
	return nil
}

// opDropExpired moves the clock until a partition is due, and drops those that are, within a
// transaction that writes besides; now and then a rollback restores them.
func opDropExpired(r *Run, rnd *rand.Rand) error {
	if r.model.series == nil || len(r.model.series.parts) == 0 {
		if err := opAppend(r, rnd); err != nil {
			return err
		}
	}
	if s := r.model.series; s != nil {
		if err := r.moveClock(r.clock.ms + rnd.Int64N(s.retention+s.width)); err != nil {
			return err
		}
	}
	return r.update(kv.Durability(rnd.IntN(2)), func(t *tx) error {
		if t.m.series == nil {
			return errRollback
		}
		sp, before := t.Savepoint(), t.m.clone()
		if err := t.dropExpired(); err != nil {
			return err
		}
		if rnd.IntN(4) == 0 {
			if err := t.RollbackTo(sp); err != nil {
				return err
			}
			t.m = before
		}
		return t.append(t.now, "behind", newValue(rnd, 30))
	})
}

func (t *tx) dropExpired() error {
	want, _ := t.m.dropDue(t.now)
	got, err := t.CF(seriesFamily).DropExpired(context.Background())
	if err == nil && got != want {
		err = wrong("%d partitions are dropped, want %d", got, want)
	}
	return err
}

// dropDueFirst drops due partitions before a purge of the whole store, which would drop them in a
// commit of its own.
func (r *Run) dropDueFirst() error {
	if r.model.series == nil {
		return nil
	}
	return r.update(kv.Sync, func(t *tx) error { return t.dropExpired() })
}
