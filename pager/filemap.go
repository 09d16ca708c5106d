package pager

import (
	"fmt"
	"unsafe"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

// mapChunkBytes is the size of one view of the file. Address space is plentiful: a view may extend
// far past the end of the file, so that growth needs no new view and no view ever moves.
const mapChunkBytes = 4 << 30

// view returns the i-th view of the file, and creates it if necessary.
func (f *mainFile) view(i uint64) ([]byte, error) {
	v := f.views.slot(Pgid(i))
	if b := v.Load(); b != nil {
		return *b, nil
	}
	f.viewsMu.Lock()
	defer f.viewsMu.Unlock()
	if b := v.Load(); b != nil {
		return *b, nil
	}
	b, err := f.file.Map(int64(i)*mapChunkBytes, mapChunkBytes)
	if err != nil {
		return nil, err
	}
	v.Store(&b)
	return b, nil
}

// inFile returns n bytes at page id from the map. The caller has checked the page count.
func (f *mainFile) inFile(id Pgid, n int) ([]byte, error) {
	off := uint64(id) * uint64(f.pageSize)
	if end := off + uint64(n); end <= uint64(len(f.first)) {
		return f.first[off:end:end], nil
	}
	return f.farInFile(id, off, n)
}

// farInFile is inFile for pages outside the first view, which are rare.
func (f *mainFile) farInFile(id Pgid, off uint64, n int) ([]byte, error) {
	i, at := off/mapChunkBytes, off%mapChunkBytes
	if at+uint64(n) > mapChunkBytes {
		return nil, f.corrupt(id, "extent of %d bytes crosses a multiple of %d", n, int64(mapChunkBytes))
	}
	v, err := f.view(i)
	if err != nil {
		return nil, err
	}
	return v[at : at+uint64(n) : at+uint64(n)], nil
}

// Fault returns the error of a page fault at an address of the map: corruption if another program
// has truncated the file, or ErrRead if the disk could not read.
func (f *mainFile) Fault(addr uintptr) error {
	off, ok := f.mappedAt(addr)
	size, err := f.file.Size()
	if ok && err == nil && off < size {
		id := off / int64(f.pageSize)
		return fmt.Errorf("%w: page %d of %s, through the map: %w", ErrRead, id, f.name, vfs.ErrIO)
	}
	if !ok {
		off = -1
	}
	return badfile.At(f.o.Path, off, "file was cut short while it was mapped: fault at %#x", addr)
}

// mappedAt returns the file offset of an address in the map.
func (f *mainFile) mappedAt(addr uintptr) (off int64, ok bool) {
	for i, v := range f.views.all {
		if b := v.Load(); b != nil {
			if at := addr - uintptr(unsafe.Pointer(unsafe.SliceData(*b))); at < uintptr(len(*b)) {
				return int64(i)*mapChunkBytes + int64(at), true
			}
		}
	}
	return 0, false
}

// fileAhead makes the system read bytes of the file through the map, if they lie in one view.
func (f *mainFile) fileAhead(off, n int64) {
	if v, err := f.view(uint64(off) / mapChunkBytes); err == nil && off%mapChunkBytes+n <= int64(len(v)) {
		f.file.ReadAhead(v[off%mapChunkBytes:][:n])
	}
}
