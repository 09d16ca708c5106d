package txn

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/platformtest"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// coldTree makes a store that has a tree of several hundred leaves, and closes it.
func coldTree(t *testing.T, procs int) (path string) {
	platformtest.NeedsMap(t)
	was := runtime.GOMAXPROCS(procs)
	t.Cleanup(func() { runtime.GOMAXPROCS(was) })
	path = filepath.Join(t.TempDir(), "a.ebb")
	s, err := Open(path, testOptions(vfs.OS))
	require.NoError(t, err)
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(9))
		for i := range coldRows {
			mustPut(t, tx, 9, fmt.Appendf(nil, "%06d", i), make([]byte, 600), 0)
		}
	})
	require.NoError(t, s.Close())
	return path
}

const coldRows = 2000

// scanUntilAhead opens a store and scans it until leaves are verified ahead, or to the end.
func scanUntilAhead(t *testing.T, path string) (s *Store, tx *Tx, c *Cursor, rows int) {
	s = openTest(t, path, testOptions(vfs.OS))
	tx, err := s.Begin(nil, false)
	require.NoError(t, err)
	c = tx.Cursor(9)
	for ok := c.First(); ok && tx.slot.ahead == nil; ok = c.Next() {
		rows++
	}
	return s, tx, c, rows
}

// leaves is a Reader that records the leaves that a scan requests.
type leaves struct {
	*Tx
	refs []pager.Ref
}

func (l *leaves) ReadAhead(refs []pager.Ref) { l.refs = append(l.refs, refs...) }

func TestALongScanIsVerifiedAhead(t *testing.T) {
	path := coldTree(t, 2)
	first, tx, _, rows := scanUntilAhead(t, path)
	require.NotNil(t, tx.slot.ahead)
	require.Greater(t, rows, 30, "a short range starts no goroutine")
	scan := leaves{Tx: tx}
	var c btree.Cursor
	at, _ := tx.tree(9)
	c.Reset(&scan, at)
	for rows = 0; c.Next(); rows++ {
	}
	require.Equal(t, coldRows, rows)
	require.NoError(t, c.Err())
	require.Greater(t, len(scan.refs), 250)
	tx.Rollback()
	require.NoError(t, first.Close())

	s, err := Open(path, testOptions(vfs.OS))
	require.NoError(t, err)
	tx = begin(t, s, false)
	tx.ReadAhead(scan.refs[:leastVerifyAhead-1])
	require.Nil(t, tx.slot.ahead)
	for from := 0; from < 200; from += 40 { // The goroutine ends meanwhile, and there is another.
		window := scan.refs[from : from+40]
		tx.ReadAhead(window)
		tx.slot.ahead.done.Wait()
		require.False(t, slices.ContainsFunc(window, tx.Cold))
	}
	require.True(t, tx.Cold(scan.refs[200]))
	tx.ReadAhead(scan.refs[200:202])
	tx.slot.ahead.done.Wait()
	require.False(t, tx.Cold(scan.refs[200]), "a short window of a long scan")
	tx.Rollback()

	tx = begin(t, s, false)
	tx.ReadAhead(scan.refs[:100])
	require.Nil(t, tx.slot.ahead, "they are verified")
	require.Len(t, contents(t, tx, 9), coldRows)
	tx.Rollback()
	require.NoError(t, s.Close())
}

// TestTheEndOfAScanEndsItsGoroutine, wherever that is: pages of the snapshot may be reused then.
func TestTheEndOfAScanEndsItsGoroutine(t *testing.T) {
	path := coldTree(t, 2)
	for range racetest.Sample(50, 5) {
		t.Run("", func(t *testing.T) {
			_, tx, _, _ := scanUntilAhead(t, path)
			a, slot := tx.slot.ahead, tx.slot
			require.NotNil(t, a)
			tx.Rollback()
			require.False(t, a.running.Load())
			require.Nil(t, slot.ahead)
		})
	}
}

func TestOneProcessorVerifiesNothingAhead(t *testing.T) {
	_, tx, _, rows := scanUntilAhead(t, coldTree(t, 1))
	require.Equal(t, coldRows, rows)
	require.Nil(t, tx.slot.ahead)
	tx.Rollback()
}
