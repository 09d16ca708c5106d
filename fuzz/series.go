package fuzz

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// seriesFamily is the time-partitioned family of the workloads that have one.
const seriesFamily = "series"

// series is what a time-partitioned family should hold. It is immutable once a model has it: a change
// makes another one.
type series struct {
	retention, width int64 // milliseconds
	rows             map[seriesKey]string
	parts            map[int64]bool // starts of its partitions
}

type seriesKey struct {
	ms  int64
	key string
}

// seriesSum stands for the family in hashes.
var seriesSum = familyHash(seriesFamily)

func (k seriesKey) hash(value string) uint64 {
	return rowHash(mix(seriesSum+uint64(k.ms)), []byte(k.key), []byte(value))
}

// optionsHash is the part of the family itself.
func (s *series) optionsHash() uint64 {
	return seriesSum + mix(mix(seriesSum+4)+uint64(s.retention)) + mix(mix(seriesSum+5)+uint64(s.width))
}

func (s *series) clone() *series {
	return &series{s.retention, s.width, maps.Clone(s.rows), maps.Clone(s.parts)}
}

// keys lists the rows in their order.
func (s *series) keys() []seriesKey {
	return slices.SortedFunc(maps.Keys(s.rows), func(a, b seriesKey) int {
		return cmp.Or(cmp.Compare(a.ms, b.ms), cmp.Compare(a.key, b.key))
	})
}

// start is the begin of the partition of a timestamp.
func (s *series) start(ms int64) int64 {
	into := ms % s.width
	if into < 0 {
		into += s.width
	}
	return ms - into
}

// live says whether a row of that timestamp is not expired at now.
func (s *series) live(ms, now int64) bool { return now < ms+s.retention }

// setSeries makes s the series of the model; nil: none.
func (m *Model) setSeries(s *series) {
	if m.series != nil {
		m.hash -= m.series.optionsHash()
		for k, v := range m.series.rows {
			m.hash -= k.hash(v)
		}
	}
	if s != nil {
		m.hash += s.optionsHash()
		for k, v := range s.rows {
			m.hash += k.hash(v)
		}
	}
	m.series = s
}

// hiddenSeries is the part of the hash that a transaction at now does not see.
func (m *Model) hiddenSeries(now int64) (hash uint64) {
	if m.series == nil {
		return 0
	}
	for k, v := range m.series.rows {
		if !m.series.live(k.ms, now) {
			hash += k.hash(v)
		}
	}
	return hash
}

// dropDue drops the partitions that are due at now, and counts them and their rows.
func (m *Model) dropDue(now int64) (parts, rows int) {
	if m.series == nil {
		return 0, 0
	}
	s := m.series.clone()
	for start := range m.series.parts {
		if !s.live(start+s.width-1, now) {
			delete(s.parts, start)
			parts++
		}
	}
	for k := range m.series.rows {
		if !s.parts[s.start(k.ms)] {
			delete(s.rows, k)
			rows++
		}
	}
	m.setSeries(s)
	return parts, rows
}

// hashSeries reads a time-partitioned family in both directions, and holds the counts against it.
func hashSeries(tx *kv.Tx, name string) (hash uint64, err error) {
	f := tx.CF(name)
	o, err := tx.CFOptions(name)
	if err != nil {
		return 0, err
	}
	s := series{retention: o.Retention.Milliseconds(), width: o.Partition.Milliseconds()}
	hash = s.optionsHash()
	var last seriesKey
	n := int64(0)
	for k, v := range f.ScanTime(time.Time{}, time.Time{}, false) {
		row := seriesKey{k.Time.UnixMilli(), string(k.Key)}
		if n > 0 && (row.ms < last.ms || row.ms == last.ms && row.key <= last.key) {
			return 0, fmt.Errorf("series: %v after %v", row, last)
		}
		hash += row.hash(string(v))
		last = row
		n++
	}
	back := hash
	for k, v := range f.ScanTime(time.Time{}, time.Time{}, true) {
		back -= seriesKey{k.Time.UnixMilli(), string(k.Key)}.hash(string(v))
	}
	if err := tx.Err(); err != nil {
		return 0, err
	}
	if back != s.optionsHash() {
		return 0, fmt.Errorf("series: other rows backwards than forwards")
	}
	live, err := f.CountLive()
	if err == nil && live != n {
		err = fmt.Errorf("series: %d live rows, a scan finds %d", live, n)
	}
	return hash, err
}

// diff says where the stored rows differ from the model's, for people.
func (s *series) diff(c *kv.CF, say func(format string, args ...any)) {
	seen := 0
	for k, v := range c.ScanTime(time.Time{}, time.Time{}, false) {
		want, ok := s.rows[seriesKey{k.Time.UnixMilli(), string(k.Key)}]
		switch {
		case !ok:
			say("series: %d %q should not be there", k.Time.UnixMilli(), k.Key)
			continue
		case want != string(v):
			say("series: %d %q has a wrong value", k.Time.UnixMilli(), k.Key)
		}
		seen++
	}
	if seen < len(s.rows) {
		say("series: %d rows are missing", len(s.rows)-seen)
	}
}
