package wal

import (
	"path/filepath"

	"github.com/ebbkv/ebb/internal/vfs"
)

// First gives the position of the first record of a segment.
func First(segmentSize int64, number uint64) LSN {
	return Options{SegmentSize: segmentSize}.start(number)
}

// Files gives the names of all files that are named like segments of the store at path, whatever
// they contain.
func Files(fsys vfs.FS, path string) ([]string, error) {
	o := Options{FS: fsys, Path: path}
	bases, err := fsys.List(o.dir())
	if err != nil {
		return nil, err
	}
	var names []string
	for _, base := range bases {
		if _, ok := o.number(base); ok {
			names = append(names, filepath.Join(o.dir(), base))
		}
	}
	return names, nil
}
