package fuzz

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/ebbkv/ebb/kv"
)

// contents is what a transaction sees: the number of its state, and the hash that a Model has of
// what is seen then.
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
		hash1 := hashFamily
		if name == seriesFamily {
			hash1 = hashSeries
		}
		h, err := hash1(tx, name)
		if err != nil {
			return 0, err
		}
		hash += h
	}
	return hash, nil
}

// hashFamily reads the rows from the data tree and the expiries from the index that is in their
// order, and asks for the expiry of each key besides, which stands in its row. The other index is
// left to Check.
func hashFamily(tx *kv.Tx, name string) (hash uint64, err error) {
	f, sum := tx.CF(name), familyHash(name)
	o, err := tx.CFOptions(name)
	if err != nil {
		return 0, fmt.Errorf("family %q: options: %w", name, err)
	}
	numbers, err := f.Sequence()
	if err != nil {
		return 0, fmt.Errorf("family %q: sequence: %w", name, err)
	}
	hash = sum + usualHash(sum, o.DefaultTTL) + lastHash(sum, numbers)
	n, last, some := int64(0), []byte(nil), sample{}
	for k, v := range f.All() {
		hash += rowHash(sum, k, v)
		some.add(k, v)
		if n > 0 && string(k) <= string(last) {
			return 0, fmt.Errorf("family %q: key %q after %q", name, k, last)
		}
		last = append(last[:0], k...)
		n++
	}
	if err := some.agrees(f); err != nil {
		return 0, fmt.Errorf("family %q: %w", name, err)
	}
	due, earliest := int64(0), time.Time{}
	for k, at := range f.Expiring(time.Time{}) {
		if at.Before(earliest) {
			return 0, fmt.Errorf("family %q: key %q expires before the one before it", name, k)
		}
		earliest = at
		if !tx.Now().Before(at) {
			due++
			continue
		}
		named, err := f.Expiry(k)
		if err != nil {
			return 0, fmt.Errorf("family %q: key %q has an expiry: %w", name, k, err)
		} else if !named.Equal(at) {
			return 0, fmt.Errorf("family %q: key %q expires at %d and, asked by name, at %d", name,
				k, at.UnixMilli(), named.UnixMilli())
		}
		hash += expiryHash(sum, k, at.UnixMilli())
	}
	if err := tx.Err(); err != nil {
		return 0, err
	}
	stored, err1 := f.Count()
	live, err2 := f.CountLive()
	below, err3 := f.CountRange(nil, last)
	from, err4 := f.CountRange(last, nil)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return 0, err
	}
	if n > 0 && (below+from != stored || from < 1 || from > 1+due) {
		return 0, fmt.Errorf(
			"family %q: %d rows, %d of them below the last that is live, and %d from it on",
			name, stored, below, from,
		)
	}
	if live != n || stored != n+due {
		return 0, fmt.Errorf(
			"family %q: %d rows, %d of them live; a scan finds %d, and %d have expired",
			name,
			stored,
			live,
			n,
			due,
		)
	}
	return hash, nil
}

// A sample is some rows of a family, from all over it, to be asked for by name together.
type sample struct {
	keys   [][]byte
	values []uint64 // hashes
	met    int
}

// sampled rows at most are in a sample: the first ones, then in their places every sampleEvery-th.
const (
	sampled     = 40
	sampleEvery = 97
)

func (s *sample) add(key, value []byte) {
	at := len(s.keys)
	if at < sampled {
		s.keys, s.values = append(s.keys, nil), append(s.values, 0)
	} else if s.met%sampleEvery == 0 {
		at = s.met / sampleEvery % sampled
	}
	if s.met++; at < sampled {
		s.keys[at], s.values[at] = bytes.Clone(key), xxhash.Sum64(value)
	}
}

// agrees asks for the rows of the sample, each of them and some absent keys.
func (s *sample) agrees(f *kv.CF) error {
	keys := slices.Clone(s.keys)
	for _, key := range s.keys[:len(s.keys)/8] {
		keys = append(keys, append(bytes.Clone(key), "\xffabsent"...))
	}
	found, wrongs := 0, 0
	err := f.GetMany(keys, func(i int, value []byte) bool {
		found++
		if i >= len(s.keys) || s.values[i] != xxhash.Sum64(value) {
			wrongs++
		}
		return true
	})
	if err == nil && (found != len(s.keys) || wrongs > 0) {
		err = fmt.Errorf("of %d rows GetMany finds %d, and %d of them are wrong", len(s.keys), found, wrongs)
	}
	return err
}

// countsAgree holds what the store counts of expiries against the rows, while no key is due.
func countsAgree(db *kv.DB) error {
	stats := db.Stats()
	return db.View(func(tx *kv.Tx) error {
		for name, f := range stats.Families {
			if name == seriesFamily {
				continue
			}
			timed := int64(0)
			for range tx.CF(name).Expiring(time.Time{}) {
				timed++
			}
			if f.TTLRows != timed || f.Due != 0 {
				return fmt.Errorf(
					"family %q: %d rows with an expiry, %d of them due; the index has %d",
					name,
					f.TTLRows,
					f.Due,
					timed,
				)
			}
		}
		return nil
	})
}

// diff says where db and the model part, for people. Nothing may have expired yet at the instant of
// db.
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
			if name == seriesFamily && m.series != nil {
				m.series.diff(tx.CF(name), say)
			} else if f := m.families[name]; f != nil {
				f.diff(tx.CF(name), func(format string, args ...any) { say(name+": "+format, args...) })
			} else {
				say("family %q should not be there", name)
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

func (f *rows) diff(c *kv.CF, say func(format string, args ...any)) {
	seen := 0
	if last, err := c.Sequence(); err != nil || last != f.last {
		say("the sequence is at %d, want %d: %v", last, f.last, err)
	}
	for k, v := range c.All() {
		want, ok := f.value[string(k)]
		if !ok {
			say("%q should not be there", k)
			continue
		}
		seen++
		if want != string(v) {
			say("%q has a wrong value of %d bytes, want %d", k, len(v), len(want))
		}
		expiry := int64(0)
		if at, err := c.Expiry(k); err != nil {
			say("%q: %v", k, err)
		} else if !at.IsZero() {
			expiry = at.UnixMilli()
		}
		if expiry != f.expiry[string(k)] {
			say("%q has the expiry %d, want %d", k, expiry, f.expiry[string(k)])
		}
	}
	if seen < len(f.value) {
		say("%d rows are missing", len(f.value)-seen)
	}
}

func toErrors(texts []string) []error {
	errs := []error{errors.New("difference")}
	for _, t := range texts {
		errs = append(errs, errors.New("  "+t))
	}
	return errs
}
