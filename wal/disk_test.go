package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// disk is a file system in memory that offers direct writes, fails on demand, and watches over the
// rules about which write may touch what. A crash keeps what was synced and any of the sectors that
// were not; names are always kept.
type disk struct {
	vfs.FS
	t     testing.TB
	block int // of direct writes; 0: none

	mu    sync.Mutex
	files map[vfs.FileID]*diskState
	// before each change; keep: bytes of a write that still happen
	hook  func(op, name string, n int) (keep int, err error)
	ops   []string
	short int // bytes of the next write that is started, instead of all; 0: all

	// what a direct write does when it is written and not durable yet, without mu; set before any
	landing func(off int64)
}

// diskState tells of one file's sectors.
type diskState struct {
	durable []byte
	dirty   map[int]bool // sectors written and not synced
	full    map[int]bool // sectors that hold durable records
	cached  map[int]bool // pages written through the cache in this life
	direct  map[int]bool // pages written directly in this life
	begun   int64        // the disk has begun with what is before it
}

const sector = 512

func newDisk(t testing.TB, block int) *disk {
	return &disk{FS: vfs.NewMemory(), t: t, block: block, files: map[vfs.FileID]*diskState{}}
}

func (d *disk) do(op, name string, n int) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops = append(d.ops, op+" "+name)
	if d.hook != nil {
		return d.hook(op, name, n)
	}
	return n, nil
}

func (d *disk) Open(name string, flag vfs.Flag) (vfs.File, error) {
	if flag&vfs.Direct != 0 && d.block == 0 {
		return nil, vfs.ErrNoDirect
	}
	if flag&vfs.Create != 0 {
		if _, err := d.do("create", name, 0); err != nil {
			return nil, err
		}
	}
	d.mu.Lock() // A crash sees names as they are before or after.
	defer d.mu.Unlock()
	f, err := d.FS.Open(name, flag&^vfs.Direct)
	if err != nil {
		return nil, err
	}
	id, err := f.ID()
	require.NoError(d.t, err)
	if d.files[id] == nil {
		d.files[id] = &diskState{dirty: map[int]bool{}}
		d.files[id].live()
	}
	return &diskFile{File: f, d: d, s: d.files[id], name: name, isDirect: flag&vfs.Direct != 0}, nil
}

func (d *disk) Rename(a, b string) error {
	if _, err := d.do("rename", a, 0); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.FS.Rename(a, b)
}

func (d *disk) Remove(name string) error {
	if _, err := d.do("remove", name, 0); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.FS.Remove(name)
}

func (d *disk) SyncDir(name string) error {
	_, err := d.do("syncdir", name, 0)
	return err
}

func (s *diskState) live() {
	s.full, s.cached, s.direct, s.begun = map[int]bool{}, map[int]bool{}, map[int]bool{}, 0
}

type diskFile struct {
	vfs.File
	d        *disk
	s        *diskState
	name     string
	isDirect bool
}

func (f *diskFile) BlockSize() int {
	if f.isDirect {
		return f.d.block
	}
	return 4096
}

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	op := "write"
	if f.isDirect {
		op = "direct"
	}
	keep, failure := f.d.do(op, f.name, len(p))
	n, err := f.File.WriteAt(p[:keep], off)
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	s := f.s
	for at := int(off) / sector; at*sector < int(off)+n; at++ {
		s.dirty[at] = true
	}
	if failure != nil || err != nil {
		return n, errors.Join(failure, err)
	}
	if off == 0 {
		s.live()
	}
	lo, hi := int(off), int(off)+len(p)
	if f.isDirect {
		assert.Zero(f.d.t, lo%f.d.block, "direct write is aligned")
		assert.Zero(f.d.t, hi%f.d.block, "direct write is of whole blocks")
	} else {
		lo, hi = lo/pageUnit*pageUnit, alignUp(hi, pageUnit)
	}
	if off >= firstRecord && !bytes.Equal(p, make([]byte, len(p))) { // zeros are a new segment's
		assert.GreaterOrEqual(
			f.d.t,
			off/pageUnit*pageUnit,
			s.begun,
			"the disk has begun with a page that is written again",
		)
		for at := lo / sector; at < hi/sector; at++ {
			assert.False(
				f.d.t,
				s.full[at],
				"a write of [%d,%d) covers sector %d, which holds durable records",
				off,
				hi,
				at,
			)
		}
		for page := lo / pageUnit; page*pageUnit < hi; page++ {
			mine, other := s.cached, s.direct
			if f.isDirect {
				mine, other = other, mine
			}
			assert.False(f.d.t, other[page], "page %d is written by both kinds", page)
			mine[page] = true
		}
	}
	if f.isDirect {
		if f.d.landing != nil {
			f.d.mu.Unlock()
			f.d.landing(off)
			f.d.mu.Lock()
		}
		f.d.persist(f, lo/sector, hi/sector)
	}
	return len(p), nil
}

// WriteMapped proves that what is copied lies in pages that this life of the segment has written
// through the cache, and where they are zero.
func (f *diskFile) WriteMapped(p []byte, off int64) error {
	assert.False(f.d.t, f.isDirect)
	keep, failure := f.d.do("copy", f.name, len(p))
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	was := make([]byte, len(p))
	require.NoError(f.d.t, vfs.ReadFull(f.File, was, off))
	assert.Equal(f.d.t, make([]byte, len(p)), was, "a copy to %d", off)
	page := off / pageUnit
	assert.Equal(f.d.t, page, (off+int64(len(p))-1)/pageUnit, "a copy into two pages")
	assert.GreaterOrEqual(f.d.t, page*pageUnit, f.s.begun,
		"writeback of a page that is copied to has started")
	assert.True(f.d.t, f.s.cached[int(page)], "page %d is read from the disk to be copied to", page)
	for at := int(page) * (pageUnit / sector); at < int(page+1)*(pageUnit/sector); at++ {
		assert.False(f.d.t, f.s.full[at], "a copy into page %d, which has durable records", page)
	}
	require.NoError(f.d.t, vfs.WriteFull(f.File, p[:keep], off))
	for at := int(off) / sector; at*sector < int(off)+keep; at++ {
		f.s.dirty[at] = true
	}
	return failure
}

// StartWriteAt writes beside the caller. The first write is a short one if the disk is meant to do
// such.
func (f *diskFile) StartWriteAt(p []byte, off int64) vfs.Pending {
	if n := f.d.short; n > 0 {
		f.d.short = 0
		return vfs.WriteNow(f, p[:n], off)
	}
	done := make(chan vfs.Pending, 1)
	go func() { done <- vfs.WriteNow(f, p, off) }()
	return diskPending(done)
}

type diskPending chan vfs.Pending

func (w diskPending) Wait() (int, error) { return (<-w).Wait() }

// persist makes sectors durable. d.mu is held.
func (d *disk) persist(f *diskFile, lo, hi int) {
	size, err := f.Size()
	require.NoError(d.t, err)
	now := make([]byte, size)
	_, err = readUpTo(f.File, now)
	require.NoError(d.t, err)
	was := make([]byte, size)
	copy(was, f.s.durable)
	for at := range f.s.dirty {
		if at < lo || at >= hi {
			continue
		}
		delete(f.s.dirty, at)
		if at*sector < len(now) {
			b := now[at*sector : min((at+1)*sector, len(now))]
			copy(was[at*sector:], b)
			if at*sector >= firstRecord && !bytes.Equal(b, make([]byte, len(b))) {
				f.s.full[at] = true
			}
		}
	}
	f.s.durable = was
}

func (f *diskFile) sync(op string) error {
	if _, err := f.d.do(op, f.name, 0); err != nil {
		return err
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.persist(f, 0, 1<<30)
	return nil
}

func (f *diskFile) Sync() error { return f.sync("sync") }

func (f *diskFile) SyncData() error { return f.sync("syncdata") }

// WriteBack and StartWriteBack make nothing durable that a test could lean on.
func (f *diskFile) WriteBack(off, n int64) error {
	_, err := f.d.do("writeback", f.name, int(n))
	return err
}

func (f *diskFile) StartWriteBack(off, n int64) error {
	assert.Zero(f.d.t, off%pageUnit)
	assert.Zero(f.d.t, n%pageUnit)
	_, err := f.d.do(fmt.Sprintf("begin %d", off), f.name, int(n))
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.s.begun = off + n
	return err
}

func (f *diskFile) Truncate(size int64) error {
	if _, err := f.d.do("truncate", f.name, 0); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *diskFile) Grow(size int64) error {
	if _, err := f.d.do("grow", f.name, int(size)); err != nil {
		return err
	}
	return f.File.Grow(size)
}

// crash gives the file system after a power cut: of the sectors that were not synced, those that
// keep chooses.
func (d *disk) crash(keep func() bool) *disk {
	after := newDisk(d.t, d.block)
	d.mu.Lock()
	defer d.mu.Unlock()
	names, err := d.FS.List("dir")
	if errors.Is(err, fs.ErrNotExist) {
		return after
	}
	require.NoError(d.t, err)
	for _, base := range names {
		f, err := d.FS.Open("dir/"+base, 0)
		require.NoError(d.t, err)
		id, err := f.ID()
		require.NoError(d.t, err)
		size, err := f.Size()
		require.NoError(d.t, err)
		now := make([]byte, size)
		_, err = readUpTo(f, now)
		require.NoError(d.t, err)
		s := d.files[id]
		b := make([]byte, size)
		copy(b, s.durable)
		for at := 0; at*sector < len(b); at++ {
			if s.dirty[at] && keep() {
				copy(b[at*sector:], now[at*sector:min((at+1)*sector, len(now))])
			}
		}
		out, err := after.FS.Open("dir/"+base, vfs.Write|vfs.Create)
		require.NoError(d.t, err)
		require.NoError(d.t, vfs.WriteFull(out, b, 0))
		require.NoError(d.t, errors.Join(f.Close(), out.Close()))
	}
	return after
}

// count says how many operations so far begin with prefix.
func (d *disk) count(prefix string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, op := range d.ops {
		if strings.HasPrefix(op, prefix) {
			n++
		}
	}
	return n
}
