package pager

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

// storeID is the id of every store of these tests, so that their bytes are always the same.
var storeID = [16]byte{0xe0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// bed is a place where a store lies, and how its pages are read.
type bed struct {
	fs    vfs.FS
	path  string
	noMap bool
	cache int64
}

func mustPage(t testing.TB, p *Pager, ref Ref, base Epoch) []byte {
	t.Helper()
	b, err := p.Reader.Page(ref, base)
	require.NoError(t, err)
	return b
}

// forBeds runs a test on a mapped file, on one that is read page by page, and in memory.
func forBeds(t *testing.T, fn func(t *testing.T, b bed)) {
	t.Run(
		"mapped_file",
		func(t *testing.T) { fn(t, bed{fs: vfs.OS, path: filepath.Join(t.TempDir(), "a.ebb")}) },
	)
	t.Run("file_without_map", func(t *testing.T) {
		fn(t, bed{fs: vfs.OS, path: filepath.Join(t.TempDir(), "a.ebb"), noMap: true})
	})
	t.Run("memory", func(t *testing.T) { fn(t, memoryBed()) })
}

func memoryBed() bed { return bed{fs: vfs.NewMemory(), path: "/a.ebb"} }

func (b bed) create(t testing.TB, pageSize int) {
	t.Helper()
	created, err := Create(
		b.fs,
		b.path,
		Meta{PageSize: pageSize, SegmentSize: 64 << 10, StoreID: storeID, NextTree: 4},
	)
	require.NoError(t, err)
	require.True(t, created)
}

// open starts from the newest meta page.
func (b bed) open(t testing.TB) *Pager {
	t.Helper()
	p, err := b.tryOpen()
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func (b bed) tryOpen() (*Pager, error) {
	p, metas, err := Open(Options{FS: b.fs, Path: b.path, NoMap: b.noMap, Cache: b.cache})
	if err != nil {
		return nil, err
	}
	m := metas[0]
	if m == nil || metas[1] != nil && metas[1].Epoch > m.Epoch {
		m = metas[1]
	}
	if err := p.Start(m); err != nil {
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

// newPager makes a store and opens it.
func (b bed) newPager(t testing.TB, pageSize int) *Pager {
	t.Helper()
	b.create(t, pageSize)
	return b.open(t)
}

// newPage makes a committed leaf page with a byte pattern, which the next checkpoint writes.
func newPage(t testing.TB, p *Pager, fill byte) Ref {
	t.Helper()
	return newPageFor(t, p, fill, ForPut)
}

func newPageFor(t testing.TB, p *Pager, fill byte, purpose Purpose) Ref {
	t.Helper()
	id, b, err := p.New(7, AllocPolicy{Purpose: purpose})
	require.NoError(t, err)
	clear(b)
	ref := Ref{id, nextEpoch(p)}
	WriteHeader(b, Header{Pgid: id, Epoch: ref.Epoch, Kind: KindLeaf, Count: 1})
	for i := HeaderSize; i < len(b); i++ {
		b[i] = fill
	}
	require.NoError(t, p.Commit(id, 1))
	return ref
}

// newExtent makes a committed overflow extent.
func newExtent(t testing.TB, p *Pager, value []byte) Ref {
	t.Helper()
	ref, n, err := p.NewExtent(nextEpoch(p), 7, value, false, AllocPolicy{})
	require.NoError(t, err)
	require.Equal(t, ExtentPages(len(value), p.PageSize()), n)
	require.NoError(t, p.Commit(ref.Pgid, n))
	return ref
}

// nextEpoch is the epoch of pages that the next checkpoint will write.
func nextEpoch(p *Pager) Epoch { return p.lastMeta.Epoch + 1 }

// checkpoint makes the present state durable, and lets go of frames and of what the state before
// had used of the map.
func checkpoint(t testing.TB, p *Pager) *Capture {
	t.Helper()
	c := makeDurable(t, p)
	for _, id := range c.Dirty {
		p.Pool.ReleaseFrame(id, p.Pool.Owner(id))
	}
	for _, ref := range c.Freed {
		require.NoError(t, p.Release(ref.Pgid, 1))
	}
	return c
}

// makeDurable is checkpoint as far as older snapshots let it: pages keep their frames.
func makeDurable(t testing.TB, p *Pager) *Capture {
	t.Helper()
	c, err := p.CaptureState(nextEpoch(p))
	require.NoError(t, err)
	require.NoError(t, p.Write(c, nil))
	m := p.LastMeta()
	m.Epoch, m.Pages, m.FreeDir = c.Epoch, c.Pages, c.FreeDir
	require.NoError(t, p.WriteMeta(m))
	return c
}

// rewrite changes the bytes of the file from page id on, n pages, and seals them again if sealed.
func (b bed) rewrite(t testing.TB, pageSize int, id Pgid, n int, sealed bool, change func(b []byte)) {
	t.Helper()
	f, err := b.fs.Open(b.path, vfs.Write)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	buf := make([]byte, n*pageSize)
	require.NoError(t, vfs.ReadFull(f, buf, int64(id)*int64(pageSize)))
	change(buf)
	if sealed {
		SetChecksum(buf, Salt(storeID))
	}
	require.NoError(t, vfs.WriteFull(f, buf, int64(id)*int64(pageSize)))
}

// requireBadPage says that err is damage, on that page.
func requireBadPage(t testing.TB, err error, id Pgid) {
	t.Helper()
	var bad *badfile.Error
	require.ErrorAs(t, err, &bad)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.True(t, bad.HasPgid)
	require.Equal(t, uint64(id), bad.Pgid, "%v", err)
}

// sparseFS keeps the files of the file system below as sets of blocks, so that a file may be far
// larger than memory. Its files cannot be mapped.
type sparseFS struct {
	vfs.FS
	mu    sync.Mutex
	files map[string]*sparseData
}

type sparseData struct {
	mu     sync.Mutex
	size   int64
	blocks map[int64][]byte
}

const sparseBlock = 4096

func (s *sparseFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	f, err := s.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files == nil {
		s.files = map[string]*sparseData{}
	}
	if s.files[name] == nil {
		s.files[name] = &sparseData{blocks: map[int64][]byte{}}
	}
	return &sparseFile{f, s.files[name]}, nil
}

func (s *sparseFS) Rename(from, to string) error {
	s.mu.Lock()
	s.files[to] = s.files[from]
	delete(s.files, from)
	s.mu.Unlock()
	return s.FS.Rename(from, to)
}

type sparseFile struct {
	vfs.File
	d *sparseData
}

func (f *sparseFile) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.d.size, nil
}

func (f *sparseFile) Grow(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.size = max(f.d.size, size)
	return nil
}

func (f *sparseFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.size = size
	for no := range f.d.blocks {
		if no*sparseBlock >= size {
			delete(f.d.blocks, no)
		}
	}
	return nil
}

func (f *sparseFile) ReadAt(b []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if off+int64(len(b)) > f.d.size {
		return 0, vfs.ErrInvalidPath // these tests never read past the end
	}
	for n := 0; n < len(b); n += sparseBlock {
		if blk := f.d.blocks[(off+int64(n))/sparseBlock]; blk != nil {
			copy(b[n:], blk)
		} else {
			clear(b[n:min(n+sparseBlock, len(b))])
		}
	}
	return len(b), nil
}

func (f *sparseFile) WriteAt(b []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.size = max(f.d.size, off+int64(len(b)))
	for n := 0; n < len(b); n += sparseBlock {
		f.d.blocks[(off+int64(n))/sparseBlock] = append([]byte(nil), b[n:n+sparseBlock]...)
	}
	return len(b), nil
}
