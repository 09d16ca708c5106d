package wal

import (
	"fmt"
	"slices"

	"github.com/ebbkv/ebb/internal/vfs"
)

// First gives the position of the first record of a segment.
func First(segmentSize int64, number uint64) LSN {
	return Options{SegmentSize: segmentSize}.start(number)
}

// Files gives the names of all files that are named like segments of the store at path, whatever
// they contain.
func Files(fsys vfs.FS, path string) (names []string, err error) {
	o := Options{FS: fsys, Path: path}
	numbers, err := o.list()
	for _, number := range numbers {
		names = append(names, o.name(number))
	}
	return names, err
}

// list gives the numbers of all files that are named like segments, by rising number.
func (o Options) list() (numbers []uint64, err error) {
	bases, err := o.FS.List(o.dir())
	if err != nil {
		return nil, fmt.Errorf("list log segments: %w", err)
	}
	for _, base := range bases {
		if number, ok := o.number(base); ok {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}
