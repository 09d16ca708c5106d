package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"
)

// sourceFile is a regular file below a directory.
type sourceFile struct {
	name string // slash path relative to the directory
	size int64  // when it was listed
}

// sourceTree is what a walk of a directory found.
type sourceTree struct {
	dir      string
	own      ownFiles     // left out
	files    []sourceFile // in the order of the walk: by name within each directory
	bytes    int64        // of files
	symlinks int          // not followed
	special  int          // devices, sockets, pipes
	errors   []fileError  // directories and files that could not be looked at
}

// fileError says what went wrong with one file; the work goes on with the next.
type fileError struct {
	Name   string `json:"name,omitempty"`
	Base64 []byte `json:"name_base64,omitempty"` // instead, of a name that is no UTF-8
	Err    string `json:"error"`
}

func newFileError(name, err string) fileError {
	if !utf8.ValidString(name) {
		return fileError{Base64: []byte(name), Err: err}
	}
	return fileError{Name: name, Err: err}
}

// name gives the name, in whichever way it is written.
func (e fileError) name() []byte { return append([]byte(e.Name), e.Base64...) }

// listTree walks dir. The files of the store itself, should they lie below dir, are left out.
func listTree(dir, store string) (*sourceTree, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("%v", err) // not wrapped: a hint about the store would mislead
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s %w", dir, errNoTree)
	}
	t := &sourceTree{dir: dir, own: ownFilesOf(store)}
	return t, t.walk()
}

func (t *sourceTree) walk() error {
	return filepath.WalkDir(t.dir, func(path string, entry fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(t.dir, path)
		if err = errors.Join(err, relErr); err != nil {
			t.fail(path, err)
			return nil
		}
		switch {
		case entry.IsDir():
		case entry.Type()&fs.ModeSymlink != 0:
			// A dir that is itself a symbolic link is walked as one entry; look at what it points
			// to instead.
			if rel == "." {
				return t.rewalk()
			}
			t.symlinks++
		case !entry.Type().IsRegular():
			t.special++
		default:
			info, err := entry.Info()
			if err != nil {
				t.fail(path, err)
				return nil
			}
			if t.own.has(info) {
				return nil
			}
			t.files = append(t.files, sourceFile{filepath.ToSlash(rel), info.Size()})
			t.bytes += info.Size()
		}
		return nil
	})
}

// rewalk walks what the symbolic link dir points to.
func (t *sourceTree) rewalk() (err error) {
	if t.dir, err = filepath.EvalSymlinks(t.dir); err != nil {
		return err
	}
	return t.walk()
}

func (t *sourceTree) fail(name string, err error) {
	t.errors = append(t.errors, newFileError(name, err.Error()))
}

// path is the place of a file on disk.
func (t *sourceTree) path(f sourceFile) string {
	return filepath.Join(t.dir, filepath.FromSlash(f.name))
}
