package txn

import (
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// TestCursorKeepsItsPlaceByKey walks a tree at random, in a read and in a write transaction that
// changes the tree on the way, and holds every step against a sorted slice.
func TestCursorKeepsItsPlaceByKey(t *testing.T) {
	for seed := int64(1); seed <= 12; seed++ {
		rnd := rand.New(rand.NewSource(seed))
		s := openTest(t, fmt.Sprintf("/%d.ebb", seed), testOptions(vfs.NewMemory()))
		rows := map[string]string{}
		key := func() string { return fmt.Sprintf("key%03d", rnd.Intn(400)) }
		put := func(tx *Tx, k string) {
			rows[k] = fmt.Sprint(rnd.Int())
			mustPut(t, tx, CatalogTree, []byte(k), []byte(rows[k]), int64(len(rows[k])%2))
		}
		update(t, s, func(tx *Tx) {
			for range 300 {
				put(tx, key())
			}
		})
		tx, err := s.Begin(nil, seed%3 != 0)
		require.NoError(t, err)
		c := tx.Cursor(CatalogTree)
		require.False(t, c.Valid())
		require.False(t, c.Next())
		require.False(t, c.Prev())
		at, on := "", false
		sorted := func() []string { return slices.Sorted(maps.Keys(rows)) }
		want := func(ok bool, keys []string, i int) {
			t.Helper()
			require.NoError(t, c.Err())
			on = i >= 0 && i < len(keys)
			require.Equal(t, on, ok)
			require.Equal(t, on, c.Valid())
			if !on {
				require.Nil(t, c.Key())
				require.Nil(t, c.Value())
				require.Zero(t, c.Tag())
				return
			}
			at = keys[i]
			require.Equal(t, at, string(c.Key()))
			if rnd.Intn(3) > 0 {
				require.Equal(t, rows[at], string(c.Value()))
				require.Equal(t, rows[at], string(c.Value()))
				require.EqualValues(t, len(rows[at])%2, c.Tag())
			}
		}
		for range 600 {
			keys := sorted()
			place := func(k string) int { return sort.SearchStrings(keys, k) }
			switch op := rnd.Intn(20); {
			case op == 0:
				want(c.First(), keys, 0)
			case op == 1:
				want(c.Last(), keys, len(keys)-1)
			case op < 4:
				k := key()
				want(c.Seek([]byte(k)), keys, place(k))
			case op < 6:
				k := key()
				want(c.SeekBefore([]byte(k)), keys, place(k)-1)
			case op < 10 && on:
				i := place(at)
				if i < len(keys) && keys[i] == at {
					i++
				}
				want(c.Next(), keys, i)
			case op < 14 && on:
				want(c.Prev(), keys, place(at)-1)
			case op < 17 && !tx.read:
				put(tx, key())
			case !tx.read:
				k := key()
				if rnd.Intn(2) == 0 && on {
					k = at
				}
				_, had := rows[k]
				was, err := tx.Delete(CatalogTree, []byte(k))
				require.NoError(t, err)
				require.Equal(t, had, was.Found)
				delete(rows, k)
				if k == at && on {
					require.Equal(t, at, string(c.Key()), "the place stays")
					require.Zero(t, c.Tag())
				}
			}
		}
		tx.Rollback()
		require.False(t, c.First())
		require.ErrorIs(t, c.Err(), ErrTxnDone)
	}
}

func TestCursorOfATreeThatIsNotThereIsEmpty(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	for _, writable := range []bool{false, true} {
		tx, err := s.Begin(nil, writable)
		require.NoError(t, err)
		c := tx.Cursor(99)
		require.False(t, c.First())
		require.False(t, c.Last())
		require.False(t, c.Seek([]byte("k")))
		require.False(t, c.SeekBefore([]byte("k")))
		require.NoError(t, c.Err())
		tx.Rollback()
	}
}

// TestCursorOfAWriteFindsItsRowAgain after puts and deletes beside it, and knows when the row
// itself is gone.
func TestCursorOfAWriteFindsItsRowAgain(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	tx := begin(t, s, true)
	defer tx.Rollback()
	put := func(key string) {
		mustPut(t, tx, CatalogTree, []byte(key), []byte("of "+key), int64(len(key)))
	}
	put("b")
	put("ddd")
	c := tx.Cursor(CatalogTree)
	require.True(t, c.First())
	put("a")
	require.Equal(t, "of b", string(c.Value()))
	put("aa")
	require.EqualValues(t, 1, c.Tag())
	require.False(t, c.BeginScan(true, 0), "rows may change under the loop")
	require.True(t, c.Seek([]byte("b")))
	mustDelete(t, tx, CatalogTree, []byte("b"))
	put("c")
	require.Nil(t, c.Value())
	require.Zero(t, c.Tag())
	require.NoError(t, c.Err())
	require.True(t, c.Next())
	require.Equal(t, "c", string(c.Key()))
}

// TestCursorOfADeadTransactionStops where it is: the pages below it may be half changed.
func TestCursorOfADeadTransactionStops(t *testing.T) {
	broken := errors.New("broken")
	for name, look := range map[string]func(c *Cursor) bool{
		"next":  func(c *Cursor) bool { return c.Next() },
		"prev":  func(c *Cursor) bool { return c.Prev() },
		"seek":  func(c *Cursor) bool { return c.Seek([]byte("a")) },
		"value": func(c *Cursor) bool { return c.Value() != nil },
		"tag":   func(c *Cursor) bool { return c.Tag() != 0 },
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
			tx := begin(t, s, true)
			defer tx.Rollback()
			for _, key := range []string{"a", "b", "c"} {
				mustPut(t, tx, CatalogTree, []byte(key), nil, 7)
			}
			c := tx.Cursor(CatalogTree)
			require.True(t, c.Seek([]byte("b")))
			mustDelete(t, tx, CatalogTree, []byte("a"))
			_ = tx.abort(broken)
			require.False(t, look(c))
			require.ErrorIs(t, c.Err(), broken)
			require.False(t, c.Valid())
		})
	}
}
