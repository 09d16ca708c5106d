package kv_test

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/kv"
)

// TestScanAgreesWithASortedSlice runs every combination of bounds and directions over a few awkward
// keys.
func TestScanAgreesWithASortedSlice(t *testing.T) {
	db := openTest(t)
	keys := []string{"\x00", "a", "a\x00", "ab", "abc", "b", "ba", "\xfe\xff", "\xff", "\xff\xff"}
	fill(t, db, keys...)
	ends := [][]byte{
		nil,
		{},
		[]byte("a"),
		[]byte("aa"),
		[]byte("ab"),
		[]byte("b"),
		[]byte("\xff"),
		[]byte("\xff\xff\xff"),
	}
	prefixes := [][]byte{nil, []byte("a"), []byte("ab"), []byte("\xff"), []byte("\xff\xff"), []byte("zz")}
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		for _, prefix := range prefixes {
			for _, lo := range ends {
				for _, hi := range ends {
					o := kv.ScanOptions{Prefix: prefix, Lower: lo, Upper: hi}
					want := within(keys, o)
					requireRange(t, tx, o, want)
					requireCursor(t, tx, o, want)
				}
			}
		}
		return nil
	}))
}

// within picks the keys that a range has, in order.
func within(keys []string, o kv.ScanOptions) []string {
	got := []string{}
	for _, k := range keys {
		if strings.HasPrefix(k, string(o.Prefix)) && k >= string(o.Lower) &&
			(len(o.Upper) == 0 || k < string(o.Upper)) {
			got = append(got, k)
		}
	}
	return got
}

func requireRange(t *testing.T, tx *kv.Tx, o kv.ScanOptions, want []string) {
	t.Helper()
	for _, reverse := range []bool{false, true} {
		for _, limit := range []int{0, 1, 3} {
			for _, keysOnly := range []bool{false, true} {
				o.Reverse, o.Limit, o.KeysOnly = reverse, limit, keysOnly
				expect := slices.Clone(want)
				if reverse {
					slices.Reverse(expect)
				}
				if limit > 0 {
					expect = expect[:min(limit, len(expect))]
				}
				got := []string{}
				for k, v := range tx.Scan(o) {
					got = append(got, string(k))
					if keysOnly {
						require.Nil(t, v)
					} else {
						require.Equal(t, "v-"+string(k), string(v))
					}
				}
				require.Equal(t, expect, got, "%+v", o)
			}
		}
	}
}

func requireCursor(t *testing.T, tx *kv.Tx, o kv.ScanOptions, want []string) {
	t.Helper()
	c := tx.CursorIn(o)
	at := func(ok bool, i int) {
		t.Helper()
		require.Equal(t, i >= 0 && i < len(want), ok, "%+v", o)
		require.Equal(t, ok, c.Valid())
		if ok {
			require.Equal(t, want[i], string(c.Key()), "%+v", o)
			require.Equal(t, "v-"+want[i], string(c.Value()))
		} else {
			require.Nil(t, c.Key())
			require.Nil(t, c.Value())
		}
	}
	for i := 0; i <= len(want)+1; i++ { // one step past the end, and once more
		at(c.Next(), i)
	}
	for i := len(want) - 1; i >= -2; i-- {
		at(c.Prev(), i)
	}
	at(c.Next(), 0)
	at(c.First(), 0)
	at(c.Last(), len(want)-1)
	require.False(t, tx.CursorIn(o).Valid())
	for _, key := range []string{"", "\x00", "a", "a\x01", "ab", "b", "c", "\xff", "\xff\xff\xff"} {
		i := sort.SearchStrings(want, key)
		at(c.Seek([]byte(key)), i)
		at(c.Next(), i+1)
		at(c.Prev(), min(i, len(want)-1))
		if key == "" {
			i = len(want)
		}
		at(c.SeekBefore([]byte(key)), i-1)
		at(c.Prev(), i-2)
		at(c.Next(), max(i-1, 0))
	}
	require.NoError(t, c.Err())
}

func TestNewCursorIsNowhere(t *testing.T) {
	db := openTest(t)
	fill(t, db, "a", "b")
	require.ErrorIs(t, db.View(func(tx *kv.Tx) error {
		c := tx.Cursor()
		require.False(t, c.Valid())
		require.True(t, c.Prev())
		require.Equal(t, "b", string(c.Key()))
		for _, o := range []kv.ScanOptions{{Reverse: true}, {Limit: 1}} {
			c := tx.CursorIn(o)
			require.False(t, c.First())
			require.ErrorIs(t, c.Err(), kv.ErrInvalidOptions)
		}
		require.ErrorIs(t, tx.Err(), kv.ErrInvalidOptions)
		require.ErrorIs(t, c.Delete(), kv.ErrReadOnlyTxn)
		require.True(t, c.Valid(), "a refused delete does not end the cursor")
		return nil
	}), kv.ErrInvalidOptions)
}

func TestBodyMayDeleteAndPut(t *testing.T) {
	db := openTest(t)
	const n = 3000
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range n {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "k%05d", i), bytes.Repeat([]byte{'v'}, i%50)))
		}
		seen := 0
		for k := range tx.All() {
			require.Equal(t, fmt.Sprintf("k%05d", seen), string(k))
			seen++
			if seen%3 == 0 {
				require.NoError(t, tx.Put(append([]byte("a"), k...), k), "behind: not seen")
			} else {
				require.NoError(t, tx.Delete(k))
			}
		}
		require.Equal(t, n, seen)
		seen = 0
		for k, v := range tx.Scan(kv.ScanOptions{Prefix: []byte("a"), Reverse: true}) {
			require.Equal(t, string(k[1:]), string(v))
			require.NoError(t, tx.Put(k, []byte("again")))
			seen++
		}
		require.Equal(t, n/3, seen)
		return nil
	}))
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		count := 0
		for _, v := range tx.Prefix([]byte("a")) {
			require.Equal(t, "again", string(v))
			count++
		}
		require.Equal(t, n/3, count)
		return nil
	}))
}

func TestCursorDeleteKeepsItsPlace(t *testing.T) {
	db := openTest(t)
	fill(t, db, "a", "b", "c", "d", "e")
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		c := tx.Cursor()
		require.True(t, c.Seek([]byte("c")))
		require.NoError(t, c.Delete())
		require.False(t, c.Valid())
		require.Nil(t, c.Key())
		require.NoError(t, c.Delete(), "no row: nothing")
		require.True(t, c.Next())
		require.Equal(t, "d", string(c.Key()))
		require.NoError(t, c.Delete())
		require.True(t, c.Prev())
		require.Equal(t, "b", string(c.Key()))
		require.Equal(t, "v-b", string(c.Value()))
		require.True(t, c.Last())
		require.NoError(t, c.Delete())
		require.False(t, c.Next())
		require.True(t, c.Prev())
		require.Equal(t, "b", string(c.Key()))
		return nil
	}))
	require.Equal(t, []string{"a=v-a", "b=v-b"}, rows(t, db, "default"))
}

func TestRangeMayBeUsedAgain(t *testing.T) {
	db := openTest(t)
	fill(t, db, "a", "b")
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		lower := []byte("b")
		from := tx.Scan(kv.ScanOptions{Lower: lower})
		for range 2 {
			n := 0
			for k := range from {
				require.Equal(t, "b", string(k))
				lower[0] = 'a' // The range has its own copy.
				n++
			}
			require.Equal(t, 1, n)
			lower[0] = 'b'
		}
		for range tx.All() {
			break
		}
		return nil
	}))
}

// TestRangeEndsWithItsTransaction: the body of a range may end the transaction, in the middle of a
// leaf too.
func TestRangeEndsWithItsTransaction(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 1000 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "k%04d", i), make([]byte, 50)))
		}
		return nil
	}))
	for _, reverse := range []bool{false, true} {
		for _, stop := range []int{1, 2, 7, 50, 1000} {
			tx := beginTx(t, db, false)
			n := 0
			for range tx.Scan(kv.ScanOptions{Reverse: reverse}) {
				if n++; n == stop {
					require.NoError(t, tx.Rollback())
				}
			}
			require.Equal(t, stop, n)
		}
	}
}

// TestRangesWithinRanges: ranges take their cursor from a pool, and each that runs has its own, also
// where the body of one panics or ends another.
func TestRangesWithinRanges(t *testing.T) {
	db := openTest(t)
	fill(t, db, "a", "b", "c", "d")
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		var seen []string
		for a := range tx.Scan(kv.ScanOptions{Upper: []byte("c")}) {
			for b := range tx.Scan(kv.ScanOptions{Lower: []byte("b"), Reverse: true}) {
				seen = append(seen, string(a)+string(b))
				if string(b) == "c" {
					break
				}
			}
			require.Panics(t, func() {
				for range tx.Prefix([]byte("d")) {
					panic("mine")
				}
			})
		}
		require.Equal(t, []string{"ad", "ac", "bd", "bc"}, seen)
		return tx.Err()
	}))
}

// TestRangeAllocatesNothing in a read transaction, after the first: a short range took as long to
// begin as fifty rows, a quarter of that for memory.
func TestRangeAllocatesNothing(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector drops what is in pools")
	}
	db := openTest(t)
	fill(t, db, "a", "b", "c", "d")
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		n := 0
		require.Zero(t, testing.AllocsPerRun(100, func() {
			for range tx.Scan(kv.ScanOptions{Lower: []byte("b"), Limit: 2}) {
				n++
			}
			for k := range tx.Prefix([]byte("c")) {
				n += len(k)
			}
			for range tx.All() {
				n++
			}
		}))
		require.Equal(t, 101*(2+1+4), n)
		return tx.Err()
	}))
}
