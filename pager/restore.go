package pager

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

// A Restorer makes a store file of pages that were written elsewhere. It fills a file under a
// temporary name, as Create does, and gives it its name last.
//
//	crash ...                            the directory holds
//	before the rename                    the temporary file, which the next open of the path removes
//	after the rename, before the sync    the temporary file or the whole store
//	of the directory
//	after that                           the whole store
type Restorer struct {
	p    *Pager
	path string
	done bool // the file has its name
}

// NewRestorer creates the temporary file of a store at o.Path, whose pages have that size. It
// returns fs.ErrExist if there is a file at the path.
func NewRestorer(o Options, pageSize int) (*Restorer, error) {
	temp := o.Path + tempSuffix
	f, err := o.FS.Open(temp, vfs.Write|vfs.Create)
	if err != nil {
		return nil, err
	}
	r := &Restorer{path: o.Path}
	o.Path, o.Inline = temp, true
	r.p = newPager(o, f)
	r.p.pageSize = pageSize
	if err := r.lock(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(fmt.Errorf("truncate %s: %w", temp, err), r.Close())
	}
	return r, nil
}

// lock locks the temporary file, and then looks for the store: it may be open under the lock of
// another process that created it just now.
func (r *Restorer) lock() error {
	p := r.p
	if err := p.file.Lock(true); err != nil {
		return fmt.Errorf("lock %s: %w", p.o.Path, err)
	}
	_, err := p.o.FS.Stat(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%s: %w", r.path, fs.ErrExist)
	}
	return errors.Join(err, RemoveTemp(p.o.FS, r.path))
}

// Write writes the pages from id on, and starts their write-back. They replace earlier ones.
func (r *Restorer) Write(id Pgid, b []byte) error {
	off := int64(id) * int64(r.p.pageSize)
	if err := r.p.writeAt(b, off); err != nil {
		return err
	}
	return r.p.startWriteBack(off, int64(len(b)))
}

// Open makes the pages readable as the state of meta page m, except for its free map. The caller
// verifies them.
func (r *Restorer) Open(m *Meta) (*Pager, error) {
	p, size := r.p, int64(m.Pages)*int64(m.PageSize)
	if err := p.file.Truncate(size); err != nil {
		return nil, fmt.Errorf("set size of %s: %w", p.name, err)
	}
	p.Alloc.Growth.size, p.Alloc.Growth.length = size, size
	fresh := *m
	fresh.FreeDir = Ref{}
	if err := p.start(&fresh); err != nil {
		return nil, err
	}
	p.Alloc.startSpace(&fresh).addGroups()
	p.Alloc.space.sparse = false
	return p, nil
}

// Finish writes the free map, in which the pages of used are in use, and a clean meta page. Then it
// makes the file durable, and gives it its name.
func (r *Restorer) Finish(m Meta, used *UsedSet) error {
	p := r.p
	if err := p.Alloc.writeFreeMap(&m, used); err != nil {
		return err
	}
	m.Slot, m.Clean, m.Pages, m.FreeDir = 0, true, p.Alloc.space.end, p.Alloc.freeDir()
	b := EncodeMeta(m)
	if _, err := DecodeMeta(b); err != nil {
		return badfile.Page(p.name, 0, 0, "meta page: %v", err)
	}
	if err := p.writeAt(append(b, make([]byte, p.pageSize)...), 0); err != nil {
		return err
	}
	if err := p.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", p.name, err)
	}
	if err := p.o.FS.Rename(p.o.Path, r.path); err != nil {
		return fmt.Errorf("rename %s: %w", p.o.Path, err)
	}
	r.done = true
	if err := p.o.FS.SyncDir(filepath.Dir(r.path)); err != nil {
		return fmt.Errorf("sync directory of %s: %w", r.path, err)
	}
	return nil
}

// writeFreeMap writes the free map of a file whose pages are free, except for those of used.
func (a *Allocator) writeFreeMap(m *Meta, used *UsedSet) error {
	s := a.space
	for at := uint64(0); at < s.end; {
		id, n := used.Run(Pgid(at), s.end)
		if n == 0 {
			id = Pgid(s.end)
		}
		if err := s.setAvail(Pgid(at), uint64(id)-at); err != nil {
			return err
		}
		if err := s.markUsed(id, n, false); err != nil {
			return err
		}
		at = uint64(id) + n
	}
	s.tail()
	images, _, err := a.captureFreeMap(m.Epoch)
	if err != nil {
		return err
	}
	for id, b := range images {
		SetChecksum(b, a.salt)
		if err := a.writeAt(b, int64(id)*int64(a.pageSize)); err != nil {
			return err
		}
	}
	_, err = a.Growth.truncateTo(int64(s.end) * int64(a.pageSize))
	return err
}

// Close closes the file, and removes it unless it got its name.
func (r *Restorer) Close() error {
	var err error
	if !r.done {
		err = r.p.o.FS.Remove(r.p.o.Path)
	}
	return errors.Join(err, r.p.Close())
}
