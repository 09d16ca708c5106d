package fuzz

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/ebbkv/ebb/kv"
)

// defaultFamily is the family that every store has.
const defaultFamily = "default"

// A Model is what the store should hold: per family a map. Its hash is a sum over families and rows, so that a change
// costs one row and not all of them. Families are shared between clones until one changes.
type Model struct {
	families map[string]*rows
	hash     uint64
}

type rows struct {
	m      map[string]string
	sum    uint64 // hash of name, for rows
	shared bool
}

// newModel is the state of a new store.
func newModel() *Model {
	m := &Model{families: map[string]*rows{}}
	m.create(defaultFamily)
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

func rowHash(family uint64, key, value []byte) uint64 {
	return mix(mix(family+xxhash.Sum64(key)) + xxhash.Sum64(value))
}

func (m *Model) clone() *Model {
	c := &Model{families: maps.Clone(m.families), hash: m.hash}
	for _, f := range m.families {
		f.shared = true
	}
	return c
}

// own gives a family that may be changed; it must exist.
func (m *Model) own(family string) *rows {
	f := m.families[family]
	if f.shared {
		f = &rows{m: maps.Clone(f.m), sum: f.sum}
		m.families[family] = f
	}
	return f
}

func (m *Model) create(family string) {
	f := &rows{m: map[string]string{}, sum: familyHash(family)}
	m.families[family] = f
	m.hash += f.sum
}

func (m *Model) drop(family string) {
	m.clear(family)
	m.hash -= m.families[family].sum
	delete(m.families, family)
}

func (m *Model) clear(family string) { m.deleteRange(family, "", "") }

func (m *Model) rename(from, to string) {
	old := m.families[from]
	m.create(to)
	for k, v := range old.m {
		m.put(to, k, v)
	}
	m.drop(from)
}

func (m *Model) put(family, key, value string) {
	m.delete(family, key)
	f := m.own(family)
	f.m[key] = value
	m.hash += rowHash(f.sum, []byte(key), []byte(value))
}

func (m *Model) delete(family, key string) {
	v, ok := m.families[family].m[key]
	if !ok {
		return
	}
	f := m.own(family)
	delete(f.m, key)
	m.hash -= rowHash(f.sum, []byte(key), []byte(v))
}

// deleteRange removes the keys of [lo, hi); "" does not bound.
func (m *Model) deleteRange(family, lo, hi string) {
	for _, k := range m.keys(family) {
		if k >= lo && (hi == "" || k < hi) {
			m.delete(family, k)
		}
	}
}

func (m *Model) names() []string { return slices.Sorted(maps.Keys(m.families)) }

func (m *Model) keys(family string) []string { return slices.Sorted(maps.Keys(m.families[family].m)) }

// contents is what a transaction sees: the number of its state, and the hash that a Model of it has.
type contents struct{ seq, hash uint64 }

// readContents reads everything that db shows, forwards, and holds the counts against it.
func readContents(db *kv.DB) (c contents, err error) {
	err = db.View(func(tx *kv.Tx) error {
		c.seq = tx.Seq()
		c.hash, err = hashOf(tx)
		return err
	})
	return c, err
}

func hashOf(tx *kv.Tx) (hash uint64, err error) {
	names, err := tx.ListCFs()
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		f := tx.CF(name)
		sum := familyHash(name)
		hash += sum
		n, last := int64(0), []byte(nil)
		for k, v := range f.All() {
			hash += rowHash(sum, k, v)
			if n > 0 && string(k) <= string(last) {
				return 0, fmt.Errorf("family %q: key %q after %q", name, k, last)
			}
			last = append(last[:0], k...)
			n++
		}
		if err := tx.Err(); err != nil {
			return 0, err
		}
		count, err := f.Count()
		if err != nil {
			return 0, err
		}
		if count != n {
			return 0, fmt.Errorf("family %q: Count is %d, a scan finds %d rows", name, count, n)
		}
	}
	return hash, nil
}

// diff says where db and the model part, for people.
func (m *Model) diff(db *kv.DB) string {
	var found []string
	say := func(format string, args ...any) {
		if len(found) < 10 {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	err := db.View(func(tx *kv.Tx) error {
		names, err := tx.ListCFs()
		if err != nil {
			return err
		}
		for _, name := range names {
			f := m.families[name]
			if f == nil {
				say("family %q should not be there", name)
				continue
			}
			seen := 0
			for k, v := range tx.CF(name).All() {
				want, ok := f.m[string(k)]
				switch {
				case !ok:
					say("%s/%q should not be there", name, k)
				case want != string(v):
					say("%s/%q has a wrong value of %d bytes, want %d", name, k, len(v), len(want))
				}
				if ok {
					seen++
				}
			}
			if seen < len(f.m) {
				say("%s: %d rows are missing", name, len(f.m)-seen)
			}
		}
		for name := range m.families {
			if !slices.Contains(names, name) {
				say("family %q is missing", name)
			}
		}
		return nil
	})
	if err != nil {
		say("%v", err)
	}
	return errors.Join(toErrors(found)...).Error()
}

func toErrors(texts []string) []error {
	errs := []error{errors.New("difference")}
	for _, t := range texts {
		errs = append(errs, errors.New("  "+t))
	}
	return errs
}
