package main

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/wal"
)

// ownFiles are what there is of the files of a store: main file, log segments, a half-made main
// file. What they are tells them from other files, not their path: a directory, and the store, can
// be given through symbolic links.
type ownFiles []fs.FileInfo

func ownFilesOf(store string) (own ownFiles) {
	store = vfs.Follow(store)
	segments, _ := wal.Files(vfs.OS, store) // without the list the store cannot be opened either
	for _, name := range append(segments, store, store+".new") {
		if info, err := os.Stat(name); err == nil {
			own = append(own, info)
		}
	}
	return own
}

func (o ownFiles) has(info fs.FileInfo) bool {
	return slices.ContainsFunc(o, func(own fs.FileInfo) bool { return os.SameFile(own, info) })
}

// errOwnFile is why a file is not written, whatever --overwrite says.
var errOwnFile = errors.New("it is a file of the store itself")
