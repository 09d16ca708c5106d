package kv_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/platformtest"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/kv"
)

// TestLongScansFindTheSameDamage whether or not a second processor verifies leaves ahead of them: the
// same rows, and behind them the same error.
func TestLongScansFindTheSameDamage(t *testing.T) {
	platformtest.NeedsMap(t)
	whole := storeOfLeaves(t)
	const page = 4096
	for at := page * 9; at < len(whole); at += page * racetest.Sample(7, 70) {
		if binary.LittleEndian.Uint64(whole[at:]) == 0 {
			continue // free
		}
		b := bytes.Clone(whole)
		b[at+page/2] ^= 1
		path := filepath.Join(t.TempDir(), "a.ebb")
		require.NoError(t, os.WriteFile(path, b, 0o600))
		wantRows, want := firstScan(t, path, 1, nil)
		rows, err := firstScan(t, path, 2, nil)
		require.Equal(t, wantRows, rows)
		require.Equal(t, fmt.Sprint(want), fmt.Sprint(err))
	}
}

// TestLongScansOfATruncatedFile: the goroutine that verifies leaves ahead ends at the fault, and the
// scan gets there.
func TestLongScansOfATruncatedFile(t *testing.T) {
	platformtest.NeedsMap(t)
	whole := storeOfLeaves(t)
	path := filepath.Join(t.TempDir(), "a.ebb")
	most := 0
	for parts := 20; parts < 32; parts += 2 {
		cut := func() {
			err := os.Truncate(path, int64(len(whole)/32*parts))
			platformtest.MayRefuse(t, err, "windows")
		}
		var counts [2]int
		for i := range counts {
			require.NoError(t, os.WriteFile(path, whole, 0o600))
			rows, err := firstScan(t, path, 1+i, cut)
			require.ErrorIs(t, err, kv.ErrCorrupt)
			counts[i] = rows
		}
		require.Equal(t, counts[0], counts[1])
		most = max(most, counts[0])
	}
	require.Greater(t, most, 60, "leaves are verified ahead before the cut")
}

// storeOfLeaves is the file of a store of several hundred leaves.
func storeOfLeaves(t *testing.T) []byte {
	path := filepath.Join(t.TempDir(), "a.ebb")
	db := mustOpen(t, path, nil)
	err := db.Update(func(tx *kv.Tx) error {
		for i := range 2000 {
			i = i * 1009 % 2000 // branches are in front of most leaves
			if err := tx.Put(fmt.Appendf(nil, "%06d", i), bytes.Repeat([]byte{byte(i)}, 600)); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}

// firstScan counts the rows of a store just opened, with so many processors. opened may be nil.
func firstScan(t *testing.T, path string, procs int, opened func()) (rows int, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	db, err := kv.Open(path, &kv.Options{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer func() { require.NoError(t, db.Close()) }()
	if opened != nil {
		opened()
	}
	err = db.View(func(tx *kv.Tx) error {
		for k := range tx.All() {
			require.Equal(t, fmt.Sprintf("%06d", rows), string(k))
			rows++
		}
		return nil
	})
	return rows, err
}
