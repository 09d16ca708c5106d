package fuzz

import (
	"bytes"
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// TestSalvageOfEachDamage zeroes each page of each specimen, both meta pages, and each segment, puts
// older and foreign pages in place of others, and cuts the file: every row that comes out was in a
// committed state, and no more rows are missing than the damage hit.
func TestSalvageOfEachDamage(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	every := racetest.Sample(43, 97) // crashtest bitflip zeroes every page
	for _, name := range Shapes() {
		s, err := NewSpecimen(name)
		require.NoError(t, err)
		main := mainFile()
		pages := int64(len(s.files[main])) / specimenPage
		rots := []Rot{
			{name, main, "zero", 0, 2},
			{name, "-", "mix", 0, 0},
			{name, main, "cut", pages / 2 * specimenPage, 0},
		}
		for at := range pages {
			rots = append(rots, Rot{name, main, "zero", at, 1},
				Rot{name, main, "flip", at*specimenPage + 2000, 1})
			for i := range s.older[at] {
				rots = append(rots, Rot{name, main, "old", at, int64(i)})
			}
			rots = append(rots, Rot{name, main, "other", at, 0},
				Rot{name, main, "write", at, (at + 1) % pages})
			rots = append(rots, Rot{name, main, "cut", at*specimenPage + 100, 0})
		}
		for _, file := range slices.Sorted(maps.Keys(s.files)) {
			if n := int64(len(s.files[file])) / specimenPage; file != main && n > 0 {
				rots = append(rots, Rot{name, file, "zero", 0, n}, Rot{name, file, "zero", n / 2, 1})
				rots = append(rots, Rot{name, file, "cut", 5000, 0})
			}
		}
		for i, r := range rots {
			noTwin := page(s.files[r.File], 0) != nil && r.How == "other" && page(s.twin[r.File], r.At) == nil
			if i > 2 && i%every != 0 || noTwin {
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

// TestSalvageOfHostilePages changes bytes of pages and sets their checksums right again, as no damage
// does: salvage ends, without a panic, in bounded memory, and with a store that is sound.
func TestSalvageOfHostilePages(t *testing.T) {
	racetest.OneGoroutine(t)
	rnd := rand.New(rand.NewPCG(5, 2))
	for _, name := range Shapes() {
		s, err := NewSpecimen(name)
		require.NoError(t, err)
		for range racetest.Sample(*hostileSalvages, *hostileSalvages/4) {
			main := bytes.Clone(s.files[mainFile()])
			salt := pager.Salt([16]byte(main[56:72]))
			for range 1 + rnd.IntN(3) {
				b := page(main, rnd.Int64N(int64(len(main))/specimenPage))
				for range 1 + rnd.IntN(4) {
					at := 16 + rnd.IntN(100)
					if rnd.IntN(2) == 0 {
						at = 16 + rnd.IntN(specimenPage-16)
					}
					b[at] = byte(rnd.Uint32())
					if rnd.IntN(2) == 0 {
						b[at] = b[16+rnd.IntN(specimenPage-16)]
					}
				}
				pager.SetChecksum(b, salt)
			}
			files := maps.Clone(s.files)
			files[mainFile()] = main
			_, err := s.bounded(files, func() (finding, error) {
				return finding{}, guard(func() error {
					_, err := s.salvage(files, rnd.IntN(2) == 0, rnd.IntN(2) == 0)
					return err
				})
			})
			if !errors.Is(err, pager.ErrVersion) {
				require.NoError(t, err)
			}
		}
	}
}

var hostileSalvages = flag.Int("hostile-salvages", 25, "hostile stores of each shape that are salvaged")

// TestSalvageOfEveryCrash takes each shape as a crash has left it at any moment of its making, in the
// middle of a checkpoint too, with its meta pages and without: every row that comes out was committed.
func TestSalvageOfEveryCrash(t *testing.T) {
	racetest.OneGoroutine(t)
	every, n := racetest.Sample(*crashSalvages, *crashSalvages*8), 0
	o := crashfs.ImageOptions{Random: 1}
	if every > 50 {
		o = crashfs.ImageOptions{Profiles: crashfs.Kill | crashfs.None}
	}
	for i, sh := range shapes {
		b := &bench{
			disk: crashfs.New(crashfs.Options{Direct: true}), salt: 1 << 32,
			rnd:  rand.New(rand.NewPCG(uint64(i), 77)),
			spec: &Specimen{Name: sh.name, states: make([]shelf, 1), rows: make([]shelfRows, 1)},
		}
		require.NoError(t, b.open())
		require.NoError(t, sh.build(b))
		for im := range b.disk.Images(o) {
			if n++; n%every != 0 {
				continue
			}
			files := map[string][]byte{}
			for name, content := range im.Files() {
				files[filepath.Base(name)] = bytes.Clone(content)
			}
			main := files[mainFile()]
			if zeroed := n/every%4 < 3; len(main) < 8*specimenPage || zeroed {
				clear(main[:min(len(main), 2*specimenPage)])
			}
			if files[mainFile()] == nil {
				continue
			}
			out, err := b.spec.salvage(files, n%2 == 0, false)
			if errors.Is(err, pager.ErrNotStore) || err == nil && out.Report == nil {
				continue // of a store that was just being made
			}
			require.NoError(t, err, "%s, %d", sh.name, im.Point)
			out.Most = out.Lost
			out.Report.Whole = false
			require.NoError(t, out.judge(b.spec, false), "%s, %d: %+v", sh.name, im.Point, out.Report)
		}
		b.abandon()
	}
	require.Greater(t, n, 100)
}

var crashSalvages = flag.Int("crash-salvages", 60, "of the crashes take only every so-many-th")
