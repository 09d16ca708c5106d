package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

// boltFile is a file of bbolt that the function has filled.
func boltFile(t *testing.T, fill func(tx *bolt.Tx) error) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "old.db")
	db, err := bolt.Open(name, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(fill))
	require.NoError(t, db.Close())
	return name
}

func TestImportFromBolt(t *testing.T) {
	old := boltFile(t, func(tx *bolt.Tx) error {
		users, err := tx.CreateBucket([]byte("users"))
		if err != nil {
			return err
		}
		eu, err := users.CreateBucket([]byte("eu"))
		if err != nil {
			return err
		}
		deep, err := eu.CreateBucket([]byte("a/b%"))
		if err != nil {
			return err
		}
		_, err = tx.CreateBucket([]byte("__empty\xff\x00"))
		return errors.Join(err,
			users.Put([]byte("ann"), []byte("1")), users.Put([]byte("zoe"), nil), users.SetSequence(7),
			eu.Put([]byte("bob"), []byte("2")), deep.Put([]byte("c\x00"), []byte("3")), deep.SetSequence(1))
	})
	s := storePath(t)
	for range 2 { // An import that was stopped is run again.
		require.Equal(t, map[string]any{
			"families": 4.0, "rows": 4.0, "bytes": 14.0, "expiring": 0.0, "expired": 0.0, "metadata": 0.0,
			"transactions": 3.0, "seconds": 0.0,
		}, withoutSeconds(object(t, good(t, "import", s, "--from", "bolt", old, "--json"))))
	}
	require.Equal(t, "%5F_empty%FF%00\ndefault\nusers\nusers/eu\nusers/eu/a%2Fb%25\n", good(t, "family", s))
	require.Equal(t, "ann\t1\nzoe\t\n", good(t, "scan", s, "--family", "users"))
	require.Equal(t, "bob\t2\n", good(t, "scan", s, "--family", "users/eu"))
	require.Equal(t, "\"c\\x00\"\t3\n", good(t, "scan", s, "--family", "users/eu/a%2Fb%25"))
	db, err := (&app{}).openToWrite(t.Context(), s, true)
	require.NoError(t, err)
	for family, want := range map[string]uint64{"users": 8, "users/eu": 1, "users/eu/a%2Fb%25": 2} {
		next, err := db.CF(family).NextSequence()
		require.NoError(t, err)
		require.Equal(t, want, next, family)
	}
	require.NoError(t, db.Close())
}

func withoutSeconds(summary map[string]any) map[string]any {
	summary["seconds"] = 0.0
	return summary
}

func TestImportFromBadgerKeepsExpiries(t *testing.T) {
	dir := t.TempDir()
	db, err := badger.Open(badger.DefaultOptions(dir).WithLogger(nil).WithMemTableSize(8 << 20))
	require.NoError(t, err)
	later := time.Now().Add(1000 * time.Hour)
	require.NoError(t, db.Update(func(tx *badger.Txn) error {
		timed := badger.NewEntry([]byte("timed"), []byte("t")).WithTTL(time.Until(later))
		gone := badger.NewEntry([]byte("gone"), []byte("g"))
		gone.ExpiresAt = uint64(time.Now().Add(-time.Hour).Unix())
		return errors.Join(
			tx.SetEntry(badger.NewEntry([]byte("plain"), []byte("p")).WithMeta(1)),
			tx.SetEntry(timed), tx.SetEntry(gone), tx.Set([]byte("deleted"), nil))
	}))
	require.NoError(t, db.Update(func(tx *badger.Txn) error { return tx.Delete([]byte("deleted")) }))
	for i := range 100 {
		require.NoError(t, db.Update(func(tx *badger.Txn) error {
			return tx.Set(fmt.Appendf(nil, "row%03d", i), make([]byte, 100))
		}))
	}
	require.NoError(t, db.Close())
	s := storePath(t)
	out := good(t, "import", s, "--from", "badger", dir, "--family", "b", "--batch-bytes", "1000", "--json")
	summary := object(t, out)
	require.Equal(t, 102.0, summary["rows"])
	require.Equal(t, 1.0, summary["expiring"])
	require.Equal(t, 1.0, summary["metadata"])
	require.Greater(t, summary["transactions"], 9.0)
	require.Equal(t, "p", good(t, "get", s, "plain", "--family", "b"))
	ttl := good(t, "scan", s, "--family", "b", "--prefix", "timed", "--expiry")
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(strings.Split(ttl, "\t")[2]))
	require.NoError(t, err)
	require.WithinDuration(t, later, at, 2*time.Second)
	require.Equal(t, exitNotFound, ebb(t, "get", s, "gone", "--family", "b").code)
}

// TestImportFromAnotherStoreThatFails leaves no store behind, and names what is wrong.
func TestImportFromAnotherStoreThatFails(t *testing.T) {
	long := boltFile(t, func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		return errors.Join(err, b.Put(make([]byte, 2000), nil))
	})
	text := filepath.Join(t.TempDir(), "text")
	writeFile(t, text, strings.Repeat("no store ", 10_000))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"absent_file":      {[]string{"--from", "bolt", text + ".absent"}, "no such file"},
		"absent_directory": {[]string{"--from", "badger", text + ".absent"}, "no such file"},
		"another_file":     {[]string{"--from", "bolt", text}, "read " + text},
		"unknown_kind":     {[]string{"--from", "leveldb", text}, "want bolt or badger"},
		"resume":           {[]string{"--from", "bolt", text, "--resume"}, "exclude each other"},
		"family": {[]string{"--from", "bolt", text, "--family", "f"},
			"the buckets name the families"},
		"long_key": {[]string{"--from", "bolt", long}, "--page-size"},
	} {
		t.Run(name, func(t *testing.T) {
			s := storePath(t)
			a := ebb(t, append([]string{"import", s}, c.args...)...)
			require.Equal(t, exitError, a.code)
			require.Contains(t, a.stderr, c.want)
			require.NoFileExists(t, s)
		})
	}
	s := storePath(t)
	good(t, "import", s, "--from", "bolt", long, "--page-size", "16384")
	db, err := bolt.Open(long, 0o600, nil)
	require.NoError(t, err)
	a := ebb(t, "import", s, "--from", "bolt", long)
	require.NoError(t, db.Close())
	require.Contains(t, a.stderr, "another process has it open")
}
