package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// photos is a directory of n files of 20,000 random bytes.
func photos(t *testing.T, n int) string {
	t.Helper()
	dir, rnd := t.TempDir(), rand.NewChaCha8([32]byte{7})
	b := make([]byte, 20_000)
	for i := range n {
		_, err := rnd.Read(b)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("photo-%03d", i)), b, 0o600))
	}
	return dir
}

func count(t *testing.T, store string) float64 {
	t.Helper()
	rows := 0.0
	stats := object(t, good(t, "stats", store, "--json"))["stats"].(map[string]any)
	for _, f := range stats["families"].(map[string]any) {
		rows += f.(map[string]any)["rows"].(float64)
	}
	return rows
}

// TestThreeBytesInAnImportLoseOneFile: of 300 imported files dump and export gave 99, because of
// three bytes.
func TestThreeBytesInAnImportLoseOneFile(t *testing.T) {
	s := storePath(t)
	good(t, "import", s, photos(t, 300))
	info, err := os.Stat(s)
	require.NoError(t, err)
	for i := range int64(3) {
		flip(t, s, info.Size()/3+i)
	}
	before, err := os.ReadFile(s)
	require.NoError(t, err)
	require.Contains(t, ebb(t, "check", s).stderr, "`ebb salvage STORE OUT")
	out := s + "-out"
	a := ebb(t, "salvage", s, out)
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.out, "missing: family default: the row of photo-")
	require.Equal(t, 299.0, count(t, out))
	require.Contains(t, good(t, "check", out), "no problems")
	after, err := os.ReadFile(s)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after), "the damaged store is as it was")
	b := ebb(t, "salvage", s, out)
	require.Equal(t, exitError, b.code)
	require.Contains(t, b.stderr, "exist")
}

// TestAStoreCutInHalf could not be opened, and no command gave one of its rows.
func TestAStoreCutInHalf(t *testing.T) {
	s := storePath(t)
	good(t, "import", s, photos(t, 300))
	info, err := os.Stat(s)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(s, info.Size()/2))
	a := ebb(t, "get", s, "photo-001")
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "ebb salvage")
	require.Contains(t, a.stderr, "ebb restore")
	out := s + "-out"
	a = ebb(t, "salvage", s, out, "--stale")
	require.Equal(t, exitError, a.code, a.stderr)
	require.Greater(t, count(t, out), 100.0, a.out)
	require.Contains(t, good(t, "check", out), "no problems")
}

// TestSalvageKeepsWhatAFamilyHas: settings, expiries, sequences, partitions.
func TestSalvageKeepsWhatAFamilyHas(t *testing.T) {
	s := storePath(t)
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		require.NoError(t, tx.CreateCF("timed", kv.CFOptions{DefaultTTL: time.Hour}))
		o := kv.CFOptions{Retention: 240 * time.Hour, Partition: time.Hour}
		require.NoError(t, tx.CreateCF("points", o))
		for range 5 {
			_, err := tx.CF("timed").NextSequence()
			require.NoError(t, err)
		}
		for i := range 3 {
			when := at.Add(time.Duration(-i) * time.Hour)
			require.NoError(t, tx.CF("points").Append(when, fmt.Appendf(nil, "p%d", i), []byte("x")))
		}
		return tx.CF("timed").PutExpireAt([]byte("k"), []byte("v"), at)
	}))
	require.NoError(t, db.Close())
	for _, lost := range []int64{-1, 0} { // as it is, and without meta pages
		damaged := s + fmt.Sprint("-damaged", lost)
		b, err := os.ReadFile(s)
		require.NoError(t, err)
		if lost == 0 {
			clear(b[:2*4096])
		}
		require.NoError(t, os.WriteFile(damaged, b, 0o600))
		out := s + fmt.Sprint("-out", lost)
		report := object(t, good(t, "salvage", damaged, out, "--json"))
		require.Equal(t, true, report["whole"], "%v", report)
		require.Equal(t, good(t, "dump", s, "--json"), good(t, "dump", out, "--json"))
		require.Contains(t, good(t, "check", out), "no problems")
	}
}

// TestSalvageWithoutACatalog names families by their trees.
func TestSalvageWithoutACatalog(t *testing.T) {
	s := filledStore(t)
	for _, line := range objects(t, good(t, "pages", s, "--json")) {
		if line["kind"] != "leaf" || line["use"] != "used" || line["count"] != 1.0 {
			continue
		}
		damaged := fmt.Sprint(s, "-", line["pgid"])
		b, err := os.ReadFile(s)
		require.NoError(t, err)
		at := int(line["pgid"].(float64)) * 4096
		clear(b[at : at+4096])
		require.NoError(t, os.WriteFile(damaged, b, 0o600))
		a := ebb(t, "salvage", damaged, damaged+"-out")
		require.Equal(t, exitError, a.code)
		require.Equal(t, 501.0, count(t, damaged+"-out"), a.out)
		require.Contains(t, good(t, "family", damaged+"-out"), "tree-")
		require.Contains(t, good(t, "check", damaged+"-out"), "no problems")
		return
	}
	t.Fatal("the catalog is not found")
}

// TestSalvageWithoutATreeTable has no older one to go back to: the roots are found by their pages.
func TestSalvageWithoutATreeTable(t *testing.T) {
	s := filledStore(t)
	b, err := os.ReadFile(s)
	require.NoError(t, err)
	at := int(binary.LittleEndian.Uint64(b[104:])) * 4096 // root of the table in meta page 0, or in page 1
	if binary.LittleEndian.Uint32(b[4096+16:]) > binary.LittleEndian.Uint32(b[16:]) {
		at = int(binary.LittleEndian.Uint64(b[4096+104:])) * 4096
	}
	clear(b[at : at+4096])
	require.NoError(t, os.WriteFile(s, b, 0o600))
	a := ebb(t, "salvage", s, s+"-out")
	require.Equal(t, exitError, a.code)
	require.Equal(t, 501.0, count(t, s+"-out"), a.out)
	require.Contains(t, good(t, "check", s+"-out"), "no problems")
}

func TestSalvageOfALockedStore(t *testing.T) {
	s := filledStore(t)
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	defer db.Close()
	a := ebb(t, "salvage", s, s+"-out")
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "locked")
	good(t, "salvage", s, s+"-out", "--no-lock")
	writeFile(t, s+"-text", "no store at all, for 4096 bytes and more")
	require.Contains(t, ebb(t, "salvage", s+"-text", s+"-no").stderr, "not an Ebb store")
	require.NoFileExists(t, s+"-no")
}
