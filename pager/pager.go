package pager

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

// Options of a Pager.
type Options struct {
	FS       vfs.FS
	Path     string
	ReadOnly bool
	NoMap    bool  // read into memory even where the file could be mapped
	Cache    int64 // bound on pages kept in memory when the file is not mapped, bytes
	Memory   int64 // bytes that the process may use, page cache included; 0: there is no bound
	MaxBytes int64 // bound on the main file and what lies beside it: see Bound; 0: none
	Inline   bool  // no goroutine makes the file longer: runs repeat exactly
	// SmallGroups is for tests: see smallGroup.
	SmallGroups bool
	// CheckPage proves a tree page when it is first read from the file.
	CheckPage func(b []byte, pageSize int) error
	// ApplyDelta makes the changes of a patch in leaf b: see Pager.StoreDelta.
	ApplyDelta func(b, changes []byte) error
}

// Errors of allocation, of reads, and of CheckIdentity. A read that failed is the machine's: it has
// changed nothing, and may succeed the next time.
var (
	ErrNoSpace  = errors.New("pager: no space")
	ErrRead     = errors.New("pager: a read failed")
	ErrReplaced = errors.New("pager: the file at this path is not the one that was opened")
)

// Pager reads, writes, allocates and frees the pages of one file. Page and Extent may be called by
// anyone at any time between Start and Close; what allocates, frees or captures belongs to the
// holder of the writer lock, which is the caller's; Write runs beside all of these, one at a time.
type Pager struct {
	o        Options
	file     vfs.File
	fileID   vfs.FileID
	name     string // base name, for errors
	pageSize int
	id       [16]byte
	salt     uint64
	mapped   bool

	// the first of views: set by Start, for reads without a look at the others
	first     []byte
	views     atomic.Pointer[[]atomic.Pointer[[]byte]] // of the file, mapChunkBytes each
	viewsMu   sync.Mutex                               // making views
	table     pageTable[slot]
	patchedAt pageTable[Epoch] // of the newest patch of a page; guarded by the writer lock
	undo      UndoLog
	verified  pageSet
	// accessed are those of them, all but extents, that somebody has looked at: see Unmet.
	accessed         pageSet
	verifyGeneration atomic.Uint64 // how often all of both were forgotten: see distrust
	arena            frameArena
	ahead            readAhead
	deltas           deltaArena // of the present epoch; writer lock
	// of the last capture: what was born up to then is in the file, or will be before the next one;
	// writer lock
	captured Epoch
	cache    cache
	end      atomic.Uint64 // page count, for bounds checks of readers

	space            *space
	dirs             []Ref // free directory pages in use: those of level 0, then the root if there is one
	fileSize         int64 // bytes the file is known to have; writer lock
	prealloc         preallocation
	fileSync         fileSync
	lastMeta         *Meta        // the newest durable one; changed by WriteMeta only
	overdraft        bool         // see Overdraft; writer lock
	capturing        bool         // what is reserved is for CaptureState; writer lock
	leafRunPages     leafRunPages // see slack; writer lock
	bound            int64        // on the main file; 0: none; writer lock
	treeTableReserve uint64       // see ReserveTreeTable; writer lock
	spilling         []byte       // buffer of Spill, used again; writer lock

	// extents holds the overflow extents that the replay of a read-only store makes; nothing
	// changes it afterwards.
	extents map[Pgid][]byte

	pagesRead, pagesWritten atomic.Uint64
}

// mapChunkBytes is the size of one view of the file. Address space is plenty: a view may reach far
// past the end of the file, so that growth needs no new one, and none ever moves.
const mapChunkBytes = 4 << 30

// tempSuffix is what a main file is called beside its name while it is being created.
const tempSuffix = ".new"

// Create makes a new store file with one durable state: an empty tree table. m gives id, page size,
// segment size and log start; the rest is set here. If the file exists by the time its turn comes,
// Create does nothing, and created is false.
//
// Crash order: the file is filled and synced under a temporary name, then renamed. The name is not
// durable yet: whoever opens a store that no session has written to syncs the directory first,
// whatever became of the call that made it. A crash before that leaves nothing, or a temporary file
// that the next open removes. Two creators meet at the lock of the temporary file, so neither
// renames over what the other one has opened.
func Create(fsys vfs.FS, path string, m Meta) (created bool, err error) {
	m.Slot, m.Epoch, m.Clean, m.Pages = 0, 1, true, 2
	temp := path + tempSuffix
	f, err := fsys.Open(temp, vfs.Write|vfs.Create)
	if err != nil {
		var named *fs.PathError
		if errors.As(err, &named) {
			err = named.Err // The caller knows no temporary name.
		}
		return false, fmt.Errorf("create %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Lock(true); err != nil {
		return false, fmt.Errorf("lock %s: %w", temp, err)
	}
	if info, err := fsys.Stat(path); err == nil && info.Size > 0 {
		return false, RemoveTemp(fsys, path)
	}
	if err := fill(f, &m); err != nil {
		return false, errors.Join(fmt.Errorf("fill %s: %w", temp, err), fsys.Remove(temp))
	}
	if err := fsys.Rename(temp, path); err != nil {
		return false, errors.Join(fmt.Errorf("rename %s: %w", temp, err), fsys.Remove(temp))
	}
	return true, nil
}

func fill(f vfs.File, m *Meta) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	b := appendMeta(nil, m)
	if err := vfs.WriteFull(f, append(b, make([]byte, m.PageSize)...), 0); err != nil {
		return err
	}
	return f.Sync()
}

// RemoveTemp removes a main file that a crash left half created. Nothing relies on its absence.
func RemoveTemp(fsys vfs.FS, path string) error {
	if err := fsys.Remove(path + tempSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Open opens and locks the file (shared if ReadOnly) and reads its meta pages; one of them may be
// nil. Start must follow, with the one that the caller chose.
func Open(o Options) (*Pager, [2]*Meta, error) {
	flag := vfs.Flag(0)
	if !o.ReadOnly {
		flag = vfs.Write
	}
	f, err := o.FS.Open(o.Path, flag)
	if err != nil {
		return nil, [2]*Meta{}, err
	}
	p := &Pager{o: o, file: f, name: filepath.Base(o.Path), bound: o.MaxBytes}
	metas, err := p.openLocked()
	if err != nil {
		return nil, metas, errors.Join(err, f.Close())
	}
	return p, metas, nil
}

func (p *Pager) openLocked() (metas [2]*Meta, err error) {
	if err := p.file.Lock(!p.o.ReadOnly); err != nil {
		return metas, err
	}
	if p.fileID, err = p.file.ID(); err != nil {
		return metas, err
	}
	if p.fileSize, err = p.file.Size(); err != nil {
		return metas, err
	}
	p.fileSync.grown.Store(true) // perhaps, in a session that a crash ended
	return readMetas(p.file, p.name)
}

// Start makes the state of meta page m the one that pages are read from and space is counted by.
func (p *Pager) Start(m *Meta) error {
	if int64(m.Pages)*int64(m.PageSize) > p.fileSize {
		return badfile.Page(
			p.name,
			m.Pages-1,
			p.fileSize,
			"file has %d bytes, its meta page %d counts %d pages of %d",
			p.fileSize,
			m.Slot,
			m.Pages,
			m.PageSize,
		)
	}
	p.pageSize, p.id, p.salt, p.lastMeta = m.PageSize, m.StoreID, Salt(m.StoreID), m
	p.arena.pageSize, p.arena.scarce = m.PageSize, p.Scarce
	p.undo.init(p)
	p.captured = m.Epoch
	p.cache.bound = max(p.o.Cache/int64(m.PageSize), 64)
	p.space = newSpace(m.PageSize)
	if p.o.SmallGroups {
		p.space.perGroup = smallGroup
	}
	p.space.load = p.loadGroup
	p.space.bad = func(id Pgid, detail string) error { return p.corrupt(id, "%s", detail) }
	p.space.end, p.space.start = m.Pages, m.Pages
	p.end.Store(m.Pages)
	if !p.o.NoMap {
		first, err := p.view(0)
		p.first, p.mapped = first, err == nil
		if err != nil && !errors.Is(err, vfs.ErrNoMap) {
			return fmt.Errorf("map %s: %w", p.o.Path, err)
		}
	}
	return p.loadDirectory(m)
}

// Close unmaps and closes the file. No page may be used afterwards.
func (p *Pager) Close() error {
	var errs []error
	if v := p.views.Load(); v != nil {
		for i := range *v {
			if b := (*v)[i].Load(); b != nil {
				errs = append(errs, p.file.Unmap(*b))
			}
		}
		p.views.Store(nil)
		p.first = nil
	}
	p.arena.close()
	p.EndPreallocation()
	return errors.Join(append(errs, p.file.Close())...)
}

// CloseFile closes the file and leaves the memory: pages that somebody looks at stay as they are,
// until the process ends.
func (p *Pager) CloseFile() error {
	p.EndPreallocation()
	return p.file.Close()
}

// PageSize in bytes.
func (p *Pager) PageSize() int { return p.pageSize }

// Mapped says whether pages are read through a map of the file.
func (p *Pager) Mapped() bool { return p.mapped }

// StoreID is the random id of the store.
func (p *Pager) StoreID() [16]byte { return p.id }

// LastMeta is the newest meta page that was read or written.
func (p *Pager) LastMeta() Meta { return *p.lastMeta }

// FrameBytes is the memory of pages that are not in the file yet, or were not when a snapshot
// began.
func (p *Pager) FrameBytes() int64 { return p.arena.bytes() }

// DirtyBytes is the part of them that the next checkpoint would write.
func (p *Pager) DirtyBytes() int64 { return p.space.dirty.Load() * int64(p.pageSize) }

// Counters since the file was opened: pages read and verified, pages written.
func (p *Pager) Counters() (read, written uint64) { return p.pagesRead.Load(), p.pagesWritten.Load() }

// UsedPages counts the pages that the newest committed state reaches. Writer lock.
func (p *Pager) UsedPages() uint64 { return p.space.nUsed }

// Pages is the page count. Writer lock.
func (p *Pager) Pages() uint64 { return p.space.end }

// CheckIdentity returns ErrReplaced if the path no longer names the open file.
func (p *Pager) CheckIdentity() error {
	info, err := p.o.FS.Stat(p.o.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s is gone", ErrReplaced, p.o.Path)
	case err != nil:
		return fmt.Errorf("stat %s: %w", p.o.Path, err)
	case info.ID != p.fileID:
		return fmt.Errorf("%w: %s", ErrReplaced, p.o.Path)
	}
	return nil
}

func (p *Pager) corrupt(id Pgid, format string, args ...any) error {
	return badfile.Page(p.name, uint64(id), int64(id)*int64(p.pageSize), format, args...)
}

// view returns the i-th view of the file, making it if need be.
func (p *Pager) view(i uint64) ([]byte, error) {
	if v := p.views.Load(); v != nil && i < uint64(len(*v)) {
		if b := (*v)[i].Load(); b != nil {
			return *b, nil
		}
	}
	p.viewsMu.Lock()
	defer p.viewsMu.Unlock()
	v := p.views.Load()
	if v == nil || i >= uint64(len(*v)) {
		bigger := make([]atomic.Pointer[[]byte], max(2*i, 4))
		if v != nil {
			for k := range *v {
				bigger[k].Store((*v)[k].Load())
			}
		}
		p.views.Store(&bigger)
		v = &bigger
	}
	if b := (*v)[i].Load(); b != nil {
		return *b, nil
	}
	b, err := p.file.Map(int64(i)*mapChunkBytes, mapChunkBytes)
	if err != nil {
		return nil, err
	}
	(*v)[i].Store(&b)
	return b, nil
}

// inFile returns n bytes at page id from the map. The caller has checked the page count.
func (p *Pager) inFile(id Pgid, n int) ([]byte, error) {
	off := uint64(id) * uint64(p.pageSize)
	if end := off + uint64(n); end <= uint64(len(p.first)) {
		return p.first[off:end:end], nil
	}
	return p.farInFile(id, off, n)
}

// farInFile is inFile for what is not in the first view: nearly never.
func (p *Pager) farInFile(id Pgid, off uint64, n int) ([]byte, error) {
	i, at := off/mapChunkBytes, off%mapChunkBytes
	if at+uint64(n) > mapChunkBytes {
		return nil, p.corrupt(id, "extent of %d bytes crosses a multiple of %d", n, int64(mapChunkBytes))
	}
	v, err := p.view(i)
	if err != nil {
		return nil, err
	}
	return v[at : at+uint64(n) : at+uint64(n)], nil
}

// Fault is what a fault at an address means, from who read a page through the map: the file has
// been cut short by somebody else, which is damage, or the disk could not read, which is the
// machine's.
func (p *Pager) Fault(addr uintptr) error {
	off, ok := p.mappedAt(addr)
	size, err := p.file.Size()
	if ok && err == nil && off < size {
		return fmt.Errorf(
			"%w: page %d of %s, through the map: %w",
			ErrRead,
			off/int64(p.pageSize),
			p.name,
			vfs.ErrIO,
		)
	}
	if !ok {
		off = -1
	}
	return badfile.At(p.o.Path, off, "file was cut short while it was mapped: fault at %#x", addr)
}

// mappedAt gives the offset in the file that an address in its map stands for.
func (p *Pager) mappedAt(addr uintptr) (off int64, ok bool) {
	v := p.views.Load()
	if v == nil {
		return 0, false
	}
	for i := range *v {
		if b := (*v)[i].Load(); b != nil {
			if at := addr - uintptr(unsafe.Pointer(unsafe.SliceData(*b))); at < uintptr(len(*b)) {
				return int64(i)*mapChunkBytes + int64(at), true
			}
		}
	}
	return 0, false
}

// read fills b from page id on. A file that ends too early is damage; a read error is the
// machine's.
func (p *Pager) read(id Pgid, b []byte) error {
	err := vfs.ReadFull(p.file, b, int64(id)*int64(p.pageSize))
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return p.corrupt(id, "the file ends before it")
	case err != nil:
		return fmt.Errorf("%w: page %d of %s: %w", ErrRead, id, p.name, err)
	}
	p.pagesRead.Add(uint64(len(b) / p.pageSize))
	return nil
}
