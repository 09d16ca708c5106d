package fuzz

import (
	"maps"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// defaultFamily is the family that every store has.
const defaultFamily = "default"

// A Model is what the store should hold: per family a map. Rows that have expired are in it until
// something deletes them. Its hash is a sum over families, rows and expiries, so that a change
// costs one row and not all of them. Families are shared between clones until one changes.
type Model struct {
	families map[string]*rows
	series   *series // the time-partitioned family; nil: none
	hash     uint64
	mark     int64 // clock mark stored with the commit that made it, 0: none
}

// rows are one family. A key is in expiry exactly if it is in value and has one.
type rows struct {
	value  map[string]string
	expiry map[string]int64 // milliseconds since the Unix epoch
	usual  time.Duration    // default ttl of the family, 0: none
	last   uint64           // number that its sequence gave last, 0: none
	sum    uint64           // hash of name, for rows
	shared bool
}

// A State is what the oracle knows of one commit: what is stored, and what of it a transaction sees
// at two instants.
type State struct {
	Stored uint64 // all rows and expiries
	Mark   int64  // clock mark, longAgo if there is none
	AtMark uint64 // what is seen at the mark
	Later  uint64 // what is seen laterMs after the mark
}

// laterMs is how long after a commit it is looked at once more: half of what the workloads make
// dies sooner.
const laterMs = longestTTLMs / 2

// newModel is the state of a new store.
func newModel() *Model {
	m := &Model{families: map[string]*rows{}}
	m.create(defaultFamily, 0)
	return m
}

// mix spreads every bit of x over the whole word.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

func familyHash(name string) uint64 { return mix(xxhash.Sum64String(name) + 1) }

// rowHash is the part of a row in the hash without its expiry, expiryHash the part of the expiry:
// they are read from different trees.
func rowHash(family uint64, key, value []byte) uint64 {
	return mix(mix(family+xxhash.Sum64(key)) + xxhash.Sum64(value))
}

// usualHash is the part of the default ttl of a family.
func usualHash(family uint64, usual time.Duration) uint64 {
	return mix(mix(family+2) + uint64(usual.Milliseconds()))
}

// lastHash is the part of the sequence of a family.
func lastHash(family, last uint64) uint64 {
	if last == 0 {
		return 0
	}
	return mix(mix(family+3) + last)
}

func expiryHash(family uint64, key []byte, expiry int64) uint64 {
	return mix(mix(family+xxhash.Sum64(key)+1) + uint64(expiry))
}

func (m *Model) clone() *Model {
	c := &Model{families: maps.Clone(m.families), series: m.series, hash: m.hash, mark: m.mark}
	for _, f := range m.families {
		f.shared = true
	}
	return c
}

// own gives a family that may be changed; it must exist.
func (m *Model) own(family string) *rows {
	f := m.families[family]
	if f.shared {
		f = &rows{maps.Clone(f.value), maps.Clone(f.expiry), f.usual, f.last, f.sum, false}
		m.families[family] = f
	}
	return f
}

func (m *Model) create(family string, usual time.Duration) {
	f := &rows{value: map[string]string{}, expiry: map[string]int64{}, usual: usual, sum: familyHash(family)}
	m.families[family] = f
	m.hash += f.sum + usualHash(f.sum, usual)
}

// alter gives a family another default ttl.
func (m *Model) alter(family string, usual time.Duration) {
	f := m.own(family)
	m.hash += usualHash(f.sum, usual) - usualHash(f.sum, f.usual)
	f.usual = usual
}

// setLast moves the sequence of a family.
func (m *Model) setLast(family string, last uint64) {
	f := m.own(family)
	m.hash += lastHash(f.sum, last) - lastHash(f.sum, f.last)
	f.last = last
}

func (m *Model) drop(family string) {
	m.clear(family)
	m.setLast(family, 0)
	m.hash -= m.families[family].sum + usualHash(m.families[family].sum, m.families[family].usual)
	delete(m.families, family)
}

func (m *Model) clear(family string) { m.deleteRange(family, "", "") }

func (m *Model) rename(from, to string) {
	old := m.families[from]
	m.create(to, old.usual)
	for k, v := range old.value {
		m.put(to, k, v, old.expiry[k])
	}
	m.setLast(to, old.last)
	m.drop(from)
}

// put stores a row; expiry 0: it is permanent.
func (m *Model) put(family, key, value string, expiry int64) {
	m.delete(family, key)
	f := m.own(family)
	f.value[key] = value
	m.hash += rowHash(f.sum, []byte(key), []byte(value))
	if expiry != 0 {
		f.expiry[key] = expiry
		m.hash += expiryHash(f.sum, []byte(key), expiry)
	}
}

func (m *Model) delete(family, key string) {
	v, ok := m.families[family].value[key]
	if !ok {
		return
	}
	f := m.own(family)
	delete(f.value, key)
	m.hash -= rowHash(f.sum, []byte(key), []byte(v))
	if expiry, ok := f.expiry[key]; ok {
		delete(f.expiry, key)
		m.hash -= expiryHash(f.sum, []byte(key), expiry)
	}
}

// deleteRange removes the keys of [lo, hi); "" does not bound.
func (m *Model) deleteRange(family, lo, hi string) {
	for _, k := range m.keys(family) {
		if k >= lo && (hi == "" || k < hi) {
			m.delete(family, k)
		}
	}
}

// live says whether a key is there at now: stored, and not expired.
func (m *Model) live(family, key string, now int64) bool {
	f := m.families[family]
	_, ok := f.value[key]
	return ok && !f.due(key, now)
}

// due says whether a key has an expiry that has come.
func (f *rows) due(key string, now int64) bool {
	expiry, ok := f.expiry[key]
	return ok && expiry <= now
}

// seen is the hash of what a transaction sees at now.
func (m *Model) seen(now int64) uint64 {
	hash := m.hash - m.hiddenSeries(now)
	for _, f := range m.families {
		for key, expiry := range f.expiry {
			if expiry <= now {
				hash -= rowHash(f.sum, []byte(key), []byte(f.value[key])) +
					expiryHash(f.sum, []byte(key), expiry)
			}
		}
	}
	return hash
}

// dueAt lists the keys of a family that are stored and expired at now.
func (m *Model) dueAt(family string, now int64) (keys []string) {
	f := m.families[family]
	for key := range f.expiry {
		if f.due(key, now) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func (m *Model) state() State {
	mark := m.mark
	if mark == 0 { // A store that was never told the time follows the clock.
		mark = longAgo
	}
	return State{Stored: m.hash, Mark: mark, AtMark: m.seen(mark), Later: m.seen(mark + laterMs)}
}

func (m *Model) names() []string { return slices.Sorted(maps.Keys(m.families)) }

// plain are the families in which no key has an expiry, nor gets one from a plain put.
func (m *Model) plain() (names []string) {
	for _, name := range m.names() {
		if f := m.families[name]; f.usual == 0 && len(f.expiry) == 0 {
			names = append(names, name)
		}
	}
	return names
}

func (m *Model) keys(family string) []string {
	return slices.Sorted(maps.Keys(m.families[family].value))
}
