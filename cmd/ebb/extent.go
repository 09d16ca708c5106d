package main

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// Overflow extent: the checksum covers all bytes behind it; the value's size stands behind the
// header. See docs/format.md.
const (
	offHashed      = 8
	offExtentSize  = pager.HeaderSize
	offExtentValue = pager.ExtentHeader
)

// How long an extent is only its first page says, and in a damaged file any page may claim to be
// the first of any number. An extent that is sound is behind us when it has been read. The pages of
// one that is not speak for themselves, and each may claim the rest of the file once more: no byte
// is read for more than maxFalse claims that turn out to be false.
//
// More than one, because a claim that is false must not keep us from proving the extents that it
// takes in.
const maxFalse = 4

// extentBuffer is what is read of an extent at a time.
const extentBuffer = 256 << 10

// extentReader proves overflow extents of a file, in the order of their places.
type extentReader struct {
	file     vfs.File
	bytes    int64 // of the file
	pageSize int64
	salt     uint64 // of the checksums

	buf []byte // used again

	// ends tells where the false claims end that reach past the page at hand. They are kept by the
	// use of their first page: free pages may claim anything, also in a sound store, and must not
	// use up what is granted to pages in use.
	ends map[string][]int64
}

// claim gives the number of pages that the first page of an extent says it has. If that cannot be
// right, it is the one page.
func (e *extentReader) claim(page []byte, off int64) (pages int64) {
	size := binary.LittleEndian.Uint64(page[offExtentSize:])
	left := uint64(e.bytes - off)
	if size > left-offExtentValue {
		return 1
	}
	pages = int64((size + offExtentValue + uint64(e.pageSize) - 1) / uint64(e.pageSize))
	if pages*e.pageSize > int64(left) {
		return 1
	}
	return pages
}

// granted says whether a claim at off may still be looked into.
func (e *extentReader) granted(use string, off int64) bool {
	e.ends[use] = slices.DeleteFunc(e.ends[use], func(end int64) bool { return end <= off })
	return len(e.ends[use]) < maxFalse
}

// sealed says whether the checksum of the extent at off is right; page is its first page.
func (e *extentReader) sealed(use string, page []byte, off, pages int64) (bool, error) {
	sum, end := xxhash.New(), off+pages*e.pageSize
	sum.Write(page[offHashed:])
	if e.buf == nil {
		e.buf = make([]byte, extentBuffer)
	}
	for at := off + e.pageSize; at < end; {
		part := e.buf[:min(end-at, extentBuffer)]
		if err := vfs.ReadFull(e.file, part, at); err != nil {
			return false, fmt.Errorf("read %s from page %d: %w", plural(pages, "page"), off/e.pageSize, err)
		}
		sum.Write(part)
		at += int64(len(part))
	}
	if binary.LittleEndian.Uint64(page) == sum.Sum64()^e.salt {
		return true, nil
	}
	e.ends[use] = append(e.ends[use], end)
	return false, nil
}
