package fuzz

import (
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/pager"
)

// TestSpecimensHoldWhatIsToBeDamaged proves that the shapes have the parts that they are there for.
func TestSpecimensHoldWhatIsToBeDamaged(t *testing.T) {
	racetest.OneGoroutine(t)
	kinds := func(s *Specimen) (seen map[pager.Kind]int, levels uint8) {
		seen = map[pager.Kind]int{}
		for at := int64(0); page(s.files[mainFile()], at) != nil; at++ {
			if h := pager.ReadHeader(page(s.files[mainFile()], at)); h.Pgid == pager.Pgid(at) {
				seen[h.Kind]++
				levels = max(levels, h.Level)
			}
		}
		return seen, levels
	}
	for _, name := range Shapes() {
		s, err := NewSpecimen(name)
		require.NoError(t, err)
		seen, levels := kinds(s)
		logs := len(s.files) - 1
		switch name {
		case "tree":
			require.EqualValues(t, 2, levels, "levels above the leaves")
			require.NotZero(t, seen[pager.KindOverflow])
			require.NotZero(t, seen[pager.KindFreeMap])
			require.NotZero(t, seen[pager.KindFreeDir])
			require.Zero(t, logs)
		case "killed", "cut":
			require.GreaterOrEqual(t, logs, 3)
			require.Less(t, s.floor, s.acked)
		case "families":
			require.NotZero(t, logs)
			require.Len(t, s.states[len(s.states)-1].families, 3)
		}
		require.Greater(t, len(s.older), 3, "older versions of pages")
		require.Equal(
			t,
			slices.Sorted(maps.Keys(s.files)),
			slices.Sorted(maps.Keys(s.twin)),
			"the twin has the same files",
		)
		require.NotEqual(t, s.files, s.twin)
		again, err := NewSpecimen(name)
		require.NoError(t, err)
		require.Equal(t, s.files, again.files, "the same bytes each time")
		// all own, all of the twin
		for _, code := range []int64{0, int64(pow(mixKinds, len(s.files))-1) / 2} {
			f, err := s.Judge(Rot{name, "-", "mix", code, 0})
			require.NoError(t, err)
			require.Equal(t, Right, f.fate)
		}
	}
}

func pow(base, n int) int {
	x := 1
	for range n {
		x *= base
	}
	return x
}

// TestRotIsFoundOrHarmless damages every thirteenth byte of every specimen, and does all the damage
// that goes by pages and files. crashtest bitflip turns every bit.
func TestRotIsFoundOrHarmless(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	every := int64(31)
	if testing.Short() {
		every = int64(racetest.Sample(307, 1597))
	}
	r, err := Rots(
		t.Context(),
		RotOptions{Every: every, Deep: 64, Hows: []string{"flip", "grow"}, Workers: runtime.GOMAXPROCS(0)},
	)
	require.NoError(t, err)
	require.Empty(t, r.Failures)
	more, err := Rots(
		t.Context(),
		RotOptions{Every: 23 * every, Hows: []string{"cut", "page", "old", "mix"},
			Workers: runtime.GOMAXPROCS(0)},
	)
	require.NoError(t, err)
	require.Empty(t, more.Failures)
	for name, fate := range r.Shapes {
		require.Greater(t, fate.Flips, 100_000/int(every), name)
		require.NotZero(t, fate.Damages["flip"][Right], name)
		require.NotZero(t, fate.Damages["flip"][Refused], name)
		require.Zero(t, fate.Elsewhere, "%s: damage is named, not only noticed", name)
		if name != "cut" {
			require.Zero(t, fate.BlindBytes+fate.RelaxedBytes,
				"%s: only a power cut leaves a blind spot", name)
		}
	}
	require.NotZero(t, r.Shapes["tree"].Damages["flip"][Partly])
	require.NotZero(t, r.Shapes["families"].Damages["flip"][Partly], "damage in one family leaves others")
	cut := r.Shapes["cut"]
	require.NotZero(t, cut.BlindBytes, "the last group is the blind spot that docs/durability.md tells of")
	require.Equal(t, 1, cut.MostLost, "no more than the last group")
	require.Zero(t, cut.Untold, "RecoveryInfo tells that bytes were dropped")
	for name, fate := range more.Shapes {
		for _, how := range []string{"cut", "write", "swap", "other", "old", "mix"} {
			require.NotEmpty(t, fate.Damages[how], "%s %s", name, how)
		}
	}
}

// TestOnlyTheNewestSegmentMayBeSetBackUnseen: the newest used segment was put back as it was 300
// durable commits earlier, and Open said nothing. That is the blind spot that docs/durability.md
// tells of; any other segment that is set back is found.
func TestOnlyTheNewestSegmentMayBeSetBackUnseen(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, name := range []string{"killed", "cut", "families"} {
		s, err := NewSpecimen(name)
		require.NoError(t, err)
		newest, fates := "", map[string]map[Fate]int{}
		for _, file := range slices.Sorted(maps.Keys(s.earlier)) {
			fates[file] = map[Fate]int{}
			for i := range s.earlier[file] {
				f, err := s.Judge(Rot{name, file, "back", 0, int64(i)})
				require.NoError(t, err)
				fates[file][f.fate]++
			}
			if fates[file][Lost] > 0 {
				require.Empty(t, newest, "%s: commits of two segments are lost: %v", name, fates)
				newest = file
			}
		}
		require.NotEmpty(t, newest, "%s: there is no blind spot any more: %v", name, fates)
		for file, of := range fates {
			if file < newest {
				require.NotZero(t, of[Refused], "%s %s", name, file)
				require.Equal(t, len(s.earlier[file]), of[Refused]+of[Right], "%s %s", name, file)
			}
		}
		r, err := Rots(t.Context(), RotOptions{Shapes: []string{name}, Hows: []string{"back"}})
		require.NoError(t, err)
		require.Empty(t, r.Failures)
		require.Equal(t, fates[newest][Lost], r.Shapes[name].BlindVersions)
		require.Greater(t, r.Shapes[name].MostBack, 1)
	}
}

func TestLinesOfRotReplay(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, line := range []string{"tree app.ebb flip 5000 3", "cut - mix 1 0", "killed app.ebb old 0 0"} {
		r, err := ParseRot(line)
		require.NoError(t, err)
		require.Equal(t, line, r.String())
		f, err := ReplayRot(line)
		require.NoError(t, err)
		require.NotEmpty(t, f)
	}
	for _, line := range []string{"", "tree app.ebb", "tree app.ebb melt 1 1",
		"tree app.ebb flip 1 1 1", "tree app.ebb flip 01 1"} {
		_, err := ParseRot(line)
		require.Error(t, err, line)
	}
	_, err := Rots(t.Context(), RotOptions{Hows: []string{"melt"}})
	require.Error(t, err)
	for _, line := range []string{
		"oak app.ebb flip 1 1", "tree app.ebb-wal-000001 flip 1 1", "tree app.ebb flip -1 0",
		"tree app.ebb flip 1 8",
		"tree app.ebb cut 99999999 0", "tree app.ebb write 1 9999", "tree app.ebb old 3 99",
		"tree - mix 99 0", "tree app.ebb grow 0 0",
	} {
		_, err := ReplayRot(line)
		require.Error(t, err, line)
	}
}

// TestFamiliesAreLookedAtWithoutTheirList has so many families that their list takes several pages.
// Where one of these is damaged, the families of the others are to be read by name, and hold what
// they held.
func TestFamiliesAreLookedAtWithoutTheirList(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	name := func(i int) string { return fmt.Sprintf("family %03d, %s", i, strings.Repeat("x", 50)) }
	s, err := shape{"crowd", func(b *bench) error {
		return b.update(kv.Sync, func(tx *kv.Tx) error {
			for i := range 60 {
				if err := tx.CreateCF(name(i), kv.CFOptions{}); err != nil {
					return err
				}
				if err := tx.CF(name(i)).Put([]byte("k"), []byte("v")); err != nil {
					return err
				}
			}
			return nil
		})
	}, closed}.grow(9, 1)
	require.NoError(t, err)
	families := s.states[len(s.states)-1].families
	fewest := len(families)
	for at := int64(0); page(s.files[mainFile()], at) != nil; at++ {
		r := Rot{s.Name, mainFile(), "flip", at*specimenPage + specimenPage/2, 0}
		f, err := s.Judge(r)
		require.NoError(t, err, "%s", r)
		if f.fate != Partly {
			continue
		}
		readable := 0
		for i := 0; i < 60; i += racetest.Sample(4, 12) { // What can be read is seen if it is wrong.
			families[name(i)]++
			if _, err := s.Judge(r); err != nil {
				require.ErrorContains(t, err, "wrong contents")
				readable++
			}
			families[name(i)]--
		}
		fewest = min(fewest, readable)
	}
	require.Greater(t, fewest, 2)
	require.Less(t, fewest, 13, "a page of the list was damaged")
}

// TestJudgeSeesWrongAnswers gives the judge stores that are wrong without any bad checksum: a
// changed row, a row less, a commit less. Each must be told from the right one, or no campaign
// means anything.
func TestJudgeSeesWrongAnswers(t *testing.T) {
	racetest.OneGoroutine(t)
	s, err := NewSpecimen("tree")
	require.NoError(t, err)
	look := func() error {
		_, err := s.Judge(Rot{s.Name, "-", "mix", 0, 0})
		return err
	}
	require.NoError(t, look())
	last := &s.states[len(s.states)-1]
	sound := last.families
	for what, families := range map[string]map[string]uint64{
		"wrong contents": {defaultFamily: sound[defaultFamily] + 1},
		"families":       {},
	} {
		last.families = families
		require.ErrorContains(t, look(), what)
	}
	last.families = sound
	s.states = append(s.states, *last)
	require.ErrorContains(t, look(), "says nothing")
	s.states = s.states[:len(s.states)-2]
	require.ErrorContains(t, look(), "the last one was")
	require.ErrorContains(t, proper(errRollback), "wrong kind")
}
