package pager

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/golden"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

func usedPages(t testing.TB, p *Pager) map[Pgid]bool {
	t.Helper()
	u, err := p.Alloc.Used()
	require.NoError(t, err)
	used := map[Pgid]bool{}
	u.Empty().Diff(u, func(id Pgid, inU bool) bool {
		require.False(t, inU)
		used[id] = true
		return true
	})
	for id := range used {
		in, err := p.Alloc.InUse(id)
		require.NoError(t, err)
		require.True(t, in)
	}
	require.Equal(t, uint64(len(used)), p.Alloc.UsedPages())
	return used
}

func TestFreeMapComesBackAfterReopening(t *testing.T) {
	racetest.OneGoroutine(t)
	forBeds(t, func(t *testing.T, b bed) {
		for _, pageSize := range []int{4096, 16384} {
			rnd := rand.New(rand.NewSource(int64(pageSize)))
			b.path += fmt.Sprint(pageSize)
			b.create(t, pageSize)
			live := map[Pgid]uint64{}
			held := map[Pgid]uint64{} // freed since the last checkpoint
			for range 8 {
				p, err := b.tryOpen()
				require.NoError(t, err)
				for range 2 {
					for range 20 + rnd.Intn(150) {
						switch ids := slices.Sorted(maps.Keys(live)); {
						case rnd.Intn(10) == 0:
							value := make([]byte, rnd.Intn(10*pageSize))
							live[newExtent(t, p, value).Pgid] = ExtentPages(len(value), pageSize)
						case rnd.Intn(10) < 5 || len(ids) == 0:
							live[newPage(t, p, 1).Pgid] = 1
						default:
							id := ids[rnd.Intn(len(ids))]
							require.NoError(t, p.Alloc.Touch(id, live[id]))
							require.NoError(t, p.Alloc.Freed(id, live[id]))
							held[id] = live[id]
							delete(live, id)
						}
					}
					checkpoint(t, p)
					for id, n := range held {
						require.NoError(t, p.Release(id, n))
					}
					clear(held)
				}
				before := usedPages(t, p)
				for id, n := range live {
					for i := range n {
						require.True(t, before[id+Pgid(i)])
					}
				}
				require.NoError(t, p.Alloc.TrimFile(rnd.Intn(2) == 0))
				free, pages := freeOf(p), p.Alloc.Pages()
				require.NoError(t, p.Close())
				p, err = b.tryOpen()
				require.NoError(t, err)
				require.Equal(t, free, freeOf(p)+pages-p.Alloc.Pages())
				require.Equal(t, before, usedPages(t, p))
				require.Equal(t, p.Alloc.Pages(), freeOf(p)+p.Alloc.UsedPages())
				require.NoError(t, p.Close())
			}
		}
	})
}

// hugeStore opens a store that has the given number of groups, all but a few of their pages free.
func hugeStore(t *testing.T, groups int) (bed, *Pager) {
	b := bed{fs: &sparseFS{FS: vfs.NewMemory()}, path: "/huge.ebb"}
	p := b.newPager(t, MinPageSize)
	last := uint64(groups)*p.Alloc.space.perGroup - 10
	require.NoError(t, p.Alloc.reserve(last, false, ForPut))
	first, err := p.Alloc.space.grow(last - p.Alloc.space.end)
	require.NoError(t, err)
	require.NoError(t, p.Alloc.space.setAvail(first, last-uint64(first)))
	p.end.Store(p.Alloc.space.end)
	return b, p
}

// allocateInGroup takes one page of a group, as a commit would.
func allocateInGroup(t *testing.T, p *Pager, no int) Pgid {
	t.Helper()
	s := p.Alloc.space
	s.avail.run, s.avail.runEnd, s.framedFree = 0, 0, s.framedFree[:0]
	p.Alloc.space.avail.cursor = uint64(no)*p.Alloc.space.perGroup + 64
	p.Alloc.space.holes.cursor = p.Alloc.space.avail.cursor
	ref := newPage(t, p, byte(no))
	require.Equal(t, uint64(no), uint64(ref.Pgid)/p.Alloc.space.perGroup)
	return ref.Pgid
}

func TestOnlyGroupsThatChangedAreWritten(t *testing.T) {
	b, p := hugeStore(t, 6)
	allocateInGroup(t, p, 5)
	four := allocateInGroup(t, p, 4)
	allocateInGroup(t, p, 2)
	_, before := p.Counters()
	c := checkpoint(t, p)
	_, after := p.Counters()
	require.Len(t, c.images, 5, "groups 0, 2, 4 and 5 and the directory")
	require.Equal(t, before+5+3, after)
	require.Zero(t, p.Alloc.space.groups[1].ref, "a group of which nothing is in use has no page")
	refs := []Ref{p.Alloc.space.groups[4].ref, p.Alloc.space.groups[5].ref}

	allocateInGroup(t, p, 2)
	c = checkpoint(t, p)
	require.Len(t, c.images, 3, "groups 0, for the pages of the map itself, and 2, and the directory")
	require.Equal(t, refs, []Ref{p.Alloc.space.groups[4].ref, p.Alloc.space.groups[5].ref})
	require.Len(t, c.Freed, 3)

	require.NoError(t, p.Alloc.Freed(four, 1))
	checkpoint(t, p)
	require.NoError(t, p.Release(four, 1))
	require.Zero(t, p.Alloc.space.groups[4].ref)
	used := usedPages(t, p)
	require.NoError(t, p.Close())

	p = b.open(t)
	require.Len(t, p.Alloc.space.groups, 6)
	read, _ := p.Counters()
	require.Equal(t, uint64(1), read, "opening reads the directory only: its one page, once")
	require.Equal(t, used, usedPages(t, p))
	require.Len(t, p.Alloc.SpacePages(), 4)
	for _, ref := range p.Alloc.SpacePages() {
		require.NoError(t, p.VerifySpace(ref))
	}
}

func TestDirectoryOfTwoLevelsComesAndGoes(t *testing.T) {
	racetest.OneGoroutine(t)
	b, p := hugeStore(t, 300)
	far := allocateInGroup(t, p, 299)
	allocateInGroup(t, p, 260)
	allocateInGroup(t, p, 3)
	c := checkpoint(t, p)
	require.Len(t, p.Alloc.dirs, 3)
	require.Len(t, c.images, 3+4)
	used := usedPages(t, p)
	require.NoError(t, p.Close())

	p = b.open(t)
	require.Len(t, p.Alloc.space.groups, 300)
	require.Equal(t, used, usedPages(t, p))
	require.Len(t, p.Alloc.SpacePages(), 3+4)

	// When the tail is free, file and directory shrink.
	require.NoError(t, p.Alloc.Freed(far, 1))
	checkpoint(t, p)
	require.NoError(t, p.Release(far, 1))
	checkpoint(t, p)
	require.Less(t, len(p.Alloc.space.groups), 262)
	require.Len(t, p.Alloc.dirs, 3)
	id := Pgid(0)
	for u := range usedPages(t, p) {
		if uint64(u)/p.Alloc.space.perGroup == 260 {
			id = u
		}
	}
	require.NotZero(t, id)
	for range 3 { // the map page of the last group lies in the last group at first
		if in, err := p.Alloc.InUse(id); err == nil && in {
			require.NoError(t, p.Alloc.Freed(id, 1))
			checkpoint(t, p)
			require.NoError(t, p.Release(id, 1))
		} else {
			checkpoint(t, p)
		}
	}
	require.Len(t, p.Alloc.dirs, 1)
	require.Len(t, p.Alloc.space.groups, 4)
	require.NoError(t, p.Alloc.TrimFile(true))
	require.Equal(t, int64(p.Alloc.Pages())*MinPageSize, p.Alloc.FileBytes())
	used = usedPages(t, p)
	require.NoError(t, p.Close())
	p = b.open(t)
	require.Equal(t, used, usedPages(t, p))
}

// freeMapDamage are changes of a directory and a map page that their checksums do not tell of.
func TestContradictoryFreeMapIsCorruption(t *testing.T) {
	_, model := freeMapStore(t)
	dir, fmap := model.Alloc.freeDir().Pgid, model.Alloc.space.groups[0].ref.Pgid
	u32 := func(off int, v uint32) func([]byte) {
		return func(b []byte) { binary.LittleEndian.PutUint32(b[off:], v) }
	}
	for _, test := range []struct {
		name   string
		page   Pgid
		sealed bool
		change func(b []byte)
	}{
		{"directory_checksum", dir, false, func(b []byte) { b[4000] = 1 }},
		{"directory_kind", dir, true, func(b []byte) { b[offKind] = byte(KindFreeMap) }},
		{"directory_pgid", dir, true, func(b []byte) { b[offPgid] ^= 1 }},
		{"directory_epoch", dir, true, func(b []byte) { b[offEpoch]-- }},
		{"directory_of_no_group", dir, true, func(b []byte) { SetCount(b, 0) }},
		{"directory_of_level_1_and_no_group", dir, true, func(b []byte) { b[offLevel] = 1; SetCount(b, 0) }},
		{"directory_of_too_many_groups", dir, true, func(b []byte) { SetCount(b, 2) }},
		{"directory_with_a_count_past_its_end", dir, true, func(b []byte) { SetCount(b, 65535) }},
		{"directory_level_1_names_itself", dir, true, func(b []byte) {
			b[offLevel] = 1
			binary.LittleEndian.PutUint64(b[HeaderSize:], uint64(dir))
		}},
		{"more_in_use_than_pages", dir, true, u32(HeaderSize+12, 1000)},
		{"meta_pages_free", dir, true, u32(HeaderSize+12, 1)},
		{"map_past_the_end", dir, true, u32(HeaderSize, 99)},
		{"map_is_a_meta_page", dir, true, u32(HeaderSize, 1)},
		{"map_missing", dir, true, func(b []byte) { clear(b[HeaderSize : HeaderSize+12]) }},
		{"map_epoch", dir, true, u32(HeaderSize+8, 1)},
		{"map_checksum", fmap, false, func(b []byte) { b[100] = 1 }},
		{"map_kind", fmap, true, func(b []byte) { b[offKind] = byte(KindFreeDir) }},
		{"map_with_another_count", fmap, true, func(b []byte) { b[HeaderSize] |= 8 }},
		{"map_past_the_file", fmap, true, func(b []byte) { b[HeaderSize] &^= 4; b[HeaderSize+20] = 1 }},
		{"map_with_a_free_meta_page", fmap, true, func(b []byte) { b[HeaderSize] ^= 2 | 8 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			b, p := freeMapStore(t)
			require.NoError(t, p.Close())
			b.rewrite(t, MinPageSize, test.page, 1, test.sealed, test.change)
			p, err := b.tryOpen()
			if err == nil {
				_, err = p.Alloc.Used()
				require.NoError(t, p.Close())
			}
			var bad *badfile.Error
			require.ErrorAs(t, err, &bad)
		})
	}
}

func TestPagesOutOfBoundsCannotBeFreed(t *testing.T) {
	_, p := freeMapStore(t)
	end := p.Alloc.Pages()
	for _, c := range []struct {
		id Pgid
		n  uint64
	}{{0, 1}, {1, 1}, {Pgid(end), 1}, {Pgid(end - 1), 2}, {1<<64 - 1, 1}, {3, 1<<64 - 1}, {2, 0}} {
		requireBadPage(t, p.Alloc.Touch(c.id, c.n), c.id)
	}
	in, err := p.Alloc.InUse(1 << 60)
	require.NoError(t, err)
	require.False(t, in)
}

func FuzzFreeMap(f *testing.F) {
	f.Add(golden.Read(f, "testdata/free-directory.hex"), golden.Read(f, "testdata/free-map.hex"), byte(9))
	f.Add(
		golden.Read(f, "testdata/free-directory-level-1.hex"),
		golden.Read(f, "testdata/free-directory.hex"),
		byte(3),
	)
	f.Fuzz(func(t *testing.T, dir, fmap []byte, ops byte) {
		defer bound.Hold(t, 32<<20)()
		b, p := freeMapStore(t)
		at := []Pgid{p.Alloc.freeDir().Pgid, p.Alloc.space.groups[0].ref.Pgid}
		require.NoError(t, p.Close())
		for i, page := range [][]byte{dir, fmap} {
			if len(page) > HeaderSize {
				b.rewrite(t, MinPageSize, at[i], 1, true, func(b []byte) {
					copy(b[offLevel:], page[offLevel:min(len(page), len(b))])
				})
			}
		}
		p, err := b.tryOpen()
		if err != nil {
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			return
		}
		defer func() { require.NoError(t, p.Close()) }()
		var taken []Pgid
		for range ops % 32 {
			id, _, err := p.New(7, AllocPolicy{})
			if err != nil {
				require.ErrorIs(t, err, badfile.ErrCorrupt)
				return
			}
			require.GreaterOrEqual(t, id, Pgid(2))
			taken = append(taken, id)
		}
		if _, err := p.Alloc.Used(); err != nil {
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			return
		}
		for i, id := range taken {
			if i%2 == 0 {
				require.NoError(t, p.Commit(id, 1))
			} else {
				require.NoError(t, p.Unused(id, 1))
			}
		}
		if _, err := p.CaptureState(nextEpoch(p)); err != nil {
			require.True(t, errors.Is(err, badfile.ErrCorrupt) || errors.Is(err, ErrNoSpace), "%v", err)
		}
	})
}

// TestGroupsAreLoadedOnDemand: in a store of many groups, a checkpoint writes the changed groups
// and reads no other. The operation that needs an unreadable group returns the error.
func TestGroupsAreLoadedOnDemand(t *testing.T) {
	b, p := hugeStore(t, 6)
	four := allocateInGroup(t, p, 4)
	allocateInGroup(t, p, 5)
	checkpoint(t, p)
	require.NoError(t, p.Close())

	p = b.open(t)
	good := p.file
	p.file = &brokenFile{File: good, read: errBroken}
	_, err := p.Alloc.InUse(four)
	require.ErrorIs(t, err, errBroken)
	require.ErrorIs(t, p.Alloc.Touch(four, 1), errBroken)
	_, err = p.Alloc.Used()
	require.ErrorIs(t, err, errBroken)
	p.file = good
	in, err := p.Alloc.InUse(four)
	require.NoError(t, err)
	require.True(t, in)
	allocateInGroup(t, p, 4)
	require.False(t, p.Alloc.space.groups[0].loaded)
	require.EqualValues(t, p.Alloc.space.perGroup, p.Alloc.Fill(),
		"what the directory says of the first group is enough")
	checkpoint(t, p)
	require.False(t, p.Alloc.space.groups[5].loaded)
}

// TestFreeMapOfAnotherNumberOfPagesIsCorruption: the meta page counts pages that no directory tells of,
// and more groups than the directory has.
func TestFreeMapOfAnotherNumberOfPagesIsCorruption(t *testing.T) {
	b := memoryBed()
	p := b.newPager(t, MinPageSize)
	require.NoError(t, p.Alloc.reserve(100, true, ForPut))
	m := p.LastMeta()
	m.Pages = 3
	require.ErrorContains(t, p.Start(&m), "counts 3 pages and has no free directory")

	_, p = hugeStore(t, 3)
	allocateInGroup(t, p, 2)
	checkpoint(t, p)
	m = p.LastMeta()
	m.Pages -= p.Alloc.space.perGroup
	require.ErrorContains(t, p.Start(&m), "free directory page with 3 entries, at most 2 belong")
	m.Pages += 2 * p.Alloc.space.perGroup
	require.NoError(t, p.Alloc.reserve(p.Alloc.space.perGroup*4, true, ForPut))
	require.ErrorContains(t, p.Start(&m), "free directory has 3 groups, the meta page counts 4")
}

// TestGroupThatChangesLastIsWritten: its last page in use was the free map page of a group behind
// it, so that its own free map page goes in the round after that, and the group in which that one
// was changes last of all. It had kept its old page, which contradicted the directory: damage, at
// the next open.
func TestGroupThatChangesLastIsWritten(t *testing.T) {
	b, p := hugeStore(t, 4)
	per := Pgid(p.Alloc.space.perGroup)
	// n pages of a group from its first free one on, as an extent of a commit would
	use := func(no Pgid, n uint64) (id Pgid) {
		t.Helper()
		p.Alloc.space.extCursor = uint64(no * per)
		id, ok, err := p.Alloc.space.extent(n)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, no, id/per)
		require.NoError(t, p.Commit(id, n))
		return id
	}
	free := func(id Pgid, n uint64) {
		t.Helper()
		require.NoError(t, p.Alloc.Touch(id, n))
		require.NoError(t, p.Alloc.Freed(id, n))
	}
	zero := use(0, uint64(per)-2)
	one := use(1, uint64(per)) // Groups 0 and 1 are full,
	two := use(2, uint64(per)-40)
	three := use(3, 2) // and all pages of the map lie in group 2,
	checkpoint(t, p)
	require.Equal(t, Pgid(2), p.Alloc.space.groups[3].ref.Pgid/per)
	free(one, 200)
	checkpoint(t, p)
	require.NoError(t, p.Release(one, 200))
	free(two, uint64(per)-40)
	free(zero+300, 1)
	checkpoint(t, p) // of which all but that of group 3 go to group 1,
	require.NoError(t, p.Release(two, uint64(per)-40))
	free(zero, 200)
	require.Equal(t, Pgid(1), p.Alloc.space.groups[2].ref.Pgid/per)
	require.Equal(t, uint32(1), p.Alloc.space.groups[2].nUsed)
	checkpoint(t, p)
	require.NoError(t, p.Release(zero, 200))
	checkpoint(t, p) // and those of 0 and 1 to group 0.
	require.Equal(t, Pgid(1), p.Alloc.space.groups[2].ref.Pgid/per)
	require.Equal(t, Pgid(0), p.Alloc.space.groups[1].ref.Pgid/per)
	free(three, 1)
	checkpoint(t, p)
	require.Zero(t, p.Alloc.space.groups[2].nUsed)
	used := usedPages(t, p)
	require.NoError(t, p.Close())

	p = b.open(t)
	require.Equal(t, used, usedPages(t, p))
}

// freeOf is the number of free pages, with room and without.
func freeOf(p *Pager) uint64 {
	s := p.Alloc.space
	return s.avail.n + s.holes.n + uint64(len(s.framedFree))
}
