package pager

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

// Options are the options of a Pager.
type Options struct {
	FS       vfs.FS
	Path     string
	ReadOnly bool
	NoMap    bool  // read into memory even if the file can be mapped
	Cache    int64 // bound on pages kept in memory when the file is not mapped, bytes
	Memory   int64 // bound on the memory of the process, page cache included, bytes; 0: none
	MaxBytes int64 // bound on the main file and its log: see SetMaxBytes; 0: none
	Inline   bool  // no goroutine preallocates: runs repeat exactly
	// SmallGroups is for tests: see smallGroup.
	SmallGroups bool
	// CheckPage verifies a tree page when it is first read from the file.
	CheckPage func(b []byte, pageSize int) error
	// ApplyDelta applies the changes of a delta to leaf b: see Pager.StoreDelta.
	ApplyDelta func(b, changes []byte) error
}

// Errors of allocation, of reads, and of CheckIdentity. A failed read is the machine's error: it
// has no effect and may succeed when repeated.
var (
	ErrNoSpace  = errors.New("pager: no space")
	ErrRead     = errors.New("pager: a read failed")
	ErrClosed   = errors.New("pager: the file is closed")
	ErrReplaced = errors.New("pager: the file at this path is not the one that was opened")
)

// Pager is one open file. Its parts own their fields and say what guards them; its own functions
// concern several parts, and need the writer lock, which is the caller's.
type Pager struct {
	mainFile        // any goroutine
	flusher         // Write runs beside the holder of the writer lock, one at a time
	Reader   Reader // any goroutine, between Start and Close
	Pool     BufferPool
	Alloc    Allocator
	Undo     UndoLog // has its own lock; one transaction writes it at a time
}

// tempSuffix is the suffix of the name of a main file during Create.
const tempSuffix = ".new"

// Create creates a store file with one durable state: an empty tree table. m gives id, page size,
// segment size and log start; Create sets the other fields. If the file exists when Create holds
// the lock, Create does nothing, and created is false.
//
// Crash order: the file is filled and synced under a temporary name, then renamed. The name is not
// durable yet: each open of a store that no session has written to syncs the directory first, even
// if Create has failed. A crash before that leaves no file, or a temporary file that the next open
// removes. Two concurrent calls are serialized by the lock of the temporary file, so neither
// renames over a file that the other one has opened.
func Create(fsys vfs.FS, path string, m Meta) (created bool, err error) {
	m.Slot, m.Epoch, m.Clean, m.Pages = 0, 1, true, 2
	temp := path + tempSuffix
	f, err := fsys.Open(temp, vfs.Write|vfs.Create)
	if err != nil {
		var named *fs.PathError
		if errors.As(err, &named) {
			err = named.Err // without the temporary name, which the caller does not know
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

// RemoveTemp removes a main file that a crash left half created. Its removal need not be durable.
func RemoveTemp(fsys vfs.FS, path string) error {
	if err := fsys.Remove(path + tempSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Open opens and locks the file (shared if ReadOnly) and reads its meta pages; one of them may be
// nil. The caller chooses one and calls Start.
func Open(o Options) (*Pager, [2]*Meta, error) {
	flag := vfs.Flag(0)
	if !o.ReadOnly {
		flag = vfs.Write
	}
	f, err := o.FS.Open(o.Path, flag)
	if err != nil {
		return nil, [2]*Meta{}, err
	}
	p := newPager(o, f)
	metas, err := p.openLocked()
	if err != nil {
		return nil, metas, errors.Join(err, f.Close())
	}
	return p, metas, nil
}

func newPager(o Options, f vfs.File) *Pager {
	p := &Pager{mainFile: mainFile{o: o, file: f, name: filepath.Base(o.Path)}}
	p.flusher = flusher{mainFile: &p.mainFile, pool: &p.Pool}
	p.Pool.mainFile, p.Alloc.mainFile, p.Alloc.Growth.mainFile = &p.mainFile, &p.mainFile, &p.mainFile
	p.Alloc.pool, p.Alloc.Growth.bound, p.Alloc.Holes.Allocator = &p.Pool, o.MaxBytes, &p.Alloc
	p.Reader.mainFile, p.Reader.pool, p.Reader.undo = &p.mainFile, &p.Pool, &p.Undo
	return p
}

func (p *Pager) openLocked() (metas [2]*Meta, err error) {
	if err := p.file.Lock(!p.o.ReadOnly); err != nil {
		return metas, err
	}
	if p.fileID, err = p.file.ID(); err != nil {
		return metas, err
	}
	if p.Alloc.Growth.length, err = p.file.Size(); err != nil {
		return metas, err
	}
	p.Alloc.Growth.size = p.Alloc.Growth.length
	p.fileSync.grown.Store(true) // perhaps, in a session that crashed
	return readMetas(p.file, p.name)
}

// Start makes the state of meta page m the current one, for reads and for space accounting.
func (p *Pager) Start(m *Meta) error {
	if int64(m.Pages)*int64(m.PageSize) > p.Alloc.Growth.length {
		const detail = "file has %d bytes, its meta page %d counts %d pages of %d"
		size := p.Alloc.Growth.length
		return badfile.Page(p.name, m.Pages-1, size, detail, size, m.Slot, m.Pages, m.PageSize)
	}
	if err := p.start(m); err != nil {
		return err
	}
	return p.Alloc.loadDirectory(m)
}

// start is Start without the free map.
func (p *Pager) start(m *Meta) error {
	p.pageSize, p.id, p.salt, p.lastMeta = m.PageSize, m.StoreID, Salt(m.StoreID), m
	p.Pool.arena.pageSize, p.Pool.arena.scarce = m.PageSize, p.Scarce
	p.Pool.table.offHeap, p.Pool.deltaEpochs.offHeap = true, true
	p.Undo.init(&p.Pool)
	p.Pool.captured = m.Epoch
	p.Reader.cache.bound = max(p.o.Cache/int64(m.PageSize), 64)
	p.end.Store(m.Pages)
	if !p.o.NoMap {
		first, err := p.view(0)
		p.first, p.mapped = first, err == nil
		if err != nil && !errors.Is(err, vfs.ErrNoMap) {
			return fmt.Errorf("map %s: %w", p.o.Path, err)
		}
	}
	return nil
}

// Close unmaps and closes the file. No page may be used afterwards.
func (p *Pager) Close() error {
	var errs []error
	for _, v := range p.views.all {
		if b := v.Swap(nil); b != nil {
			errs = append(errs, p.file.Unmap(*b))
		}
	}
	p.first = nil
	p.Pool.arena.close()
	p.Pool.table.close()
	p.Pool.deltaEpochs.close()
	return errors.Join(append(errs, p.CloseFile())...)
}

// CloseFile closes the file and keeps the memory: pages in use stay valid until the process ends.
func (p *Pager) CloseFile() error {
	p.Alloc.Growth.EndPreallocation()
	return p.file.Close()
}

// LastMeta is the newest meta page that was read or written.
func (f *mainFile) LastMeta() Meta { return *f.lastMeta }

// Prefer makes m the newest durable meta page: the next WriteMeta overwrites the other one.
func (f *mainFile) Prefer(m *Meta) { f.lastMeta = m }
