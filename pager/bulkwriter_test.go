package pager

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// bulkPage has l give a leaf page with a byte pattern.
func bulkPage(t testing.TB, l *BulkWriter, fill byte) Ref {
	t.Helper()
	id, b, err := l.New(7, AllocPolicy{})
	require.NoError(t, err)
	ref := Ref{id, nextEpoch(l.p)}
	WriteHeader(b, Header{Pgid: id, Epoch: ref.Epoch, Kind: KindLeaf, Count: 1})
	copy(b[HeaderSize:], bytes.Repeat([]byte{fill}, len(b)-HeaderSize))
	return ref
}

// TestBulkPagesAreInTheFileBeforeTheCheckpoint, some in a row and some alone, and never have a
// frame.
func TestBulkPagesAreInTheFileBeforeTheCheckpoint(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		id, _, err := p.New(7, AllocPolicy{})
		require.NoError(t, err)
		require.NoError(t, p.Unused(id, 1), "it keeps its frame for the next allocation")
		l := p.NewBulkWriter()
		var refs []Ref
		for i := 0; !l.Full(); i++ {
			if i == 3 {
				newExtent(t, p, nil)
			}
			refs = append(refs, bulkPage(t, l, byte(i)))
		}
		require.Len(t, refs, stagingBytes/MinPageSize)
		require.Equal(t, id, refs[0].Pgid)
		require.NoError(t, l.Flush())
		last := bulkPage(t, l, 99)
		require.NoError(t, l.Finish())
		refs = append(refs, last)

		look := func(base Epoch) {
			t.Helper()
			for i, ref := range refs {
				page := mustPage(t, p, ref, base)
				want := byte(i)
				if ref == last {
					want = 99
				}
				require.Equal(t, want, filled(page))
				require.NoError(t, verifyPage(p, ref, base))
			}
		}
		for _, ref := range refs {
			require.Equal(t, uint64(7), p.Pool.Owner(ref.Pgid))
			require.NoError(t, p.Commit(ref.Pgid, 1))
		}
		if p.Mapped() {
			read, _ := p.Counters()
			mustPage(t, p, last, p.LastMeta().Epoch)
			again, _ := p.Counters()
			require.Equal(t, read, again, "the pager's own writes need no verification")
		}
		look(p.LastMeta().Epoch)
		require.Zero(t, p.Pool.FrameBytes())
		c := checkpoint(t, p)
		require.Empty(t, c.Dirty)
		require.NoError(t, p.Close())
		p = b.open(t)
		look(c.Epoch)
	})
}

// TestReallocatedBulkPageIsReadAgain: what was known of the page that was given back is not
// taken for the new one.
func TestReallocatedBulkPageIsReadAgain(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		for fill := byte(1); fill < 4; fill++ {
			l := p.NewBulkWriter()
			ref := bulkPage(t, l, fill)
			require.NoError(t, l.Finish())
			require.Equal(t, uint64(3), p.Alloc.Pages())
			page := mustPage(t, p, ref, p.LastMeta().Epoch)
			require.Equal(t, fill, filled(page))
			require.NoError(t, p.Unused(ref.Pgid, 1))
			_, err := p.Reader.Page(Ref{ref.Pgid, ref.Epoch + 1}, p.LastMeta().Epoch)
			requireBadPage(t, err, ref.Pgid)
		}
	})
}

// stalledFile blocks each write and each sync until the test continues it.
type stalledFile struct {
	vfs.File
	writing chan int64 // gets the offset; nil: writes are not held up
	goOn    chan error
}

func (f *stalledFile) WriteAt(b []byte, off int64) (int, error) {
	if f.writing != nil {
		f.writing <- off
		if err := <-f.goOn; err != nil {
			return 0, err
		}
	}
	return f.File.WriteAt(b, off)
}

// requireStalled asserts that fn does not return before goOn runs.
func requireStalled(t *testing.T, fn func() error, goOn func()) {
	t.Helper()
	done := make(chan error)
	go func() { done <- fn() }()
	select {
	case <-done:
		t.Fatal("it did not wait")
	case <-time.After(20 * time.Millisecond): // time for an fn that does not wait
	}
	goOn()
	require.NoError(t, <-done)
}

// TestBulkPagesAreFilledDuringWrites, as many as there is memory for, and those that are
// being written stay as they are.
func TestBulkPagesAreFilledDuringWrites(t *testing.T) {
	p := memoryBed().newPager(t, MinPageSize)
	f := &stalledFile{File: p.file, writing: make(chan int64), goOn: make(chan error)}
	p.file = f
	l := p.NewBulkWriter()
	var refs []Ref
	fill := func(pages byte) int64 {
		first := len(refs)
		for range pages {
			refs = append(refs, bulkPage(t, l, byte(len(refs))))
		}
		return int64(refs[first].Pgid) * MinPageSize
	}
	var at [bulkBuffers + 1]int64
	for i := range bulkBuffers - 1 {
		at[i] = fill(5)
		require.NoError(t, l.Flush())
	}
	at[bulkBuffers-1] = fill(7)
	require.Equal(t, at[0], <-f.writing)
	requireStalled(t, l.Flush, func() { f.goOn <- nil })
	at[bulkBuffers] = fill(3)
	requireStalled(t, l.Finish, func() {
		for _, off := range at[1:] {
			require.Equal(t, off, <-f.writing)
			f.goOn <- nil
		}
	})
	for i, ref := range refs {
		page := mustPage(t, p, ref, p.LastMeta().Epoch)
		require.Equal(t, byte(i), filled(page))
	}
}

// TestDiscardedBulkWriterWritesNoMore: what is under way has ended, and what was only filled is
// forgotten.
func TestDiscardedBulkWriterWritesNoMore(t *testing.T) {
	p := memoryBed().newPager(t, MinPageSize)
	f := &stalledFile{File: p.file, writing: make(chan int64), goOn: make(chan error)}
	p.file = f
	l := p.NewBulkWriter()
	require.NoError(t, l.Discard(), "of nothing")
	bulkPage(t, l, 1)
	require.NoError(t, l.Flush())
	<-f.writing
	bulkPage(t, l, 2)
	requireStalled(t, l.Discard, func() { f.goOn <- nil })
	require.NoError(t, l.Discard(), "a second time")
}

// TestFreedRunOfBulkPagesIsForgottenWhole when it is given back, not its first page alone.
func TestFreedRunOfBulkPagesIsForgottenWhole(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		l := p.NewBulkWriter()
		refs := []Ref{bulkPage(t, l, 1), bulkPage(t, l, 2), bulkPage(t, l, 3)}
		require.NoError(t, l.Finish())
		for _, ref := range refs {
			mustPage(t, p, ref, p.LastMeta().Epoch)
		}
		require.NoError(t, p.Unused(refs[0].Pgid, 3))
		for _, ref := range refs {
			require.Zero(t, p.Pool.Owner(ref.Pgid))
			_, err := p.Reader.Page(Ref{ref.Pgid, ref.Epoch + 1}, p.LastMeta().Epoch)
			requireBadPage(t, err, ref.Pgid)
		}
	})
}

// noWriteBack is a file whose write-back cannot be started.
type noWriteBack struct{ vfs.File }

func (*noWriteBack) StartWriteBack(int64, int64) error { return errBroken }

func TestBulkWriterReturnsItsErrors(t *testing.T) {
	for _, inline := range []bool{true, false} {
		p := memoryBed().newPager(t, MinPageSize)
		p.o.Inline = inline
		p.file = &brokenFile{File: p.file, write: errBroken}
		l := p.NewBulkWriter()
		var err error
		for i := 0; err == nil; i++ {
			require.LessOrEqual(t, i, 2*bulkBuffers, "it goes on and on")
			bulkPage(t, l, 1)
			err = l.Flush()
		}
		require.ErrorIs(t, err, errBroken)
		bulkPage(t, l, 2)
		require.ErrorIs(t, l.Finish(), errBroken)
	}
	t.Run("write_back", func(t *testing.T) {
		p := memoryBed().newPager(t, MinPageSize)
		p.file = &noWriteBack{p.file}
		l := p.NewBulkWriter()
		bulkPage(t, l, 1)
		require.ErrorIs(t, l.Finish(), errBroken)
	})
	t.Run("space", func(t *testing.T) {
		p := memoryBed().newPager(t, MinPageSize)
		p.Alloc.SetMaxBytes(1)
		_, _, err := p.NewBulkWriter().New(7, AllocPolicy{})
		require.ErrorIs(t, err, ErrNoSpace)
	})
}
