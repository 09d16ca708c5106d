package pager

import (
	"bytes"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

// syncFile counts syncs, and fails one of them.
type syncFile struct {
	vfs.File
	whole, data int
	err         error
}

func (f *syncFile) Sync() error {
	f.whole++
	return f.err
}

func (f *syncFile) SyncData() error {
	f.data++
	return f.err
}

// TestExtentsAreSyncedWithTheSizeOfTheFile where it has grown, in this session or perhaps in one
// before, and without it else.
func TestExtentsAreSyncedWithTheSizeOfTheFile(t *testing.T) {
	p := memoryBed().newPager(t, MinPageSize)
	f := &syncFile{File: p.file}
	p.file = f
	require.NoError(t, p.SyncExtents())
	require.Equal(t, []int{1, 0}, []int{f.whole, f.data}, "the first of a session")
	newExtent(t, p, make([]byte, 3*MinPageSize))
	require.NoError(t, p.SyncExtents())
	require.Equal(t, []int{2, 0}, []int{f.whole, f.data}, "the file has grown")
	newExtent(t, p, make([]byte, 3*MinPageSize))
	require.NoError(t, p.SyncExtents())
	require.Equal(t, []int{2, 1}, []int{f.whole, f.data}, "it has not")
}

// TestFailedSyncIsFinal: the system reports a failure once, to any sync.
func TestFailedSyncIsFinal(t *testing.T) {
	for name, fail := range map[string]func(p *Pager) error{
		"extents":    (*Pager).SyncExtents,
		"meta_page":  func(p *Pager) error { return p.WriteMeta(p.LastMeta()) },
		"checkpoint": func(p *Pager) error { return p.Write(&Capture{}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			p := memoryBed().newPager(t, MinPageSize)
			newPage(t, p, 1)
			c, err := p.CaptureState(nextEpoch(p))
			require.NoError(t, err)
			const proved = 7 * 32 * tableChunk
			p.verified.add(proved)
			f := &syncFile{File: p.file, err: errBroken}
			p.file = f
			require.ErrorIs(t, fail(p), errBroken)
			f.err = nil
			require.False(t, p.verified.has(proved), "what was proved before may not be in the file any more")
			syncs := f.whole + f.data
			require.ErrorIs(t, p.SyncExtents(), errBroken)
			require.ErrorIs(t, p.Write(c, nil), errBroken)
			before := make([]byte, 2*MinPageSize)
			require.NoError(t, vfs.ReadFull(f, before, 0))
			m := p.LastMeta()
			m.Epoch++
			require.ErrorIs(t, p.WriteMeta(m), errBroken)
			require.Equal(t, syncs, f.whole+f.data, "no sync is tried again")
			after := make([]byte, 2*MinPageSize)
			require.NoError(t, vfs.ReadFull(f, after, 0))
			require.Equal(t, before, after, "no meta page is written")
		})
	}
}

// TestClaim takes extents out of free space before and behind the end of a state, in any order, and
// nothing else.
func TestClaim(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		used := newPage(t, p, 1)
		freed := newExtent(t, p, make([]byte, 20*MinPageSize))
		last := newPage(t, p, 2)
		checkpoint(t, p)
		require.NoError(t, p.Alloc.Freed(freed.Pgid, 21))
		require.NoError(t, p.Release(freed.Pgid, 21))
		checkpoint(t, p)
		end := Pgid(p.Alloc.Pages())
		require.Greater(t, end, last.Pgid)
		require.NoError(t, p.Close())

		p = b.open(t)
		corrupt := func(id Pgid, n uint64) {
			t.Helper()
			require.ErrorIs(t, p.Alloc.Claim(Ref{id, 9}, n), badfile.ErrCorrupt)
		}
		corrupt(0, 2)
		corrupt(1, 2)
		corrupt(used.Pgid, 2)
		corrupt(last.Pgid, 2)
		corrupt(Pgid(p.Alloc.FileBytes()/MinPageSize), 1)
		corrupt(end, uint64(p.Alloc.FileBytes()))
		corrupt(^Pgid(0), 2)
		require.NoError(t, p.Alloc.Claim(Ref{end + 6, 9}, 2))
		require.NoError(t, p.Alloc.Claim(Ref{end + 1, 9}, 2))
		require.NoError(t, p.Alloc.Claim(Ref{freed.Pgid + 15, 9}, 2))
		corrupt(end+7, 2)
		corrupt(freed.Pgid+16, 2)
		claimed := map[Pgid]bool{
			end + 6:         true,
			end + 7:         true,
			end + 1:         true,
			end + 2:         true,
			freed.Pgid + 15: true,
			freed.Pgid + 16: true,
		}
		for range 40 {
			id, _, err := p.New(7, AllocPolicy{Fit: FitLowest})
			require.NoError(t, err)
			require.False(t, claimed[id], "page %d was handed out", id)
			claimed[id] = true
		}
		require.True(t, claimed[end], "what lies before a claimed extent is free")
		require.NoError(t, p.Commit(end+6, 2))
		require.NoError(t, p.Alloc.Freed(end+6, 2))
		require.NoError(t, p.Release(end+6, 2))
		require.NoError(t, p.Close())
	})
}

// sizeFile knows whether its size is durable.
type sizeFile struct {
	vfs.File
	durable atomic.Bool
}

func (f *sizeFile) Sync() error {
	f.durable.Store(true)
	return nil
}

func (f *sizeFile) SyncData() error { return nil }

// TestConcurrentSyncKeepsTheSize: two syncs of external references, after the file has grown, both
// wait for a third. The first of them makes the size durable: else the extents of the other one's
// record would lie behind the end of the file.
func TestConcurrentSyncKeepsTheSize(t *testing.T) {
	f := new(sizeFile)
	p := &mainFile{file: f, name: "a"}
	p.fileSync.grown.Store(true)
	other := make(chan error)
	require.NoError(t, p.sync("pages", func() error {
		go func() { other <- p.SyncExtents() }()
		time.Sleep(time.Millisecond) // It waits by then, as a rule.
		return nil
	}))
	require.NoError(t, p.SyncExtents())
	require.True(t, f.durable.Load())
	require.NoError(t, <-other)
}

// TestPageVerifiedDuringAFailedSyncIsVerifiedAgain: a reader verifies a page, a sync fails
// meanwhile, so that earlier verifications are void, and then the reader marks the page as
// verified.
func TestPageVerifiedDuringAFailedSyncIsVerifiedAgain(t *testing.T) {
	for name, read := range map[string]func(p *Pager, ref Ref) error{
		"page": func(p *Pager, ref Ref) error {
			_, err := p.Reader.Page(ref, ref.Epoch-1)
			return err
		},
		"unmet": func(p *Pager, ref Ref) error { return p.Reader.ReadCold(ref, make([]byte, MinPageSize)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := bed{fs: vfs.OS, path: filepath.Join(t.TempDir(), "a.ebb")}
			p := b.newPager(t, MinPageSize)
			ref := newPage(t, p, 1)
			require.NoError(t, p.WriteEarly([]Pgid{ref.Pgid}))
			p.FreeFrames([]Pgid{ref.Pgid}) // It is in the page cache, and not durable.
			p.verified.remove(ref.Pgid)
			f := &syncFile{File: p.file, err: errBroken}
			p.file = f
			p.o.CheckPage = func([]byte, int) error {
				p.o.CheckPage = func([]byte, int) error { return nil }
				require.ErrorIs(t, p.SyncExtents(), errBroken)
				return nil
			}
			require.NoError(t, read(p, ref))
			// The page cache has forgotten it.
			require.NoError(t, vfs.WriteFull(f.File, make([]byte, MinPageSize), int64(ref.Pgid)*MinPageSize))
			// Without a map the pager has a copy of its own, which no page cache can forget.
			if !p.Mapped() && name == "page" {
				require.NoError(t, read(p, ref))
				return
			}
			requireBadPage(t, read(p, ref), ref.Pgid)
			_, err := p.Reader.Page(ref, ref.Epoch-1)
			requireBadPage(t, err, ref.Pgid)
		})
	}
}

// TestValueVerifiedDuringAFailedSyncIsVerifiedAgain, with a value so large that the sync fails
// during its verification.
func TestValueVerifiedDuringAFailedSyncIsVerifiedAgain(t *testing.T) {
	beside := false
	for size := 16 << 20; !beside; size *= 2 {
		require.LessOrEqual(t, size, 256<<20)
		value := bytes.Repeat([]byte{7}, size)
		b := bed{fs: vfs.OS, path: filepath.Join(t.TempDir(), "a.ebb")}
		p := b.newPager(t, MinPageSize)
		f := &syncFile{File: p.file, err: errBroken}
		ref := newExtent(t, p, value)
		p.Alloc.Growth.EndPreallocation() // its goroutine reads p.file
		p.file = f
		read := make(chan error, 1)
		go func() {
			_, err := p.Reader.Extent(ref, len(value))
			read <- err
		}()
		for n, _ := p.Counters(); n == 0; n, _ = p.Counters() { // until it has begun
			time.Sleep(10 * time.Microsecond)
		}
		require.ErrorIs(t, p.SyncExtents(), errBroken)
		beside = len(read) == 0
		require.NoError(t, <-read)
		require.NoError(t, vfs.WriteFull(f.File, make([]byte, MinPageSize), int64(ref.Pgid+5)*MinPageSize))
		if beside {
			_, err := p.Reader.Extent(ref, len(value))
			requireBadPage(t, err, ref.Pgid)
		}
	}
}

// TestFrameFreedAfterAFailedSyncIsNotTrusted: a checkpoint has written a page, a sync of the log's
// values fails, and then the page's frame is freed.
func TestFrameFreedAfterAFailedSyncIsNotTrusted(t *testing.T) {
	for name, drop := range map[string]func(p *Pager, ref Ref){
		"taken":    func(p *Pager, ref Ref) { p.Pool.ReturnFrames(p.Pool.TakeFrames([]Pgid{ref.Pgid})) },
		"released": func(p *Pager, ref Ref) { p.Pool.ReleaseFrame(ref.Pgid, p.Pool.Owner(ref.Pgid)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := bed{fs: vfs.OS, path: filepath.Join(t.TempDir(), "a.ebb")}
			p := b.newPager(t, MinPageSize)
			ref := newPage(t, p, 1)
			id, frame := ref.Pgid, make([]byte, MinPageSize)
			got, err := p.Frame(ref, p.Reader.View(ref.Epoch-1, Newest))
			require.NoError(t, err)
			copy(frame, got)
			SetChecksum(frame, p.salt)
			require.NoError(t, vfs.WriteFull(p.file, frame, int64(id)*MinPageSize)) // as a checkpoint does
			f := &syncFile{File: p.file, err: errBroken}
			p.file = f
			require.ErrorIs(t, p.SyncExtents(), errBroken)
			drop(p, ref)
			require.False(t, p.Pool.InFrame(id))
			// The page cache has forgotten it.
			require.NoError(t, vfs.WriteFull(f.File, make([]byte, MinPageSize), int64(id)*MinPageSize))
			_, err = p.Reader.Page(ref, ref.Epoch)
			requireBadPage(t, err, id)
		})
	}
}
