package kv_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/golden"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// TestErrorsSayNothingTwice: the first error that a user saw was "kv: no such family: cf: no such
// family: "x"".
func TestErrorsSayNothingTwice(t *testing.T) {
	db, err := kv.OpenMemory(nil)
	require.NoError(t, err)
	defer db.Close()
	for _, c := range []struct {
		err  error
		is   error
		want string
	}{
		{db.CF("x").Put([]byte("k"), nil), kv.ErrCFNotFound, `kv: no such family: "x"`},
		{db.CreateCF("default", kv.CFOptions{}), kv.ErrCFExists, `kv: family exists: "default"`},
		{db.CreateCF("__x", kv.CFOptions{}), kv.ErrCFReserved, `kv: family is reserved: "__x"`},
		{db.CreateCF("", kv.CFOptions{}), kv.ErrCFName, "kv: family name not allowed: it is empty"},
		{db.PutTTL([]byte("k"), nil, -time.Second), kv.ErrInvalidTTL, "kv: invalid ttl: -1s"},
		{db.View(func(*kv.Tx) error { return db.Close() }), kv.ErrTxnsOpen, "kv: transactions are open"},
	} {
		require.ErrorIs(t, c.err, c.is)
		require.EqualError(t, c.err, c.want)
	}
}

// sentinels are the errors of kv/errors.go.
var sentinels = map[string]error{
	"ErrNotFound": kv.ErrNotFound, "ErrKeyEmpty": kv.ErrKeyEmpty,
	"ErrKeyTooLarge": kv.ErrKeyTooLarge, "ErrValueTooLarge": kv.ErrValueTooLarge,
	"ErrTxnTooLarge": kv.ErrTxnTooLarge, "ErrKeyOrder": kv.ErrKeyOrder,
	"ErrInvalidOptions": kv.ErrInvalidOptions,
	"ErrInvalidPath":    kv.ErrInvalidPath, "ErrCFExists": kv.ErrCFExists,
	"ErrCFNotFound": kv.ErrCFNotFound, "ErrCFNotEmpty": kv.ErrCFNotEmpty,
	"ErrCFName": kv.ErrCFName, "ErrCFReserved": kv.ErrCFReserved, "ErrCFDropped": kv.ErrCFDropped,
	"ErrReadOnlyTxn": kv.ErrReadOnlyTxn,
	"ErrReadOnlyDB":  kv.ErrReadOnlyDB, "ErrTxnDone": kv.ErrTxnDone,
	"ErrManagedTxn": kv.ErrManagedTxn, "ErrNotCounter": kv.ErrNotCounter,
	"ErrInvalidTTL": kv.ErrInvalidTTL, "ErrSavepoint": kv.ErrSavepoint,
	"ErrTxnsOpen": kv.ErrTxnsOpen, "ErrClosed": kv.ErrClosed,
	"ErrLocked": kv.ErrLocked, "ErrNoSpace": kv.ErrNoSpace, "ErrNotDatabase": kv.ErrNotDatabase,
	"ErrVersion": kv.ErrVersion, "ErrCorrupt": kv.ErrCorrupt, "ErrFailed": kv.ErrFailed,
	"ErrCommitUnknown": kv.ErrCommitUnknown,
	"ErrFileReplaced":  kv.ErrFileReplaced,
}

// innerName is the name of a package of this module inside of an error.
var innerName = regexp.MustCompile(`(?m)(^|: )(cf|ttl|txn|wal|pager|btree|vfs): |: kv: `)

var onePage = regexp.MustCompile(`^page [0-9]+$`)

// requireOneSentence requires that an error names no package but this one, and that in front, no
// kind twice, and the path of the store, unless that is "", once.
func requireOneSentence(t *testing.T, err error, path string) {
	t.Helper()
	for line := range strings.Lines(err.Error()) {
		require.False(t, innerName.MatchString(line), "%q", line)
		parts := strings.Split(strings.TrimSuffix(line, "\n"), ": ")
		for i, part := range parts {
			if !onePage.MatchString(part) { // a place, and once more in the list of what was found
				require.NotContains(t, parts[i+1:], part, "%q is said twice", part)
			}
		}
		if path != "" {
			require.LessOrEqual(
				t,
				len(regexp.MustCompile(regexp.QuoteMeta(path)+`($|[: \n])`).FindAllString(line, -1)),
				1,
				"%q",
				line,
			)
		}
	}
}

// failingCalls has a call for each error that a caller of a store in use can get.
func failingCalls(t *testing.T) map[string]func() error {
	k := []byte("k")
	db, err := kv.OpenMemory(&kv.Options{MaxTxnBytes: 10_000})
	require.NoError(t, err)
	require.NoError(t, db.CreateCF("f", kv.CFOptions{}))
	fill(t, db, "k")
	update := func(fn func(tx *kv.Tx) error) func() error { return func() error { return db.Update(fn) } }
	return map[string]func() error{
		"ErrNotFound":       func() error { _, err := db.Get([]byte("absent")); return err },
		"ErrKeyEmpty":       func() error { return db.Put(nil, nil) },
		"ErrKeyTooLarge":    func() error { return db.Put(largeKey, nil) },
		"ErrValueTooLarge":  func() error { return db.Put(k, make([]byte, kv.MaxValueSize+1)) },
		"ErrTxnTooLarge":    update(func(tx *kv.Tx) error { return many(tx, 20) }),
		"ErrKeyOrder":       func() error { return loadInto(db, "b", "a") },
		"ErrInvalidOptions": func() error { return db.Apply(t.Context(), nil) },
		"ErrCFExists":       func() error { return db.CreateCF("f", kv.CFOptions{}) },
		"ErrCFNotFound":     func() error { return db.DropCF("absent") },
		"ErrCFNotEmpty": func() error {
			_,
				err := db.BulkLoad(t.Context(), "default", numbered(1))
			return err
		},
		"ErrCFName":     func() error { return db.CreateCF("", kv.CFOptions{}) },
		"ErrCFReserved": func() error { return db.DropCF("default") },
		"ErrCFDropped": update(func(tx *kv.Tx) error {
			f := tx.CF("f")
			return errors.Join(f.Put(k, nil), tx.DropCF("f"), f.Put(k, nil))
		}),
		"ErrReadOnlyTxn": func() error { return db.View(func(tx *kv.Tx) error { return tx.Put(k, nil) }) },
		"ErrTxnDone": func() error {
			var kept *kv.Tx
			require.NoError(t, db.View(func(tx *kv.Tx) error { kept = tx; return nil }))
			return kept.Put(k, nil)
		},
		"ErrManagedTxn": func() error { return db.View((*kv.Tx).Commit) },
		"ErrNotCounter": func() error { _, err := db.Increment(k, 1, 0); return err },
		"ErrInvalidTTL": func() error { return db.PutTTL(k, nil, -1) },
		"ErrSavepoint":  update(func(tx *kv.Tx) error { return tx.RollbackTo(kv.Savepoint{}) }),
		"ErrTxnsOpen":   func() error { return db.View(func(*kv.Tx) error { return db.Close() }) },
	}
}

// failingStores has one for each error of a store that cannot be opened, written or used any more.
func failingStores(t *testing.T) map[string]func() error {
	k := []byte("k")
	at := func(name, content string) string {
		name = filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
		return name
	}
	open := func(path string, o *kv.Options) error {
		db, err := kv.Open(path, o)
		require.Nil(t, db)
		return err
	}
	poisoned := func() (*kv.DB, error) {
		fsys := newBrokenFS()
		db := mustOpenOn(t, fsys, nil, txn.Options{})
		fill(t, db, "k")
		fsys.broken.Store(true)
		return db, db.Put(k, nil)
	}
	return map[string]func() error{
		"ErrInvalidPath": func() error { return open(t.TempDir(), nil) },
		"ErrReadOnlyDB": func() error {
			db := mustOpen(t, at("a.ebb", storeFile(t)), &kv.Options{ReadOnly: true})
			return errors.Join(db.Put(k, nil), db.Close())
		},
		"ErrClosed": func() error {
			db, err := kv.OpenMemory(nil)
			require.NoError(t, errors.Join(err, db.Close()))
			return db.Put(k, nil)
		},
		"ErrLocked": func() error {
			name := at("a.ebb", "")
			db := mustOpen(t, name, nil)
			defer func() { require.NoError(t, db.Close()) }()
			return open(name, nil)
		},
		"ErrNoSpace": func() error {
			db, err := kv.OpenMemory(&kv.Options{MaxBytes: 1 << 20})
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			for i := 0; ; i++ {
				if err := db.Put(fmt.Appendf(nil, "%d", i), make([]byte, 900)); err != nil {
					return err
				}
			}
		},
		"ErrNotDatabase": func() error { return open(at("text", strings.Repeat("no store\n", 1000)), nil) },
		"ErrVersion": func() error {
			return open(at("old.ebb", string(golden.Read(t, "../pager/testdata/earlier-version.hex"))), nil)
		},
		"ErrCorrupt": func() error { return open(at("short.ebb", storeFile(t)[:9000]), nil) },
		"ErrFailed": func() error {
			db, _ := poisoned()
			return db.Put(k, nil)
		},
		"ErrCommitUnknown": func() error {
			_, err := poisoned()
			return err
		},
		"ErrFileReplaced": func() error {
			name := at("a.ebb", "")
			db := mustOpen(t, name, nil)
			fill(t, db, "k")
			require.NoError(t, os.Rename(name, name+"2"))
			return errors.Join(db.Checkpoint(t.Context()), ignored(db.Close()))
		},
	}
}

// TestEveryErrorIsOneSentence provokes each error of this package by a call, and verifies its text: it
// was "kv: not an Ebb store: txn: not a store: txt".
func TestEveryErrorIsOneSentence(t *testing.T) {
	calls := failingCalls(t)
	maps.Copy(calls, failingStores(t))
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && name == "ErrFileReplaced" {
				t.Skip("an open file is not renamed")
			}
			err := call()
			require.ErrorIs(t, err, sentinels[name])
			requireOneSentence(t, err, "")
			text := err.Error()
			require.Regexp(t, "^(kv|open [^:]*): ", text)
			if strings.HasPrefix(text, "open ") {
				where, _, _ := strings.Cut(strings.TrimPrefix(text, "open "), ": ")
				requireOneSentence(t, err, where)
				require.NotContains(t, text, "kv: ")
			}
		})
	}
	for _, sentinel := range sentinels {
		requireOneSentence(t, sentinel, "")
	}
}

func ignored(error) error { return nil }

// many puts rows of 900 bytes.
func many(tx *kv.Tx, n int) error {
	for i := range n {
		if err := tx.Put(fmt.Appendf(nil, "many%d", i), make([]byte, 900)); err != nil {
			return err
		}
	}
	return nil
}

// loadInto loads keys into a new family.
func loadInto(db *kv.DB, keys ...string) error {
	if err := db.EnsureCF("loaded", kv.CFOptions{}); err != nil {
		return err
	}
	_, err := db.BulkLoad(context.Background(), "loaded", func(yield func(k, v []byte) bool) {
		for _, key := range keys {
			if !yield([]byte(key), nil) {
				return
			}
		}
	})
	return err
}

// storeFile is the main file of a store that was closed.
func storeFile(t *testing.T) string {
	name := filepath.Join(t.TempDir(), "a.ebb")
	db := mustOpen(t, name, nil)
	fill(t, db, "k")
	require.NoError(t, db.Close())
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(b)
}

// TestMissingDirectoryIsNamedOnce: an open below a missing directory named a temporary file, twice.
func TestMissingDirectoryIsNamedOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "missing", "app.ebb")
	_, err := kv.Open(name, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotContains(t, err.Error(), ".new")
	require.Equal(t, 1, strings.Count(err.Error(), name), "%v", err)
}
