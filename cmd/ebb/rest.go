package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/ebbkv/ebb/kv"
)

// The rest of an export is what files cannot hold: rows whose keys can be no file names, and the
// settings and the sequence of the family. It is a dump in JSON.

// noFileName reports whether a key could not be written because of what it is: no clean relative
// path, a name that is too long, or one below another key's file.
func noFileName(err error) bool {
	for _, kind := range []error{errNoPath, errBelowFile, syscall.ENAMETOOLONG, syscall.ENOTDIR,
		syscall.EISDIR} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// restWriter writes the file of --rest. A nil one was not asked for.
type restWriter struct {
	file *os.File
	app  *app // of the command, but for its output
}

func (a *app) createRest(path, dir string, own ownFiles, overwrite bool) (*restWriter, error) {
	if path == "" {
		return nil, nil
	}
	f, err := createBeside("--rest", path, dir, own, overwrite)
	if err != nil {
		return nil, err
	}
	side := *a
	side.json, side.out = true, newOutput(f)
	return &restWriter{f, &side}, nil
}

// settings writes those of the family, if rows alone do not describe it.
func (w *restWriter) settings(tx *kv.Tx) error {
	if w == nil {
		return nil
	}
	d := dumper{app: w.app}
	return d.settings(tx, w.app.family)
}

func (w *restWriter) add(r row) error { return w.named(w.app.printRow(r)) }

// close ends the file. Errors name it.
func (w *restWriter) close() error {
	if w == nil {
		return nil
	}
	return w.named(errors.Join(w.app.out.Flush(), w.file.Close()))
}

func (w *restWriter) named(err error) error {
	if err != nil {
		return fmt.Errorf("--rest: %v", err)
	}
	return nil
}

// importRest stores the file of --rest, as load --replace does: an import that is repeated finds its
// own rows. It returns the number of rows, and of those whose expiry has passed.
func (im *importer) importRest(ctx context.Context, db *kv.DB) (rows, expired int, err error) {
	if im.restFile == "" {
		return 0, 0, nil
	}
	f, err := os.Open(im.restFile)
	if err != nil {
		return 0, 0, fmt.Errorf("--rest: %v", err) // not wrapped: a hint about the store would mislead
	}
	defer f.Close()
	l := loader{app: im.app, replace: true, into: im.app.family}
	if err := l.run(ctx, db, jsonLines(f)); err != nil {
		return 0, 0, fmt.Errorf("--rest: %w", err)
	}
	return int(l.loaded), int(l.expired), nil
}
