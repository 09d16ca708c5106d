package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

func exportCommand(a *app) *cobra.Command {
	ex := exporter{app: a}
	cmd := &cobra.Command{
		Use:   "export STORE DIR",
		Short: "Write every value to a file below a directory, named by its key",
		Long: `Export is the way back from import: each key names a file below DIR, which is created if
it is absent. Keys that are no clean relative path, or would lead out of DIR (also through a
symbolic link), are refused; files that exist already are left alone unless --overwrite is given,
those of the store itself also then. What is left out is named at the end, and the exit code is 1.
So is what cannot be read: damage hides only the values that it hit.

A file has no expiry: keys that have one are counted at the end, and lose it on the way back. With
--expiries their expiries are written to another file, outside of DIR, which import takes.

With --rest, rows whose keys can be no file names are not left out: they go to another file, outside
of DIR, as lines of JSON with whole keys and expiries, and with the settings and the sequence of the
family. Import --rest takes it, and so does ebb load.`,
		Args: args(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var summary exportSummary
			err := a.view(cmd.Context(), args[0], func(tx *kv.Tx) (err error) {
				ex.own = ownFilesOf(args[0])
				if ex.expiries, err = createExpiries(ex.expiryFile, args[1], ex.own,
					ex.overwrite); err != nil {
					return err
				}
				if ex.rest, err = a.createRest(ex.restFile, args[1], ex.own, ex.overwrite); err != nil {
					return errors.Join(err, ex.expiries.close())
				}
				summary, err = ex.run(cmd.Context(), tx, args[1])
				return errors.Join(err, ex.expiries.close(), ex.rest.close())
			})
			if err != nil {
				return fmt.Errorf("export: %w", err)
			}
			if err := ex.print(summary); ex.missing.n == 0 {
				return err
			}
			return fmt.Errorf("export: %w", ex.missing.err())
		},
	}
	f := cmd.Flags()
	f.StringVar(&ex.prefix, "prefix", "", "only keys that begin with this; it is not part of the file name")
	f.BoolVar(&ex.overwrite, "overwrite", false, "replace files that exist")
	f.StringVar(
		&ex.expiryFile,
		"expiries",
		"",
		"write the expiries of keys that have one to this file, a line of JSON each",
	)
	f.StringVar(&ex.restFile, "rest", "", "write rows whose keys can be no file names to this file")
	return cmd
}

// exporter writes rows to files.
type exporter struct {
	app        *app
	prefix     string
	overwrite  bool
	own        ownFiles
	expiryFile string
	expiries   expiryWriter
	restFile   string
	rest       *restWriter // nil: not asked for
	missing    missing
}

// exportSummary describes what an export did.
type exportSummary struct {
	Files   int           `json:"files"`
	Bytes   int64         `json:"bytes"`
	Timed   int           `json:"timed"` // files whose key has an expiry
	Rest    int           `json:"rest"`  // rows that went to the file of --rest
	Errors  []fileError   `json:"errors"`
	Missing []any         `json:"missing"` // what could not be read, as records of dump
	Took    time.Duration `json:"-"`
	Seconds float64       `json:"seconds"`
}

// run writes below dir. An error of one file is noted and the next one is written; an error of the
// store and a full disk end it.
func (ex *exporter) run(ctx context.Context, tx *kv.Tx, dir string) (exportSummary, error) {
	began := time.Now()
	s := exportSummary{Errors: []fileError{}, Missing: []any{}}
	ex.missing.app = ex.app
	ex.missing.watch(tx, func(place map[string]any) { s.Missing = append(s.Missing, place) })
	cf := tx.CF(ex.app.family)
	total, err := cf.Count()
	if err != nil {
		return s, err
	}
	if ex.prefix != "" {
		total = unknownTotal // how many rows have it is known when they have been read
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return s, fmt.Errorf("%v", err) // not wrapped: a hint about the store would mislead
	}
	root, err := os.OpenRoot(dir) // refuses what leads out of dir, symbolic links included
	if err != nil {
		return s, fmt.Errorf("%v", err)
	}
	defer root.Close()
	if err := ex.rest.settings(tx); err != nil {
		return s, err
	}
	p := ex.app.newProgress("export", total, false)
	defer p.end()
	for c := cf.CursorIn(kv.ScanOptions{Prefix: []byte(ex.prefix)}); c.Next(); p.add(1) {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		key, value := string(c.Key()), c.Value()
		if c.Err() != nil {
			break
		}
		if value == nil {
			continue // It is lost, and named.
		}
		name := strings.TrimPrefix(key, ex.prefix)
		err := ex.write(root, name, value)
		if noFileName(err) && ex.rest != nil {
			at, _ := c.Expiry()
			if err := ex.rest.add(row{family: ex.app.family, key: c.Key(), value: value,
				at: at}); err != nil {
				return s, err
			}
			s.Rest++
			continue
		}
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			s.Errors = append(s.Errors, newFileError(key, err.Error()+"; the export ends here"))
			break
		}
		if err != nil {
			s.Errors = append(s.Errors, newFileError(key, err.Error()))
			continue
		}
		s.Files++
		s.Bytes += int64(len(value))
		if at, ok := c.Expiry(); ok {
			s.Timed++
			if err := ex.expiries.add(name, at); err != nil {
				return s, err
			}
		}
	}
	s.Took = time.Since(began)
	s.Seconds = s.Took.Seconds()
	return s, tx.Err()
}

var (
	errNoPath    = errors.New("the key is no clean relative path below the directory")
	errBelowFile = errors.New("the key lies below one that is a file")
)

func (ex *exporter) write(root *os.Root, name string, value []byte) error {
	local := filepath.FromSlash(name)
	if path.Clean(name) != name || name == "." || strings.ContainsRune(name, 0) || !filepath.IsLocal(local) {
		return errNoPath
	}
	if err := root.MkdirAll(filepath.Dir(local), 0o777); errors.Is(err, fs.ErrExist) {
		return errBelowFile
	} else if err != nil {
		return err
	}
	if info, err := root.Stat(local); err == nil && ex.own.has(info) {
		return errOwnFile
	} else if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return errors.New("something is there that is no regular file")
	}
	flag := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if !ex.overwrite {
		flag |= os.O_EXCL
	}
	f, err := root.OpenFile(local, flag, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return errors.New("the file exists; --overwrite replaces it")
	}
	if err != nil {
		return err
	}
	_, err = f.Write(value)
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, root.Remove(local)) // Half a value shall not pass for one.
	}
	return err
}

func (ex *exporter) print(s exportSummary) error {
	a := ex.app
	if a.json {
		if err := a.printJSON(s); err != nil {
			return err
		}
	} else {
		took := s.Took.Round(time.Millisecond)
		fmt.Fprintf(a.out, "wrote %s, %s, in %s\n", plural(s.Files, "file"), size(s.Bytes), took)
		switch {
		case s.Timed > 0 && ex.expiryFile != "":
			fmt.Fprintf(a.out, "%s of a key with an expiry, noted in %s\n", plural(s.Timed, "file"),
				ex.expiryFile)
		case s.Timed > 0:
			fmt.Fprintf(a.out, "%s of a key with an expiry, which a file does not have\n",
				plural(s.Timed, "file"))
		}
		if s.Rest > 0 {
			fmt.Fprintf(a.out, "%s whose keys are no file names, in %s\n", plural(s.Rest, "row"), ex.restFile)
		}
		a.printFileErrors("not written", s.Errors)
	}
	if len(s.Errors) > 0 {
		return errSaid
	}
	return nil
}
