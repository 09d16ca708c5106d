package pager

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

// mainFile reads, maps, writes and syncs the file, and knows which of its pages are verified. The
// other parts of a Pager refer to it. Any goroutine may use it.
type mainFile struct {
	// Set by Open and Start, then read-only.
	o        Options
	file     vfs.File
	fileID   vfs.FileID
	name     string // base name, for errors
	pageSize int
	id       [16]byte
	salt     uint64
	mapped   bool
	first    []byte // first of views: reads of it skip the lookup

	views   pageTable[atomic.Pointer[[]byte]] // by number: views of the file, mapChunkBytes each
	viewsMu sync.Mutex                        // creation of views

	verified pageSet
	// accessed are the verified pages, except extents, that have been read: see Cold.
	accessed         pageSet
	verifyGeneration atomic.Uint64 // number of calls of invalidateVerified

	end      atomic.Uint64 // page count, for bounds checks of readers
	fileSync fileSync

	lastMeta *Meta // newest durable meta page; set by Start, WriteMeta and Prefer

	pagesRead, pagesWritten atomic.Uint64
}

// PageSize is the size of a page in bytes.
func (f *mainFile) PageSize() int { return f.pageSize }

// Mapped reports whether pages are read through a map of the file.
func (f *mainFile) Mapped() bool { return f.mapped }

// StoreID is the random id of the store.
func (f *mainFile) StoreID() [16]byte { return f.id }

// Counters returns the numbers of pages read and written since the file was opened.
func (f *mainFile) Counters() (read, written uint64) {
	return f.pagesRead.Load(), f.pagesWritten.Load()
}

// CheckIdentity returns ErrReplaced if the path no longer names the open file.
func (f *mainFile) CheckIdentity() error {
	info, err := f.o.FS.Stat(f.o.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s is gone", ErrReplaced, f.o.Path)
	case err != nil:
		return fmt.Errorf("stat %s: %w", f.o.Path, err)
	case info.ID != f.fileID:
		return fmt.Errorf("%w: %s", ErrReplaced, f.o.Path)
	}
	return nil
}

func (f *mainFile) corrupt(id Pgid, format string, args ...any) error {
	return badfile.Page(f.name, uint64(id), int64(id)*int64(f.pageSize), format, args...)
}

// read fills b from page id on. A file that ends too early is corrupt; a read error is the
// machine's.
func (f *mainFile) read(id Pgid, b []byte) error {
	err := vfs.ReadFull(f.file, b, int64(id)*int64(f.pageSize))
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return f.corrupt(id, "the file ends before it")
	case err != nil:
		return f.readError(id, err)
	}
	f.pagesRead.Add(uint64(len(b) / f.pageSize))
	return nil
}

// readError is the error of a read at page id. A reader that Abandon left behind may come after the
// file has been closed: that is no fault of the disk, and concerns no page.
func (f *mainFile) readError(id Pgid, err error) error {
	kind := ErrRead
	if errors.Is(err, fs.ErrClosed) {
		kind = ErrClosed
	}
	return fmt.Errorf("%w: page %d of %s: %w", kind, id, f.name, err)
}

func (f *mainFile) writeAt(b []byte, off int64) error {
	if err := vfs.WriteFull(f.file, b, off); err != nil {
		return fmt.Errorf("write %s at %d: %w", f.name, off, err)
	}
	return nil
}

func (f *mainFile) inBounds(ref Ref, n uint64) error {
	if end := f.end.Load(); uint64(ref.Pgid) < 2 || uint64(ref.Pgid) >= end || end-uint64(ref.Pgid) < n {
		return f.outOfBounds(ref, n, end)
	}
	return nil
}

func (f *mainFile) outOfBounds(ref Ref, n, end uint64) error {
	return f.corrupt(ref.Pgid, "reference %v to %d pages in a file of %d pages", ref, n, end)
}

func (f *mainFile) otherEpoch(ref Ref, b []byte) error {
	return f.corrupt(ref.Pgid, "holds epoch %d where %d belongs: a lost write", epochOf(b), ref.Epoch)
}
