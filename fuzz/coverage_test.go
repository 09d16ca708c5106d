package fuzz

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// TestRandomWorkloadsReachEverything asserts that what random workloads are for does happen in
// them.
func TestRandomWorkloadsReachEverything(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	var splits, deep, overflows, reused, grown, cut, spilled, recycled, checkpoints, merged, leafRuns int
	for seed := range uint64(4) {
		r := newRun(Random(seed, randomLength))
		used := int64(0)
		r.observe = func(op Op) {
			if r.db == nil {
				return
			}
			s := r.db.Stats()
			now := s.FileBytes - s.FreeBytes
			if operations[op.Kind].name == "cut" && now < used*3/4 {
				merged++
			}
			used = now
		}
		require.NoError(t, r.all())
		epochs := map[pager.Pgid]pager.Epoch{}
		sizes := map[int]int64{}
		trace := r.Disk.Trace()
		for i := range trace {
			op := &trace[i]
			switch {
			case op.Kind == crashfs.KindRename && i > 10:
				recycled++
			case op.Kind == crashfs.KindTruncate:
				if op.Size > sizes[op.Ino] {
					grown++
				} else if op.Size < sizes[op.Ino] {
					cut++
				}
				sizes[op.Ino] = op.Size
			case op.Kind == crashfs.KindWrite && op.Name == path:
				for b := op.Data; len(b) >= 4096; b = b[4096:] {
					h := pager.ReadHeader(b)
					switch h.Kind {
					case pager.KindBranch:
						splits++
						if h.Level > 1 {
							deep++
						}
					case pager.KindMeta:
						checkpoints++
					case pager.KindLeaf:
						switch op.Phase {
						case "fill":
							spilled++
						case "lay":
							leafRuns++
						}
					case pager.KindOverflow:
						overflows++
					}
					if old, ok := epochs[h.Pgid]; ok && old != h.Epoch && h.Kind != pager.KindMeta {
						reused++
					}
					epochs[h.Pgid] = h.Epoch
					if h.Kind == pager.KindOverflow {
						break
					}
				}
			}
		}
	}
	require.NotZero(t, splits, "splits")
	require.NotZero(t, merged, "merges")
	require.NotZero(t, overflows, "overflow extents")
	require.NotZero(t, reused, "free space used again")
	require.NotZero(t, grown, "growth")
	require.NotZero(t, cut, "shrinking")
	require.NotZero(t, spilled, "pages written before their commit")
	require.NotZero(t, recycled, "recycled segments")
	require.Greater(t, leafRuns, 30, "leaves that the log names")
	require.Greater(t, checkpoints, 20, "checkpoints")
	t.Log(splits, deep, merged, overflows, reused, grown, cut, spilled, recycled, checkpoints, leafRuns)
}

// TestSmallGroupsAreMany: workloads whose stores have small groups do make stores with many of
// them, under a directory of two levels, and go on from there. An extent that crosses from one
// group to the next is there, too. So are punches of free runs: small groups have short ones.
func TestSmallGroupsAreMany(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	crossing, punches, reserved := 0, 0, 0
	for _, w := range []Workload{
		{Base: "spread" + groupsSuffix}, Random(6, randomLength), Random(7, randomLength),
	} {
		r := newRun(w)
		require.NoError(t, r.all(), "%s", w)
		roots, behind := 0, 0
		maps := map[pager.Pgid]bool{}
		for _, op := range r.Disk.Trace() {
			switch op.Kind {
			case crashfs.KindPunch:
				punches++
			case crashfs.KindReserve:
				reserved++
			}
			if op.Kind != crashfs.KindWrite || op.Name != path {
				continue
			}
			for b := op.Data; len(b) >= 4096; b = b[4096:] {
				h := pager.ReadHeader(b)
				switch {
				case h.Kind == pager.KindFreeDir && h.Level == 1:
					roots++
				case h.Kind == pager.KindFreeMap:
					maps[h.Pgid] = true
				case h.Kind == pager.KindMeta && roots > 0:
					behind++
				}
				if h.Kind == pager.KindOverflow {
					n := pager.ExtentPages(int(binary.LittleEndian.Uint64(b[extentSizeAt:])), 4096)
					if uint64(h.Pgid)/64 != (uint64(h.Pgid)+n-1)/64 {
						crossing++
					}
					b = b[(min(n, uint64(len(b)/4096))-1)*4096:]
				}
			}
		}
		require.Greater(t, roots, 2, "%s: directories of two levels", w)
		require.Greater(t, len(maps), 6, "%s: free map pages", w)
		require.Positive(t, behind, "%s: meta pages behind them", w)
	}
	require.Positive(t, crossing, "extents in two groups")
	require.Greater(t, punches, 5, "holes")
	require.Greater(t, reserved, 5, "room for holes")
}

// TestWorkloadsCompactAndBackUp: a store that lost most of its rows is compacted between commits, and
// the chains of its backups restore, also an increment after each of some crashes.
func TestWorkloadsCompactAndBackUp(t *testing.T) {
	racetest.OneGoroutine(t)
	moved, increments := 0, 0
	for seed := range uint32(racetest.Sample(6, 2)) {
		w := Workload{Base: "spread" + groupsSuffix}
		const names = "backup many cut compact backup kill backup compact cut compact"
		for i, name := range strings.Fields(names) {
			kind, ok := kindOf(name)
			require.True(t, ok)
			w.Ops = append(w.Ops, Op{kind, seed*100 + uint32(i)})
		}
		r := newRun(w)
		require.NoError(t, r.all(), "%s", w)
		for _, op := range r.Disk.Trace() {
			if op.Phase == "compact" && op.Kind == crashfs.KindWrite && op.Name == path {
				moved++
			}
		}
		for _, b := range r.backups {
			if b.info.Base != "" {
				increments++
			}
		}
		judge := &Judge{run: r}
		n := 0
		for im := range r.images(crashfs.ImageOptions{Profiles: crashfs.Kill | crashfs.None,
			From: r.OpEnds[0]}) {
			if n++; n%racetest.Sample(40, 200) > 0 {
				continue
			}
			_, err := judge.Image(im)
			require.NoError(t, err, "%s, point %d", w, im.Point)
		}
	}
	require.Greater(t, moved, 20)
	require.Positive(t, increments)
	t.Log(moved, increments)
}

// TestCompactionsAreCancelledAtEachStep: the cancelled compactions of the campaign have each number of
// steps, most of them write, and some of their crashes are judged.
func TestCompactionsAreCancelledAtEachStep(t *testing.T) {
	racetest.OneGoroutine(t)
	steps, writing := map[int]bool{}, 0
	for i, w := range cancelledCompactions() {
		steps[compactionSteps(w.Ops[0].rand())] = true
		if testing.Short() && i%4 > 0 {
			continue
		}
		r := newRun(w)
		require.NoError(t, r.all(), "%s", w)
		for _, op := range r.Disk.Trace() {
			if op.Phase == "compact" && op.Kind == crashfs.KindWrite && op.Name == path {
				writing++
				break
			}
		}
		opts := crashfs.ImageOptions{Profiles: crashfs.Kill | crashfs.None | crashfs.Prefix,
			From: r.OpEnds[0]}
		judge, n := &Judge{run: r}, 0
		for im := range r.images(opts) {
			if n++; n%racetest.Sample(16, 64) > 0 {
				continue
			}
			_, err := judge.Image(im)
			require.NoError(t, err, "%s, point %d", w, im.Point)
		}
	}
	require.Len(t, steps, mostCancelled)
	require.Greater(t, writing, racetest.Sample(10, 2))
}
