package pager

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// stalledGrowth holds up the growing of a file, or fails it. asked gets each size.
type stalledGrowth struct {
	vfs.File
	asked chan int64
	goOn  chan error
}

func (f *stalledGrowth) Grow(size int64) error {
	f.asked <- size
	if err := <-f.goOn; err != nil {
		return err
	}
	return f.File.Grow(size)
}

// growing is a pager whose file has little more than half a step left, and what stands for the
// file.
func growing(t *testing.T) (*Pager, *stalledGrowth) {
	p := memoryBed().newPager(t, MinPageSize)
	for p.Alloc.Growth.step() == minGrowth {
		newPage(t, p, 1)
		require.Nil(t, p.Alloc.Growth.grownTo, "small files grow when they have to")
	}
	for p.inUse()+4*MinPageSize <= p.Alloc.Growth.threshold {
		newPage(t, p, 1)
	}
	require.Nil(t, p.Alloc.Growth.grownTo)
	f := &stalledGrowth{File: p.file, asked: make(chan int64, 4), goOn: make(chan error, 4)}
	p.file = f
	return p, f
}

// begin makes pages until the growth begins, and returns to which size.
func (f *stalledGrowth) begin(t *testing.T, p *Pager) int64 {
	for p.Alloc.Growth.grownTo == nil {
		newPage(t, p, 1)
	}
	return <-f.asked
}

// inUse is what reserve compares with the size of the file, but for the page that is to come, and
// for more slack perhaps.
func (p *Pager) inUse() int64 {
	return int64(p.Alloc.space.end+p.Alloc.reservePages(0)) * int64(p.pageSize)
}

// TestFileIsPreallocated without any wait, as long as the present size suffices.
func TestFileIsPreallocated(t *testing.T) {
	p, f := growing(t)
	before := p.Alloc.FileBytes()
	size := f.begin(t, p)
	require.Equal(t, p.wholePages(before+before/growthFraction), size)
	for p.inUse()+4*MinPageSize < before {
		newPage(t, p, 1) // with the growth under way
	}
	require.Equal(t, before, p.Alloc.FileBytes(), "room that is not there yet does not count")
	p.fileSync.grown.Store(false)
	f.goOn <- nil
	for p.Alloc.Growth.grownTo != nil {
		newPage(t, p, 1)
	}
	require.Equal(t, size, p.Alloc.FileBytes())
	require.True(t, p.fileSync.grown.Load(), "the next sync has to make the size durable")
	require.Empty(t, f.asked, "there is more than half a step left")
	got, err := p.file.Size()
	require.NoError(t, err)
	require.Equal(t, size, got)
}

// TestFailedPreallocationIsRepeatedByTheAllocation that needs the space, and that returns the
// error.
func TestFailedPreallocationIsRepeatedByTheAllocation(t *testing.T) {
	p, f := growing(t)
	before := p.Alloc.FileBytes()
	f.begin(t, p)
	f.goOn <- vfs.ErrNoSpace
	for p.inUse()+4*MinPageSize < before {
		newPage(t, p, 1)
	}
	require.Empty(t, f.asked, "once for each size")
	f.goOn <- errBroken
	var err error
	for err == nil {
		_, _, err = p.New(1, AllocPolicy{})
	}
	require.ErrorIs(t, err, errBroken)
	<-f.asked

	// Where there is no room for a step, only what has to be is tried from then on.
	for range 2 {
		f.goOn <- vfs.ErrNoSpace
		f.goOn <- nil
		newPage(t, p, 1)
		require.Greater(t, <-f.asked, <-f.asked)
		require.Nil(t, p.Alloc.Growth.grownTo)
	}
	f.goOn <- nil
	newPage(t, p, 1)
	<-f.asked
	require.Greater(t, p.Alloc.FileBytes(), before+before/16)
	f.begin(t, p)
	f.goOn <- nil
}

// TestFileIsNotTruncatedDuringPreallocation as long as it does, after a checkpoint: commits would
// wait for that.
func TestFileIsNotTruncatedDuringPreallocation(t *testing.T) {
	p, f := growing(t)
	size := f.begin(t, p)
	p.Alloc.space.end /= 2 // as if they had been freed, and given back
	before := p.Alloc.FileBytes()
	require.NoError(t, p.Alloc.TrimFile(false))
	require.Equal(t, before, p.Alloc.FileBytes())
	require.NotNil(t, p.Alloc.Growth.grownTo)
	f.goOn <- nil
	for len(p.Alloc.Growth.grownTo) == 0 {
		runtime.Gosched()
	}
	require.NoError(t, p.Alloc.TrimFile(false))
	require.Less(t, p.Alloc.FileBytes(), size/2+size/8)
}

// TestPreallocationEndsBeforeTheFileIsTruncatedOrClosed: the goroutine would make it longer again,
// or write to a file that is closed.
func TestPreallocationEndsBeforeTheFileIsTruncatedOrClosed(t *testing.T) {
	for name, end := range map[string]func(p *Pager) error{
		"cut":       func(p *Pager) error { return p.Alloc.TrimFile(true) },
		"close":     (*Pager).Close,
		"closeFile": (*Pager).CloseFile,
	} {
		t.Run(name, func(t *testing.T) {
			p, f := growing(t)
			size := f.begin(t, p)
			done := make(chan error)
			go func() { done <- end(p) }()
			select {
			case <-done:
				t.Fatal("it did not wait")
			default:
			}
			f.goOn <- nil
			require.NoError(t, <-done)
			require.Nil(t, p.Alloc.Growth.grownTo)
			if name == "cut" {
				require.Less(t, p.Alloc.FileBytes(), size)
				require.Equal(t, int64(p.Alloc.space.end)*MinPageSize, p.Alloc.FileBytes())
			}
		})
	}
}

// TestNoPreallocationInlineOrWithMaxBytes where runs have to repeat exactly, or room is bounded.
func TestNoPreallocationInlineOrWithMaxBytes(t *testing.T) {
	for name, set := range map[string]func(o *Options){
		"inline":  func(o *Options) { o.Inline = true },
		"bounded": func(o *Options) { o.MaxBytes = 1 << 30 },
	} {
		t.Run(name, func(t *testing.T) {
			p, f := growing(t)
			set(&p.o)
			for p.inUse()+4*MinPageSize < p.Alloc.FileBytes() {
				newPage(t, p, 1)
			}
			require.Nil(t, p.Alloc.Growth.grownTo)
			require.Empty(t, f.asked)
		})
	}
}

// TestGiveSpaceBackKeepsReserveAndDurablePages: all that is behind the slack. Pages of the durable
// state stay, free or not.
func TestGiveSpaceBackKeepsReserveAndDurablePages(t *testing.T) {
	p, f := growing(t)
	f.begin(t, p)
	f.goOn <- nil
	given, err := p.Alloc.GiveSpaceBack()
	require.NoError(t, err)
	require.True(t, given)
	require.Equal(t, p.inUse(), p.Alloc.FileBytes())
	got, err := p.file.Size()
	require.NoError(t, err)
	require.Equal(t, p.inUse(), got)
	given, err = p.Alloc.GiveSpaceBack()
	require.NoError(t, err)
	require.False(t, given, "there is no more")

	f.goOn <- nil
	newPage(t, p, 1)
	require.NotEmpty(t, f.asked, "an allocation grows the file")
	require.Greater(t, p.Alloc.FileBytes(), p.inUse())
	m := p.LastMeta()
	m.Pages = uint64(p.Alloc.FileBytes()) / uint64(p.pageSize)
	p.Prefer(&m)
	given, err = p.Alloc.GiveSpaceBack()
	require.NoError(t, err)
	require.False(t, given)

	for f.begin(t, p); len(f.asked) > 0; {
		<-f.asked
	}
	m.Pages = uint64(p.Alloc.FileBytes()) / uint64(p.pageSize)
	p.Prefer(&m)
	f.goOn <- vfs.ErrNoSpace
	given, err = p.Alloc.GiveSpaceBack()
	require.NoError(t, err)
	require.True(t, given, "what could not be all of a step is free again")
}

// TestHasSpaceIsTrueOnlyForAllocatablePages: whatever it says yes to is had without another step of
// the file, from pages that are free and from behind the end.
func TestHasSpaceIsTrueOnlyForAllocatablePages(t *testing.T) {
	p := memoryBed().newPager(t, MinPageSize)
	refs := []Ref{newPage(t, p, 1)}
	require.True(t, p.Alloc.HasSpace(100, AllocPolicy{}), "small files grow at once")
	for range 200 {
		refs = append(refs, newPage(t, p, 1))
	}
	for _, free := range [][]Ref{refs[:3], refs[20:60], refs[80:90], refs[100:150]} {
		for _, ref := range free {
			require.NoError(t, p.Alloc.Freed(ref.Pgid, 1))
			require.NoError(t, p.Alloc.space.setAvail(ref.Pgid, 1))
		}
	}
	p.Alloc.space.rewind()
	require.EqualValues(t, 90, p.Alloc.space.inCurrentRun(1000, AllocPolicy{}),
		"runs, and no holes while there is little of them")
	f := &stalledGrowth{File: p.file, asked: make(chan int64, 4), goOn: make(chan error, 4)}
	p.file = f
	for range 3 {
		f.goOn <- vfs.ErrNoSpace
	}
	n := uint64(90)
	for p.Alloc.HasSpace(n+1, AllocPolicy{}) && n < 10_000 {
		n++
	}
	require.Len(t, f.asked, 2, "a whole step, and the missing bytes")
	require.Greater(t, n, uint64(90), "some of it is behind the end")
	require.False(t, p.Alloc.HasSpace(n+1, AllocPolicy{}))
	require.Len(t, f.asked, 2)
	for range n {
		newPage(t, p, 1)
	}
	require.Len(t, f.asked, 2)
}

// TestHasSpacePreallocatesInLargeFiles: only the first call waits for growth.
func TestHasSpacePreallocatesInLargeFiles(t *testing.T) {
	p, f := growing(t)
	before := p.Alloc.FileBytes()
	few := uint64(p.Alloc.Growth.step()) / MinPageSize
	f.goOn <- nil
	require.True(t, p.Alloc.HasSpace(few, AllocPolicy{}))
	size := <-f.asked
	require.GreaterOrEqual(t, size, p.inUse()+int64(few)*MinPageSize)
	require.Equal(t, size, p.Alloc.FileBytes())
	require.Greater(t, size, before)
	require.GreaterOrEqual(t, <-f.asked, size+int64(few)*MinPageSize, "and a goroutine makes as much again")
	f.goOn <- nil
	p.Alloc.Growth.EndPreallocation()
	many := 30 * few
	require.False(t, p.Alloc.HasSpace(many, AllocPolicy{}))
	require.GreaterOrEqual(t, <-f.asked, p.inUse()+2*int64(many)*MinPageSize)
	require.False(t, p.Alloc.HasSpace(many, AllocPolicy{}))
	f.goOn <- nil
	for len(p.Alloc.Growth.grownTo) == 0 {
		runtime.Gosched()
	}
	require.True(t, p.Alloc.HasSpace(many, AllocPolicy{}))
	require.False(t, p.Alloc.HasSpace(maxWanted/MinPageSize, AllocPolicy{}))
	require.Empty(t, f.asked, "no growth that may not be needed")
	size = p.Alloc.FileBytes()
	require.NoError(t, p.Alloc.TrimFile(false))
	require.Equal(t, size, p.Alloc.FileBytes(), "the next HasSpace would make it again")
	require.NoError(t, p.Alloc.TrimFile(false))
	require.Less(t, p.Alloc.FileBytes(), size, "no HasSpace since the last one")
}

// TestDeletesFillHolesBeforeTheyExceedMaxBytes: single deletes of random keys took a bounded file to
// twice its bound, because the allocator left short runs of free pages alone as long as the file
// could grow. Free pages of a file beyond its bound are not for puts.
func TestDeletesFillHolesBeforeTheyExceedMaxBytes(t *testing.T) {
	p := memoryBed().newPager(t, MinPageSize)
	var refs []Ref
	for i := range 400 {
		refs = append(refs, newPage(t, p, byte(i)))
	}
	checkpoint(t, p)
	holes := 0
	for i := 0; i < len(refs); i += 8 { // so few that they are no quarter of the file
		require.NoError(t, p.Alloc.Freed(refs[i].Pgid, 1))
		require.NoError(t, p.Release(refs[i].Pgid, 1))
		holes++
	}
	p.Alloc.SetMaxBytes(int64(p.Alloc.Pages()) * MinPageSize)
	end := p.Alloc.Pages()
	for range holes {
		newPageFor(t, p, 1, ForDelete)
	}
	require.Equal(t, end, p.Alloc.Pages())
	newPageFor(t, p, 1, ForDelete) // no hole is left
	require.Equal(t, end+1, p.Alloc.Pages())
	for _, ref := range refs[1:8] {
		require.NoError(t, p.Alloc.Freed(ref.Pgid, 1))
		require.NoError(t, p.Release(ref.Pgid, 1))
	}
	_, _, err := p.New(7, AllocPolicy{})
	require.ErrorIs(t, err, ErrNoSpace)
	require.Negative(t, p.Alloc.Spare())
}
