package fuzz

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/ebbkv/ebb/internal/crashfs"
)

// shrinkImages bounds the images that are judged to find out whether a smaller workload fails too.
const shrinkImages = 1500

// shrinkWork bounds all that is done to make one failure smaller, in images judged: a case is
// better told large than not at all. runWork is what a run of a workload counts for.
const (
	shrinkWork = 10_000
	runWork    = 20
)

// A shrinker makes a failure smaller until its work is done.
type shrinker struct{ left int }

// may says whether there is work left for something that costs n, and takes it.
func (s *shrinker) may(n int) bool {
	s.left -= n
	return s.left > 0
}

// Shrink makes a failing case small: fewest operations in the workload first, then fewest units
// that persisted. It gives back f where nothing smaller fails.
func Shrink(f *Failure) *Failure {
	s := &shrinker{shrinkWork}
	if len(f.Case.Crashes) == 0 {
		return s.run(f)
	}
	for smaller := s.ops(f); smaller != nil; smaller = s.ops(f) {
		f = smaller
	}
	for depth := range f.Case.Crashes {
		f = s.units(f, depth)
	}
	return f
}

// run takes operations away from a workload that goes wrong without any crash.
func (s *shrinker) run(f *Failure) *Failure {
	w := f.Case.Workload
	for n := len(w.Ops) / 2; n > 0; n /= 2 {
		for i := 0; i+n <= len(w.Ops) && s.may(runWork); {
			fewer := without(w, i, n)
			err := guard(func() error { _, err := Do(fewer); return err })
			if err == nil || sort(err.Error()) != sort(f.Reason) {
				i += n
				continue
			}
			w = fewer
			f = &Failure{Case{Workload: w, Trouble: f.Case.Trouble}, err.Error()}
		}
	}
	return f
}

// sort is the kind of a failure.
func sort(reason string) string {
	reason, _, _ = strings.Cut(reason, "\n")
	if i := strings.LastIndex(reason, "wrong answer"); i >= 0 {
		reason = reason[i:]
	}
	return digits.ReplaceAllString(reason, "#")
}

func without(w Workload, i, n int) Workload {
	return Workload{Base: w.Base, Ops: slices.Delete(slices.Clone(w.Ops), i, i+n)}
}

// ops finds a failure of a workload with fewer operations; nil if there is none. Only single
// crashes are shrunk so: for others the image of the first crash matters too much.
func (s *shrinker) ops(f *Failure) *Failure {
	c := f.Case
	if len(c.Crashes) > 1 || c.Trouble != "" {
		return nil
	}
	name, _, _ := strings.Cut(c.Crashes[0].Desc, " ")
	profile, ok := crashfs.ParseProfile(name)
	if !ok {
		return nil
	}
	for n := max(len(c.Workload.Ops)/2, 1); n > 0 && len(c.Workload.Ops) > 0; n /= 2 {
		for i := 0; i+n <= len(c.Workload.Ops) && s.may(runWork); i += n {
			w := without(c.Workload, i, n)
			r := newRun(w)
			if err := guard(r.all); err != nil {
				continue
			}
			smaller, judged := firstFailure(
				r,
				"",
				crashfs.ImageOptions{Profiles: profile, Random: 4},
				min(shrinkImages, s.left),
			)
			if s.may(judged); smaller != nil {
				return smaller
			}
		}
	}
	return nil
}

// units takes away one kept unit after the other as long as the case fails.
func (s *shrinker) units(f *Failure, depth int) *Failure {
	for {
		smaller := s.fewerUnits(f, depth)
		if smaller == nil {
			return f
		}
		f = smaller
	}
}

func (s *shrinker) fewerUnits(f *Failure, depth int) *Failure {
	fields := strings.Fields(f.Case.Crashes[depth].Desc)
	at := slices.IndexFunc(fields, func(s string) bool { return strings.HasPrefix(s, "keep=") })
	if at < 0 {
		return nil
	}
	units, err := crashfs.ParseUnits(strings.TrimPrefix(fields[at], "keep="), 1<<16)
	if err != nil || len(units) > 200 {
		return nil
	}
	for i := range units {
		if !s.may(runWork) {
			return nil
		}
		fields[at] = "keep=" + formatUnits(slices.Delete(slices.Clone(units), i, i+1))
		c := f.Case
		c.Crashes = slices.Clone(c.Crashes)
		c.Crashes[depth].Desc = strings.Join(fields, " ")
		var smaller *Failure
		if errors.As(Replay(c), &smaller) {
			return smaller
		}
	}
	return nil
}

func formatUnits(units []int) string {
	texts := make([]string, len(units))
	for i, u := range units {
		texts[i] = strconv.Itoa(u)
	}
	return strings.Join(texts, ",")
}
