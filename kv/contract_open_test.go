package kv_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/txn"
)

// Offsets in a meta page: see docs/format.md.
const (
	metaVersion  = 32
	metaFlags    = 36
	metaRequired = 40
	metaStoreID  = 56
	metaPageSize = 72
)

// forged returns a store whose two meta pages say something else, with right checksums.
func forged(store []byte, off int, value uint64) []byte {
	store = bytes.Clone(store)
	for slot := range 2 {
		page := store[slot*4096 : (slot+1)*4096]
		if bytes.Equal(page, make([]byte, len(page))) {
			continue
		}
		if off == metaRequired {
			binary.LittleEndian.PutUint64(page[off:], value)
		} else {
			binary.LittleEndian.PutUint32(page[off:], uint32(value))
		}
		pager.SetChecksum(page, pager.Salt([16]byte(page[metaStoreID:])))
	}
	return store
}

// TestForgedStoresAreRefusedWithNumbers has the lines of the contract on the fields of an intact meta
// page, for reading and for writing: the error has its kind, and both numbers where there are two.
func TestForgedStoresAreRefusedWithNumbers(t *testing.T) {
	good := storesOfEachKind(t)["clean"][mainFile]
	for _, test := range []struct {
		name  string
		store []byte
		opts  kv.Options
		want  error
		says  []string
	}{
		{"newer_version", forged(good, metaVersion, 77), kv.Options{}, kv.ErrVersion,
			[]string{"77", fmt.Sprint(pager.FormatVersion)}},
		{"older_version", forged(good, metaVersion, 1), kv.Options{}, kv.ErrVersion,
			[]string{"version 1", fmt.Sprint(pager.FormatVersion)}},
		{"unknown_feature", forged(good, metaRequired, 1<<40), kv.Options{}, kv.ErrVersion,
			[]string{"0x10000000000", "0x1"}},
		{"page_size_that_cannot_be", forged(good, metaPageSize, 5000), kv.Options{}, kv.ErrCorrupt, nil},
		{"page_size_of_another_store", forged(good, metaPageSize, 8192), kv.Options{}, kv.ErrCorrupt, nil},
		{"unknown_flag", forged(good, metaFlags, 0x80), kv.Options{}, kv.ErrCorrupt, nil},
		{"other_page_size", good, kv.Options{PageSize: 8192}, kv.ErrInvalidOptions, []string{"4096", "8192"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, readOnly := range []bool{false, true} {
				disk := files{mainFile: test.store}.disk(t)
				before := image(t, disk, "dir")
				test.opts.ReadOnly = readOnly
				_, err := reopenAt(disk, newClock(), &test.opts)
				require.ErrorIs(t, err, test.want)
				for _, other := range []error{kv.ErrCorrupt, kv.ErrVersion, kv.ErrNotDatabase,
					kv.ErrInvalidOptions} {
					require.Equal(t, other == test.want, errors.Is(err, other), "%v is also %v", err, other)
				}
				for _, number := range test.says {
					require.ErrorContains(t, err, number)
				}
				require.Equal(t, before, image(t, disk, "dir"))
			}
		})
	}
}

// TestOpenErrorsNameThePathAndNoContent: errors do not leak the content of a file.
func TestOpenErrorsNameThePathAndNoContent(t *testing.T) {
	const other = "secret content of some other program, long enough to be looked at"
	disk := files{mainFile: []byte(other)}.disk(t)
	_, err := reopenAt(disk, newClock(), nil)
	require.Error(t, err)
	require.ErrorContains(t, err, path)
	require.NotContains(t, err.Error(), "secret")
	_, err = openfs.Open(vfs.NewMemory(), "absent/x.ebb", &kv.Options{MustExist: true}, txn.Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "absent/x.ebb")
}

// open opens the store of the contract and holds an old snapshot.
func open(t *testing.T, fsys vfs.FS, o *kv.Options) subject {
	t.Helper()
	db := mustOpenOn(t, fsys, o, txn.Options{})
	old := beginTx(t, db, false)
	return subject{db: db, old: old}
}

// TestOpenContract has a row for each line of the error contract that concerns Open, on the real file
// system.
func TestOpenContract(t *testing.T) {
	good := filepath.Join(t.TempDir(), "good.ebb")
	db := mustOpen(t, good, nil)
	fill(t, db, "k")
	require.NoError(t, db.Close())
	content, err := os.ReadFile(good)
	require.NoError(t, err)
	for _, test := range []struct {
		name    string
		content []byte // of the file; nil: none
		path    string // below the directory; "" as it is
		opts    *kv.Options
		want    error
	}{
		{"empty_path", nil, "", nil, kv.ErrInvalidPath},
		{"nul_in_path", nil, "a\x00b", nil, kv.ErrInvalidPath},
		{"a_directory", nil, ".", nil, kv.ErrInvalidPath},
		{"missing_directory", nil, "absent/a.ebb", nil, fs.ErrNotExist},
		{"missing_file_read_only", nil, "a.ebb", &kv.Options{ReadOnly: true}, fs.ErrNotExist},
		{"missing_file_must_exist", nil, "a.ebb", &kv.Options{MustExist: true}, fs.ErrNotExist},
		{"empty_file", []byte{}, "a.ebb", nil, nil},
		{"empty_file_must_exist", []byte{}, "a.ebb", &kv.Options{MustExist: true}, kv.ErrCorrupt},
		{"short_file", content[:20], "a.ebb", nil, kv.ErrCorrupt},
		{"zeros", make([]byte, 3*4096), "a.ebb", nil, kv.ErrCorrupt},
		{"other_file_type", []byte(strings.Repeat("#!/bin/sh\n", 2000)), "a.ebb", nil, kv.ErrNotDatabase},
		{"metas_lost", rot(content, 100, 4096+100), "a.ebb", nil, kv.ErrCorrupt},
		{"other_page_size", content, "a.ebb", &kv.Options{PageSize: 8192}, kv.ErrInvalidOptions},
		{"own_page_size", content, "a.ebb", &kv.Options{PageSize: 4096}, nil},
		{"good", content, "a.ebb", &kv.Options{MustExist: true}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			at := test.path
			if at != "" {
				at = dir + string(filepath.Separator) + test.path
			}
			if test.content != nil {
				require.NoError(t, os.WriteFile(at, test.content, 0o644))
			}
			before := image(t, vfs.OS, dir)
			db, err := kv.Open(at, test.opts)
			if test.want == nil {
				require.NoError(t, err)
				require.NoError(t, db.Close())
				return
			}
			require.ErrorIs(t, err, test.want)
			requireOneSentence(t, err, at)
			require.Equal(t, before, image(t, vfs.OS, dir))
		})
	}
}

// rot returns a copy of b with a bit flipped at each offset.
func rot(b []byte, offs ...int) []byte {
	b = bytes.Clone(b)
	for _, off := range offs {
		b[off] ^= 0x10
	}
	return b
}

func TestSegmentsWithoutTheirMainFileAreCorrupt(t *testing.T) {
	fsys := vfs.NewMemory()
	f, err := fsys.Open(path+"-wal-000001", vfs.Write|vfs.Create)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = openfs.Open(fsys, path, nil, txn.Options{})
	require.ErrorIs(t, err, kv.ErrCorrupt)
	names, err := fsys.List("dir")
	require.NoError(t, err)
	require.Equal(t, []string{"test.ebb-wal-000001"}, names)
}

func TestSecondHandleIsLockedOut(t *testing.T) {
	at := filepath.Join(t.TempDir(), "a.ebb")
	db, err := kv.Open(at, nil)
	require.NoError(t, err)
	for _, o := range []*kv.Options{nil, {ReadOnly: true}, {LockTimeout: time.Millisecond}} {
		_, err = kv.Open(at, o)
		require.ErrorIs(t, err, kv.ErrLocked)
	}
	require.NoError(t, db.Close())
	first := mustOpen(t, at, &kv.Options{ReadOnly: true})
	second, err := kv.Open(at, &kv.Options{ReadOnly: true})
	require.NoError(t, err, "any number may read")
	_, err = kv.Open(at, nil)
	require.ErrorIs(t, err, kv.ErrLocked)
	require.NoError(t, errors.Join(first.Close(), second.Close()))
}

func TestDirectoryWithoutPermission(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("permissions do not bind this user")
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o500))
	_, err := kv.Open(filepath.Join(dir, "a.ebb"), nil)
	require.ErrorIs(t, err, fs.ErrPermission)
}
