package pager

import (
	"errors"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// holeBed is a store of small groups, in which short runs are punched, on a disk that knows holes.
type holeBed struct {
	bed
	disk *crashfs.Disk
	p    *Pager
	rnd  *rand.Rand
	live map[Pgid]byte // pages of the newest state, with their fill
	gone []Pgid        // freed pages that the last checkpoint reaches
	born []Pgid        // pages that were allocated since the last checkpoint
}

func newHoleBed(t *testing.T, seed int64) *holeBed {
	disk := crashfs.New(crashfs.Options{})
	b := &holeBed{
		bed: bed{fs: disk, path: "/a.ebb"}, disk: disk,
		rnd: rand.New(rand.NewSource(seed)), live: map[Pgid]byte{},
	}
	b.create(t, MinPageSize)
	b.reopen(t)
	t.Cleanup(func() { _ = b.p.Close() })
	return b
}

// newFilledBed is a bed with so many pages, as of a checkpoint.
func newFilledBed(t *testing.T, seed int64, pages int) *holeBed {
	b := newHoleBed(t, seed)
	for range pages {
		require.True(t, b.put(t, AllocPolicy{}))
	}
	b.checkpoint(t)
	return b
}

// freeLow frees most of the pages.
func (b *holeBed) freeLow(t *testing.T) {
	for id := Pgid(20); id < 500; id++ {
		if _, ok := b.live[id]; ok {
			b.free(t, id, false)
		}
	}
}

// reopen opens the store from its newest meta page.
func (b *holeBed) reopen(t *testing.T) {
	t.Helper()
	if b.p != nil {
		require.NoError(t, b.p.Close())
	}
	p, metas, err := Open(Options{FS: b.fs, Path: b.path, SmallGroups: true, Inline: true})
	require.NoError(t, err)
	m := metas[0]
	if m == nil || metas[1] != nil && metas[1].Epoch > m.Epoch {
		m = metas[1]
	}
	require.NoError(t, p.Start(m))
	b.p = p
}

// put makes a page, and reports whether there was room.
func (b *holeBed) put(t *testing.T, how AllocPolicy) bool {
	t.Helper()
	id, page, err := b.p.New(7, how)
	if NoSpace(err) {
		return false
	}
	require.NoError(t, err)
	require.NotContains(t, b.live, id)
	fill := byte(b.rnd.Intn(256))
	clear(page)
	WriteHeader(page, Header{Pgid: id, Epoch: nextEpoch(b.p), Kind: KindLeaf, Count: 1})
	page[HeaderSize] = fill
	require.NoError(t, b.p.Commit(id, 1))
	b.live[id] = fill
	b.born = append(b.born, id)
	return true
}

// free frees a page, for later or, if no checkpoint has it, at once.
func (b *holeBed) free(t *testing.T, id Pgid, born bool) {
	t.Helper()
	require.NoError(t, b.p.Alloc.Touch(id, 1))
	require.NoError(t, b.p.Alloc.Freed(id, 1))
	delete(b.live, id)
	if born {
		require.NoError(t, b.p.Unused(id, 1))
		return
	}
	b.gone = append(b.gone, id)
}

// checkpoint makes the state durable, frees what it does not reach, and punches.
func (b *holeBed) checkpoint(t *testing.T) {
	t.Helper()
	c := checkpoint(t, b.p)
	for _, id := range b.gone {
		require.NoError(t, b.p.Release(id, 1))
	}
	b.gone, b.born = b.gone[:0], b.born[:0]
	require.NoError(t, b.p.Alloc.TrimFile(false))
	b.punch(t, c.Pages)
}

func (b *holeBed) punch(t *testing.T, end uint64) (punched uint64) {
	t.Helper()
	before, keep := b.p.Alloc.space.avail.n, b.p.Alloc.reservePages(0)
	dead := b.p.Alloc.Holes.TakeDead(end, false)
	require.GreaterOrEqual(t, b.p.Alloc.space.avail.n, min(before, keep))
	for _, r := range dead {
		punched += uint64(r.to - r.from)
		require.LessOrEqual(t, uint64(r.to), end)
		for id := r.from; id < r.to; id++ {
			require.NotContains(t, b.live, id)
		}
	}
	require.NoError(t, b.p.Alloc.Holes.Punched(dead, b.p.Alloc.Holes.Punch(dead)))
	return punched
}

// requireRoom requires room on the disk for all that counts as having it: available pages, pages in
// use, and what is behind the end.
func (b *holeBed) requireRoom(t *testing.T) {
	t.Helper()
	s := b.p.Alloc.space
	holes := uint64(0)
	for no, g := range s.groups {
		for i := range s.perGroup {
			id := uint64(no)*s.perGroup + i
			if id >= s.end || !g.loaded {
				continue
			}
			bit := uint64(1) << (i % 64)
			hole := g.hole[i/64]&bit != 0
			if hole {
				holes++
			}
			if hole && (g.avail[i/64]|g.used[i/64])&bit != 0 ||
				!hole && !b.disk.HasRoom(b.path, int64(id)*MinPageSize, MinPageSize) {
				t.Fatalf("page %d of %d: hole %v, and available or in use, or without room", id, s.end, hole)
			}
		}
		if !g.loaded {
			holes += min(s.perGroup, s.end-uint64(no)*s.perGroup) - uint64(g.nUsed)
		}
	}
	require.Equal(t, holes, s.holes.n)
	end := int64(s.end) * MinPageSize
	require.True(t, b.p.Alloc.Growth.size <= b.p.Alloc.Growth.length)
	if size := b.p.Alloc.Growth.size; size > end {
		require.True(t, b.disk.HasRoom(b.path, end, size-end), "behind the end")
	}
}

// TestPagesAreBornWithRoom: random pages, checkpoints, punches and opens. A page that counts as
// available has room on the disk, and the pages of the state keep their bytes.
func TestPagesAreBornWithRoom(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for seed := range int64(3) {
		b := newHoleBed(t, seed)
		punched := uint64(0)
		for range 60 {
			how := AllocPolicy{Fit: []Fit{FitRuns, FitRuns, FitLowest, FitTightest}[b.rnd.Intn(4)]}
			for range b.rnd.Intn(200) {
				require.True(t, b.put(t, how))
			}
			b.freeSome(t)
			b.requireRoom(t)
			if b.rnd.Intn(3) > 0 {
				b.checkpoint(t)
				b.freeSome(t)
				punched += b.p.Alloc.space.holes.n
				b.requireRoom(t)
			}
			if b.rnd.Intn(6) == 0 {
				b.checkpoint(t)
				b.reopen(t)
				b.requireRoom(t)
			}
		}
		require.Positive(t, punched)
		b.checkpoint(t)
		b.reopen(t)
		for id, fill := range b.live {
			page := make([]byte, MinPageSize)
			require.NoError(t, b.p.ReadPages(id, page))
			require.Equal(t, id, ReadHeader(page).Pgid)
			require.Equal(t, fill, page[HeaderSize])
		}
	}
}

// freeSome frees a run of pages, and some at random.
func (b *holeBed) freeSome(t *testing.T) {
	t.Helper()
	born := map[Pgid]bool{}
	for _, id := range b.born {
		born[id] = true
	}
	from := Pgid(b.rnd.Intn(int(b.p.Alloc.Pages())))
	for id := from; id < from+150; id++ {
		if _, ok := b.live[id]; ok && b.rnd.Intn(20) > 0 {
			b.free(t, id, born[id])
		}
	}
}

// TestAFullDiskOpensWithTheRoomOfTheSessionBefore: which free pages have room is not stored. After a
// kill, on a disk without a byte more, all pages are there that the session had available and those
// that it had allocated since the capture.
func TestAFullDiskOpensWithTheRoomOfTheSessionBefore(t *testing.T) {
	for seed := range int64(6) {
		b := newFilledBed(t, seed, 1000)
		for range 4 {
			b.freeSome(t)
		}
		b.checkpoint(t)
		require.Positive(t, b.p.Alloc.space.holes.n)
		b.disk.SetCapacity(b.disk.Used())
		allocated := 0
		for range b.rnd.Intn(150) {
			if !b.put(t, AllocPolicy{Purpose: ForCheckpoint}) {
				break
			}
			allocated++
		}
		for _, id := range b.born {
			if b.rnd.Intn(2) == 0 {
				b.free(t, id, true)
			}
		}
		require.NoError(t, b.p.Alloc.flushFreeLists())
		b.punch(t, b.p.Alloc.Pages())
		have := int(b.p.Alloc.space.free()) + allocated
		for _, id := range b.born {
			if _, ok := b.live[id]; !ok {
				have-- // counted twice: free again
			}
		}
		behind := int(b.p.Alloc.Growth.size/MinPageSize) - int(b.p.Alloc.Pages())

		b.disk.SetCapacity(b.disk.Used())
		clear(b.live)
		b.born = nil
		b.reopen(t)
		for n := range have + behind {
			require.True(t, b.put(t, AllocPolicy{Purpose: ForCheckpoint, Fit: FitTightest}), "%d of %d",
				n, have+behind)
		}
		b.requireRoom(t)
	}
}

// TestPagesOfTheRunAreNotPunched: a replay on a full disk allocates as many pages at once as the run
// had. Pages that were allocated since the capture, and are free again, keep their room.
func TestPagesOfTheRunAreNotPunched(t *testing.T) {
	b := newFilledBed(t, 1, 600)
	b.freeLow(t)
	b.checkpoint(t)
	require.Positive(t, b.p.Alloc.space.holes.n)
	for range 200 {
		require.True(t, b.put(t, AllocPolicy{}))
	}
	end := b.p.lastMeta.Pages
	for _, id := range b.born {
		b.free(t, id, true)
	}
	require.NoError(t, b.p.Alloc.flushFreeLists())
	gap, err := b.p.Alloc.space.grow(40) // as before a large value, behind the durable state
	require.NoError(t, err)
	require.NoError(t, b.p.Alloc.reserve(0, true, ForPut))
	require.NoError(t, b.p.Alloc.space.setAvail(gap, 40))
	b.punch(t, end)
	for _, id := range b.born {
		require.True(t, b.disk.HasRoom(b.path, int64(id)*MinPageSize, MinPageSize), "page %d", id)
	}
	b.born = nil
	b.checkpoint(t)
	require.Positive(t, b.punch(t, b.p.Alloc.Pages())+b.p.Alloc.space.holes.n)
	b.requireRoom(t)
}

// noHoles is a file system that has none.
type noHoles struct{ vfs.File }

func (noHoles) PunchHole(int64, int64) error { return errors.ErrUnsupported }

// failedHoles is a disk that fails in a punch.
type failedHoles struct{ vfs.File }

func (f failedHoles) PunchHole(off, n int64) error {
	return errors.Join(f.File.PunchHole(off, n/2/MinPageSize*MinPageSize), vfs.ErrIO)
}

// TestWithoutHolesFreePagesStayAvailable, and after a punch that failed they are holes, since some may
// be. There is no second try.
func TestWithoutHolesFreePagesStayAvailable(t *testing.T) {
	for name, file := range map[string]func(vfs.File) vfs.File{
		"unsupported": func(f vfs.File) vfs.File { return noHoles{f} },
		"failed":      func(f vfs.File) vfs.File { return failedHoles{f} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newFilledBed(t, 2, 600)
			b.freeLow(t)
			good := b.p.file
			b.p.file = file(good)
			b.checkpoint(t)
			b.p.file = good
			require.Equal(t, name == "failed", b.p.Alloc.space.holes.n > 0)
			b.requireRoom(t)
			require.Empty(t, b.p.Alloc.Holes.TakeDead(b.p.Alloc.Pages(), false))
			for range 500 {
				require.True(t, b.put(t, AllocPolicy{}))
			}
			b.requireRoom(t)
		})
	}
}

// uncut is a file that cannot be cut.
type uncut struct{ vfs.File }

func (uncut) Truncate(int64) error { return vfs.ErrIO }

// TestAFileThatWasNotCutHasNoRoomBehindItsSize: its tail may have had holes, and growth that took it
// for short would have made them pages without room.
func TestAFileThatWasNotCutHasNoRoomBehindItsSize(t *testing.T) {
	b := newFilledBed(t, 3, 600)
	g := &b.p.Alloc.Growth
	size := int64(b.p.Alloc.Pages()) * MinPageSize
	require.NoError(t, g.ensure(size+64*MinPageSize, 0))
	long := g.length
	require.NoError(t, b.p.file.PunchHole(size, long-size))
	good := b.p.file
	b.p.file = uncut{good}
	<-g.startTruncation(size)
	g.EndPreallocation()
	b.p.file = good
	require.Equal(t, size, g.size)
	require.Equal(t, long, g.length)
	for range 100 {
		require.True(t, b.put(t, AllocPolicy{}))
	}
	b.requireRoom(t)
}

// triedFile counts the calls that found no room.
type triedFile struct {
	vfs.File
	failed int
}

func (f *triedFile) Reserve(off, n int64) error { return f.count(f.File.Reserve(off, n)) }
func (f *triedFile) Grow(size int64) error      { return f.count(f.File.Grow(size)) }

func (f *triedFile) count(err error) error {
	if NoSpace(err) {
		f.failed++
	}
	return err
}

// TestAFullDiskIsAskedOnce: an allocation from the reserve asked for room of a hole, in vain, for
// each page, and a file system that is full takes long to say so. A put, which fails otherwise, asks
// again.
func TestAFullDiskIsAskedOnce(t *testing.T) {
	b := newFilledBed(t, 4, 1000)
	b.freeLow(t)
	b.checkpoint(t)
	require.Greater(t, b.p.Alloc.space.holes.n, uint64(100))
	capacity := b.disk.Used()
	b.disk.SetCapacity(capacity)
	file := &triedFile{File: b.p.file}
	b.p.file = file
	for b.put(t, AllocPolicy{}) {
	}
	require.Positive(t, file.failed)
	file.failed = 0
	for range deletePages / 2 {
		require.True(t, b.put(t, AllocPolicy{Purpose: ForDelete}))
		b.p.Alloc.HasSpace(4, AllocPolicy{})
	}
	require.Zero(t, file.failed)

	require.False(t, b.put(t, AllocPolicy{}))
	require.Positive(t, file.failed, "a put asks, since there may be space again")

	b.disk.SetCapacity(capacity + 8<<20)
	b.p.Alloc.space.most = b.p.Alloc.space.end // or the file would grow, which tells as well
	holes := b.p.Alloc.space.holes.n
	for range 100 {
		require.True(t, b.put(t, AllocPolicy{}))
	}
	require.Less(t, b.p.Alloc.space.holes.n, holes)
	b.requireRoom(t)
}

// TestCloseKeepsTheReserve: the next session may begin on a full disk, and deletes.
func TestCloseKeepsTheReserve(t *testing.T) {
	b := newFilledBed(t, 5, 1000)
	b.freeLow(t)
	b.checkpoint(t)
	a := b.p.Alloc
	keep := a.reservePages(0)
	require.Greater(t, a.space.avail.n, keep)
	dead := a.Holes.TakeDead(a.Pages(), true)
	require.NoError(t, a.Holes.Punched(dead, a.Holes.Punch(dead)))
	require.Equal(t, keep, a.space.avail.n)
	b.requireRoom(t)
}
