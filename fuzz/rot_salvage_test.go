package fuzz

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// TestSalvageOfEachDamage zeroes each page of each specimen, both meta pages, and each segment, puts
// older and foreign pages in place of others, and cuts the file: every row that comes out was in a
// committed state, and no more rows are missing than the damage hit.
func TestSalvageOfEachDamage(t *testing.T) {
	racetest.OneGoroutine(t)
	every := racetest.Sample(29, 97) // crashtest bitflip zeroes every page
	for _, name := range Shapes() {
		s, err := NewSpecimen(name)
		require.NoError(t, err)
		main := mainFile()
		pages := int64(len(s.files[main])) / specimenPage
		rots := []Rot{{name, main, "zero", 0, 2}, {name, "-", "mix", 0, 0}, {name, main, "cut", pages / 2 * specimenPage, 0}}
		for at := range pages {
			rots = append(rots, Rot{name, main, "zero", at, 1}, Rot{name, main, "flip", at*specimenPage + 2000, 1})
			for i := range s.older[at] {
				rots = append(rots, Rot{name, main, "old", at, int64(i)})
			}
			rots = append(rots, Rot{name, main, "other", at, 0}, Rot{name, main, "write", at, (at + 1) % pages})
			rots = append(rots, Rot{name, main, "cut", at*specimenPage + 100, 0})
		}
		for _, file := range slices.Sorted(maps.Keys(s.files)) {
			if n := int64(len(s.files[file])) / specimenPage; file != main && n > 0 {
				rots = append(rots, Rot{name, file, "zero", 0, n}, Rot{name, file, "zero", n / 2, 1}, Rot{name, file, "cut", 5000, 0})
			}
		}
		for i, r := range rots {
			if i > 2 && i%every != 0 || page(s.files[r.File], 0) != nil && r.How == "other" && page(s.twin[r.File], r.At) == nil {
				continue
			}
			for _, log := range []bool{false, true} {
				out, err := s.Salvage(r, log)
				require.NoError(t, err, "%v, log %v: %+v", r, log, out.Report)
			}
		}
	}
}

// TestSalvageOfTheSound takes everything that a sound store has, with its log and without.
func TestSalvageOfTheSound(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, name := range Shapes() {
		s, err := NewSpecimen(name)
		require.NoError(t, err)
		last := uint64(len(s.states) - 1)
		for _, log := range []bool{false, true} {
			out, err := s.Salvage(Rot{name, "-", "mix", 0, 0}, log)
			require.NoError(t, err, "%+v", out.Report)
			want := s.base
			if log {
				want = last
			}
			require.Equal(t, s.rows[want], out.rows, "%s, log %v: %+v", name, log, out.Report)
			require.Equal(t, want == last, out.Report.Whole, "%s: %+v", name, out.Report)
		}
	}
}

// TestSalvageWithoutMetaPages loses nothing of the last checkpoint.
func TestSalvageWithoutMetaPages(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, name := range Shapes() {
		s, err := NewSpecimen(name)
		require.NoError(t, err)
		out, err := s.Salvage(Rot{name, mainFile(), "zero", 0, 2}, false)
		require.NoError(t, err, "%+v", out.Report)
		require.Equal(t, s.rows[s.base], out.rows, "%s: %+v", name, out.Report)
		require.Zero(t, out.Report.MetaPages)
	}
}

// TestSalvageOfALostBranch loses no row: its leaves are the pages in use that no other page names.
func TestSalvageOfALostBranch(t *testing.T) {
	racetest.OneGoroutine(t)
	s, err := NewSpecimen("tree")
	require.NoError(t, err)
	branches := 0
	for at := int64(2); page(s.files[mainFile()], at) != nil; at++ {
		h := pager.ReadHeader(page(s.files[mainFile()], at))
		if h.Pgid != pager.Pgid(at) || h.Kind != pager.KindBranch {
			continue
		}
		out, err := s.Salvage(Rot{"tree", mainFile(), "zero", at, 1}, false)
		require.NoError(t, err, "%+v", out.Report)
		require.Zero(t, out.Lost, "branch %d of level %d: %+v", at, h.Level, out.Report)
		branches++
	}
	require.Greater(t, branches, 2)
}
