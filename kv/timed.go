package kv

import (
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/ttl"
)

// TimeKey identifies a row of a time-partitioned family: its timestamp, in whole milliseconds, and
// its key.
type TimeKey struct {
	Time time.Time
	Key  []byte
}

// Time-partitioned families keep rows in the order of (timestamp, key), in one tree for each span of
// time: CFOptions.Partition. A row expires once it is older than CFOptions.Retention; a partition
// whose newest possible row has expired is dropped in one step. Timestamps are rounded down to
// milliseconds in every call. The calls on one key and the ranges of other families return
// ErrPartitioned here; Count, CountLive, NextExpiry, Clear and PurgeExpired work on both.

// Append stores a row of a time-partitioned family; a row with that timestamp and key is replaced.
// ErrInvalidTTL if the timestamp is older than the retention, or more than one partition and
// Options.MaxClockStep in the future. ErrNotPartitioned for another family; otherwise the errors of
// Put.
func (c *CF) Append(ts time.Time, key, value []byte) error { return c.append(ts, key, value) }

// GetAt returns the value of the row with that timestamp and key, as Get does. ErrNotFound if it is
// absent or expired.
func (c *CF) GetAt(ts time.Time, key []byte) (value []byte, err error) {
	defer c.tx.leave(c.tx.enter(), &err)
	return c.getAt(ts, key)
}

// DeleteAt removes the row with that timestamp and key. For an absent row it returns nil.
func (c *CF) DeleteAt(ts time.Time, key []byte) error { return c.deleteAt(ts, key) }

func (f *Family) Append(ts time.Time, key, value []byte) error {
	return f.write(func(v *verbs) error { return v.append(ts, key, value) })
}

// GetAt is CF.GetAt; it returns a copy of the value.
func (f *Family) GetAt(ts time.Time, key []byte) ([]byte, error) {
	return readOnce(&f.dbMethods, func(v *verbs) (value []byte, err error) {
		defer v.tx.leave(v.tx.enter(), &err)
		stored, err := v.getAt(ts, key)
		if err != nil {
			return nil, err
		}
		return appendValue(make([]byte, 0, len(stored)), stored), nil
	})
}

func (f *Family) DeleteAt(ts time.Time, key []byte) error {
	return f.write(func(v *verbs) error { return v.deleteAt(ts, key) })
}

// readyTimed is ready for calls on time-partitioned families.
func (v *familyView) readyTimed(write bool) error {
	if err := v.readyAny(write); err != nil {
		return err
	}
	if !v.fam.Partitioned() {
		return fmt.Errorf("%w: %q", ErrNotPartitioned, v.name)
	}
	return nil
}

// readyRow is readyTimed for calls on one row. It returns the row's timestamp in milliseconds.
func (v *familyView) readyRow(write bool, ts time.Time, key []byte) (ms int64, err error) {
	if err := v.readyTimed(write); err != nil {
		return 0, err
	}
	if err := checkKey(key, v.tx.db.maxKey); err != nil {
		return 0, err
	}
	ms, err = ttl.Timestamp(ts)
	return ms, fromBelow(err)
}

// timed is a time-partitioned family's view of package ttl.
func (v *familyView) timed() ttl.TimeRows { return ttl.TimeRows{Tx: v.tx.inner, Family: v.fam} }

// appendOverhead bounds the log bytes of a row beside its key and value.
const appendOverhead = 64

func (v *familyView) append(ts time.Time, key, value []byte) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	ms, err := v.readyRow(true, ts, key)
	if err != nil {
		return err
	}
	if err := checkValue(value); err != nil {
		return err
	}
	now, rows := v.tx.instant(), v.timed()
	if err := rows.AcceptsTimestamp(ms, now, rows.NewestAccepted(now, v.tx.db.clock.maxStep)); err != nil {
		return fromBelow(err)
	}
	last := v.newest
	if last == nil || last.at != v.tx.catalog || ms < last.partition.Start || ms > last.partition.Last {
		found, err := cf.EnsurePartition(v.tx.inner, v.fam, ms, len(key)+len(value)+appendOverhead)
		if err != nil {
			return v.below(err)
		}
		last = &lastAppend{partition: found, at: v.tx.catalog}
		v.newest = last
	}
	last.key = ttl.AppendTimeKey(last.key[:0], ms, key)
	_, err = v.tx.inner.Put(last.partition.Tree, last.key, value, 0)
	return v.below(err)
}

// getAt is GetAt for a caller that has entered.
func (v *familyView) getAt(ts time.Time, key []byte) ([]byte, error) {
	ms, err := v.readyRow(false, ts, key)
	if err != nil {
		return nil, err
	}
	p, ok, err := cf.FindPartition(v.tx.inner, v.fam, ms)
	if err != nil || !ok {
		return nil, v.notFound(err)
	}
	value, _, found, err := v.tx.inner.Get(p.Tree, ttl.AppendTimeKey(nil, ms, key))
	if err != nil || !found {
		return nil, v.notFound(err)
	}
	if ms < v.oldestLive(p) {
		v.tx.db.clock.observeExpired(v.timed().Expiry(ms))
		return nil, ErrNotFound
	}
	if value == nil {
		value = []byte{}
	}
	return value, nil
}

// notFound is ErrNotFound unless the look-up failed.
func (v *familyView) notFound(err error) error {
	if err == nil {
		return ErrNotFound
	}
	return v.below(err)
}

func (v *familyView) deleteAt(ts time.Time, key []byte) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	ms, err := v.readyRow(true, ts, key)
	if err != nil {
		return err
	}
	p, ok, err := cf.FindPartition(v.tx.inner, v.fam, ms)
	if err != nil || !ok {
		return v.below(err)
	}
	_, err = v.tx.inner.Delete(p.Tree, ttl.AppendTimeKey(nil, ms, key))
	return v.below(err)
}

// oldestLive is the lowest timestamp that the transaction shows of a partition: the whole partition
// while OnDrop runs for it.
func (v *familyView) oldestLive(p cf.Partition) int64 {
	if v.tx.dropping != 0 && p.Tree == v.tx.dropping {
		return math.MinInt64
	}
	return v.timed().OldestLive(v.tx.instant())
}

// ScanTime ranges over the rows with timestamps in [from, to), in the order of (timestamp, key), or
// the reverse; the zero Time is no bound. It opens only partitions that overlap the bounds. Expired
// rows are hidden, except those of a partition for which OnDrop runs. Slices, changes by the body and
// errors are as for All.
func (c *CF) ScanTime(from, to time.Time, reverse bool) iter.Seq2[TimeKey, []byte] {
	return func(yield func(TimeKey, []byte) bool) {
		s := timeScan{v: &c.txMethods, reverse: reverse, yield: yield}
		err := s.bounds(from, to)
		if err == nil {
			err = s.run()
		}
		if err != nil {
			c.tx.fail(err)
		}
	}
}

// timeScan is one ScanTime: over the timestamps in [lo, last].
type timeScan struct {
	v        *verbs
	lo, last int64
	empty    bool
	reverse  bool
	yield    func(TimeKey, []byte) bool
	stopped  bool // yield has returned false
}

func (s *timeScan) bounds(from, to time.Time) (err error) {
	s.lo, s.last = math.MinInt64, math.MaxInt64
	if !from.IsZero() {
		if s.lo, err = ttl.Timestamp(from); err != nil {
			return fromBelow(err)
		}
	}
	if !to.IsZero() {
		if s.last, err = ttl.Timestamp(to); err != nil {
			return fromBelow(err)
		}
		s.empty = s.last == math.MinInt64
		s.last--
	}
	return nil
}

func (s *timeScan) run() error {
	for at, begun := s.lo, false; !s.stopped; begun = true {
		if !begun && s.reverse {
			at = s.last
		}
		c, p, err := s.open(at, !begun)
		if c == nil || err != nil {
			return err
		}
		step := toNext
		if s.reverse {
			step = toPrev
		}
		if err := c.each(step, 0, s.row); err != nil {
			return err
		}
		if s.reverse {
			if at = p.Start - 1; p.Start <= s.lo {
				return nil
			}
		} else if at = p.Last + 1; p.Last >= s.last {
			return nil
		}
	}
	return nil
}

// open returns a cursor on the next partition with timestamps of the range at or behind at, in the
// direction of the range; nil if there is none.
func (s *timeScan) open(at int64, first bool) (c *Cursor, p cf.Partition, err error) {
	v := s.v
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyTimed(false); err != nil || s.empty {
		return nil, p, err
	}
	if first {
		if err := s.observeHidden(); err != nil {
			return nil, p, v.below(err)
		}
	}
	w, ok := v.fam.Partitions(v.tx.inner), false
	for {
		if s.reverse {
			p, ok, err = w.Last(at)
		} else {
			p, ok, err = w.First(at)
		}
		if err != nil || !ok || p.Start > s.last || p.Last < s.lo {
			return nil, p, v.below(err)
		}
		oldest := v.oldestLive(p)
		if lo := max(s.lo, oldest); lo <= p.Last {
			return s.cursor(p, lo), p, nil
		}
		switch { // The partition is due, as all before it, but one of these may be that of OnDrop.
		case v.tx.dropping == 0 && s.reverse:
			return nil, p, nil
		case v.tx.dropping == 0:
			at = oldest
		case s.reverse && p.Start == math.MinInt64:
			return nil, p, nil
		case s.reverse:
			at = p.Start - 1
		default:
			at = p.Last + 1
		}
	}
}

// cursor returns a cursor on the rows of a partition from timestamp lo to the end of the range.
func (s *timeScan) cursor(p cf.Partition, lo int64) *Cursor {
	c := &Cursor{v: s.v, partition: p.Tree, eager: true}
	if lo > p.Start {
		c.lo = cf.AppendInstant(nil, lo)
	}
	if s.last < p.Last {
		c.hi = cf.AppendInstant(nil, s.last+1)
	}
	return c
}

// observeHidden records that the range hides stored rows because they are expired, if it does.
func (s *timeScan) observeHidden() error {
	v := s.v
	now := v.tx.instant()
	oldest := v.timed().OldestLive(now)
	if s.lo >= oldest {
		return nil
	}
	p, ok, err := v.fam.Partitions(v.tx.inner).First(s.lo)
	if ok && p.Start < oldest {
		v.tx.db.clock.observeExpired(now)
	}
	return err
}

// row yields a row of a partition.
func (s *timeScan) row(key, value []byte) bool {
	ms, user, err := ttl.SplitTimeKey(key)
	if err != nil {
		s.v.tx.fail(s.v.below(err))
		s.stopped = true
		return false
	}
	s.stopped = !s.yield(TimeKey{Time: time.UnixMilli(ms), Key: user}, value)
	return !s.stopped
}

// countTimed is Count and, without due rows, CountLive of a time-partitioned family.
func (v *familyView) countTimed(live bool) (rows int64, err error) {
	if rows, err = v.timed().Count(); err != nil || !live {
		return rows, v.below(err)
	}
	due, err := v.timed().CountDue(v.tx.instant())
	if due > 0 {
		v.tx.db.clock.observeExpired(v.tx.instant())
	}
	return rows - due, v.below(err)
}

func (v *familyView) nextTimedExpiry() (at time.Time, ok bool, err error) {
	ms, ok, err := v.timed().First()
	if err != nil || !ok {
		return time.Time{}, false, v.below(err)
	}
	expiry := v.timed().Expiry(ms)
	v.tx.db.clock.hides(v.tx.instant(), expiry) // The caller learns that a row has expired.
	return time.UnixMilli(expiry), true, nil
}

func (v *familyView) clearTimed() error {
	list, err := cf.AllPartitions(v.tx.inner, v.fam)
	if err == nil && len(list) > 0 {
		v.tx.catalog++ // Handles remember partitions.
		err = cf.DropPartitions(v.tx.inner, v.fam, list)
	}
	return v.below(err)
}
