package ttl

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/txn"
)

// Damage that leaves every page whole: rows of the three trees that do not fit together.

// findings is what Check tells of the family.
func findings(t *testing.T, r Rows) (all []string) {
	t.Helper()
	require.NoError(t, Check(context.Background(), r.Tx, r.Family, func(err *badfile.Error) bool {
		all = append(all, err.Detail)
		return true
	}))
	return all
}

// put writes a row of one tree past the rules.
func put(t *testing.T, r Rows, id txn.TreeID, key, value []byte) {
	t.Helper()
	_, err := r.Tx.Put(id, key, value, 0)
	require.NoError(t, err)
}

// TestCheckNamesEachBrokenRow breaks a family of three keys in one way after the other: Check tells
// of that, and of nothing else.
func TestCheckNamesEachBrokenRow(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	s := openShelf(t, disk)
	defer func() { require.NoError(t, s.Close()) }()
	for _, test := range []struct {
		name string
		harm func(r Rows)
		want []string
	}{
		{"nothing", func(Rows) {}, nil},
		{"index_gone", func(r Rows) { require.NoError(t, r.Tx.Drop(r.Family.ExpiryIndex())) }, []string{
			"I4: one index exists, the other does not",
			"I4: 3 rows in the key index, 0 in the expiry index",
			"I1: a key-index row has no expiry row (expiry 1000)",
			"I1: a key-index row has no expiry row (expiry 2000)",
			"I1: a key-index row has no expiry row (expiry 3000)",
		}},
		{"expiry_row_cut_short", func(r Rows) {
			put(t, r, r.Family.ExpiryIndex(), []byte("12345678"),
				nil)
		}, []string{
			"I4: 3 rows in the key index, 4 in the expiry index",
			"I3: expiry index: corrupt: expiry row of 8 bytes, expected at least 9",
		}},
		{"expiry_row_with_value", func(r Rows) {
			put(t, r, r.Family.ExpiryIndex(), appendDue(nil, 2000, []byte("b")), []byte("v"))
		}, []string{"I3: expiry row with a value of 1 bytes"}},
		{"key_index_value_cut_short", func(r Rows) {
			put(t, r, r.Family.KeyIndex(), []byte("b"),
				[]byte("2000"))
		}, []string{
			"I3: key index: corrupt: expiry of 4 bytes, expected 8",
		}},
		{"expiry_changed", func(r Rows) {
			put(t, r, r.Family.KeyIndex(), []byte("b"),
				appendExpiry(nil, 7))
		}, []string{
			"I1: a key-index row has no expiry row (expiry 7)",
			"I2: a key-index row has a data row with another expiry (7, 2000)",
			"I1: an expiry row has no key-index row (expiry 2000)",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, done := rowsOf(t, s)
			defer done(false)
			for i, key := range []string{"a", "b", "c"} {
				require.NoError(t, r.Put([]byte(key), []byte("v"), int64(i+1)*1000))
			}
			test.harm(r)
			require.Equal(t, test.want, findings(t, r))
			stopped := 0
			require.NoError(t, Check(context.Background(), r.Tx, r.Family, func(*badfile.Error) bool {
				stopped++
				return false
			}))
			require.Equal(t, min(len(test.want), 1), stopped, "who has heard enough hears no more")
		})
	}
}

// TestExpiryRowThatDoesNotDecodeIsCorrupt for walks in the order of expiry.
func TestExpiryRowThatDoesNotDecodeIsCorrupt(t *testing.T) {
	r := freshRows(t)
	require.NoError(t, r.Put([]byte("k"), nil, 1000))
	put(t, r, r.Family.ExpiryIndex(), []byte("short"), nil)
	_, _, _, err := r.ByExpiry().Next()
	require.NoError(t, err, "the row before it")
	for name, verb := range map[string]func() error{
		"purge": func() error { _, _, err := r.Purge(math.MaxInt64, 10, Callbacks{}); return err },
		"walk":  func() error { return readingVerbs["walk"](r) },
	} {
		err := verb()
		require.ErrorIs(t, err, badfile.ErrCorrupt, name)
		require.ErrorContains(t, err, `family "f": expiry index: expiry row of 5 bytes`, name)
	}
}

// TestSweepBelievesTheKeyIndex gives a family two wrong expiry rows, and one key without a data row.
// OnExpire is called for none of them; the rows are deleted, and count as stale.
func TestSweepBelievesTheKeyIndex(t *testing.T) {
	for name, onExpire := range map[string]bool{"heard": true, "unheard": false} {
		t.Run(name, func(t *testing.T) {
			r := freshRows(t)
			require.NoError(t, r.Put([]byte("a"), []byte("v"), 1000))
			require.NoError(t, r.Put([]byte("b"), []byte("v"), 1000))
			_, err := r.Tx.Delete(r.Family.Data(), []byte("b"))
			require.NoError(t, err)
			put(t, r, r.Family.ExpiryIndex(), appendDue(nil, 500, []byte("a")), nil)
			// looked at when no key has an expiry any more
			put(t, r, r.Family.ExpiryIndex(), appendDue(nil, 600, []byte("z")), nil)
			var told []string
			hear := func(key, _ []byte) error { told = append(told, string(key)); return nil }
			if !onExpire {
				hear = nil
			}
			swept, more, err := r.Purge(2000, 10, Callbacks{Before: hear})
			require.NoError(t, err)
			require.False(t, more)
			require.Equal(t, PurgeStats{Keys: 1, Bytes: 2, Stale: 3}, swept)
			if onExpire {
				require.Equal(t, []string{"a"}, told)
			}
			require.Empty(t, findings(t, r))
			require.Zero(t, r.Count())
			swept, err = r.Evict(2000, noteOfA(r), Callbacks{Before: hear})
			require.NoError(t, err)
			require.False(t, swept.Changed(), "there is nothing left to evict")
		})
	}
}

// TestIndexRowsOfALostDataRowAreStale: their delete is a change, or the transaction would roll it
// back.
func TestIndexRowsOfALostDataRowAreStale(t *testing.T) {
	for name, sweep := range map[string]func(r Rows) (PurgeStats, error){
		"purge": func(r Rows) (PurgeStats, error) {
			s, _, err := r.Purge(1000, 10, Callbacks{Before: heard})
			return s, err
		},
		"evict": func(r Rows) (PurgeStats, error) {
			return r.Evict(1000, noteOfA(r), Callbacks{Before: heard})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := freshRows(t)
			require.NoError(t, r.Put([]byte("a"), []byte("v"), 1000))
			_, err := r.Tx.Delete(r.Family.Data(), []byte("a"))
			require.NoError(t, err)
			swept, err := sweep(r)
			require.NoError(t, err)
			require.Equal(t, PurgeStats{Stale: 1}, swept)
			require.True(t, swept.Changed())
			require.Empty(t, findings(t, r))
		})
	}
}

// TestMissingIndexIsNamed by the verb that would write to it: a row had an expiry, so that both
// should be there. Without the name a transaction could commit what that verb had done by then.
func TestMissingIndexIsNamed(t *testing.T) {
	key := []byte("b")
	verbs := map[string]func(r Rows) error{
		"put":          func(r Rows) error { return r.Put(key, []byte("w"), 9000) },
		"put_for_ever": func(r Rows) error { return r.Put(key, []byte("w"), 0) },
		"set_expiry":   func(r Rows) error { return r.SetExpiry(key, 9000) },
		"persist":      func(r Rows) error { return r.SetExpiry(key, 0) },
		"delete":       func(r Rows) error { return r.Delete(key) },
		"apply_puts": func(r Rows) error {
			return r.Apply([]Change{{Key: key, Tag: 9000},
				{Key: []byte("n"), Tag: 9000}})
		},
		"apply_deletions": func(r Rows) error {
			return r.Apply([]Change{{Key: key, Delete: true}, {Key: []byte("c"), Delete: true}})
		},
		"runs": func(r Rows) error {
			e := NewIndexBuffer()
			defer e.Release()
			if err := r.ApplyBuffered([]Change{{Key: key, Delete: true}}, e, false); err != nil {
				return err
			}
			_, err := r.Runs(e)
			return err
		},
		"delete_range": func(r Rows) error { return r.DeleteRange(key, []byte("c")) },
		"evict": func(r Rows) error {
			_, err := r.Evict(
				5000,
				[]Note{{Base: r.Family.Base, Family: "f", Key: "b", Expiry: 2000}},
				Callbacks{Before: func(key, _ []byte) error {
					t.Errorf("%s stays", key)
					return nil
				}},
			)
			return err
		},
	}
	for name, index := range map[string]func(r Rows) txn.TreeID{
		"key index":    func(r Rows) txn.TreeID { return r.Family.KeyIndex() },
		"expiry index": func(r Rows) txn.TreeID { return r.Family.ExpiryIndex() },
	} {
		for verb, do := range verbs {
			t.Run(name+"/"+verb, func(t *testing.T) {
				r := freshRows(t)
				for i, key := range []string{"a", "b", "c"} {
					require.NoError(t, r.Put([]byte(key), []byte("v"), int64(i+1)*1000))
				}
				require.NoError(t, r.Tx.Drop(index(r)))
				err := do(r)
				// Without a key index the family counts as one without expiries: I5. These look at
				// no index then.
				if name == "key index" &&
					slices.Contains([]string{"put_for_ever", "apply_deletions", "runs",
						"delete_range", "evict"}, verb) {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, badfile.ErrCorrupt)
				require.ErrorContains(t, err,
					fmt.Sprintf(`family "f": I4: %s, tree %d, is missing`, name, index(r)))
			})
		}
	}
}

// TestClearedFamilyHasItsIndexesAgain, also one that had lost one of them: it has no rows that the
// other one could tell of.
func TestClearedFamilyHasItsIndexesAgain(t *testing.T) {
	for _, index := range []func(r Rows) txn.TreeID{
		func(r Rows) txn.TreeID { return r.Family.KeyIndex() },
		func(r Rows) txn.TreeID { return r.Family.ExpiryIndex() },
	} {
		r := freshRows(t)
		require.NoError(t, r.Put([]byte("a"), []byte("v"), 1000))
		require.NoError(t, r.Tx.Drop(index(r)))
		require.NoError(t, r.Clear())
		require.NoError(t, r.Put([]byte("b"), []byte("v"), 1000))
		require.Empty(t, findings(t, r))
	}
}

// TestReadErrorOfADamagedRowIsNoDamage tells the story of a key-index row with a value so long that
// it lay outside the tree. A read of it that failed gave no bytes, which DeleteRange took for an
// expiry of no bytes, and called damage.
func TestReadErrorOfADamagedRowIsNoDamage(t *testing.T) {
	disk := newShelf(t)
	s := openShelf(t, disk)
	r, done := rowsOf(t, s)
	put(t, r, r.Family.KeyIndex(), shelfKey(100), make([]byte, 10_000))
	done(true)
	require.NoError(t, s.Close())
	n, err := requireReadErrors(t, disk, readingVerbs["check"])
	require.NoError(t, err, "Check reports the row")
	require.Greater(t, n, 10)
	n, err = requireReadErrors(t, disk, writingVerbs["delete_range_of_some"])
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.ErrorContains(t, err, "key index: expiry of 10000 bytes")
	require.Greater(t, n, 2)
}

// TestCheckEndsWithItsContext in the middle of a tree, with the error of the context.
func TestCheckEndsWithItsContext(t *testing.T) {
	s := openShelf(t, newShelf(t))
	defer func() { require.NoError(t, s.Close()) }()
	r, done := rowsOf(t, s)
	defer done(false)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, Check(ctx, r.Tx, r.Family, func(*badfile.Error) bool { return true }),
		context.Canceled)
}

// TestHollowFamilyHasNoRows: it is what a reader is given of a store without any commit, and no
// tree is looked at for it.
func TestHollowFamilyHasNoRows(t *testing.T) {
	s := openShelf(t, crashfs.New(crashfs.Options{}))
	defer func() { require.NoError(t, s.Close()) }()
	tx, err := s.Begin(context.Background(), false)
	require.NoError(t, err)
	defer tx.Rollback()
	r := Rows{Tx: tx, Family: &cf.Family{Name: cf.Default}}
	require.False(t, r.HasExpiries())
	require.Empty(t, findings(t, r))
	due, err := r.Due(math.MaxInt64)
	require.NoError(t, err)
	require.Zero(t, due)
}

// TestAtTheEndOfTimeEverythingIsDue: the instant behind the last one cannot be looked up.
func TestAtTheEndOfTimeEverythingIsDue(t *testing.T) {
	r := freshRows(t)
	require.NoError(t, r.Put([]byte("a"), nil, 1000))
	require.NoError(t, r.Put([]byte("b"), nil, math.MaxInt64))
	for now, want := range map[int64]int64{999: 0, 1000: 1, math.MaxInt64 - 1: 1, math.MaxInt64: 2} {
		due, err := r.Due(now)
		require.NoError(t, err)
		require.Equal(t, want, due, "at %d", now)
	}
}

// TestInstantsTooEarlyToCountAreTheFirstOne: they lie before every expiry, whatever a clock says.
func TestInstantsTooEarlyToCountAreTheFirstOne(t *testing.T) {
	for _, s := range []int64{math.MinInt64 / 1000, math.MinInt64/1000 - 1} {
		ms, ok := CeilMs(time.Unix(s, 0))
		require.True(t, ok)
		require.Equal(t, int64(math.MinInt64), ms)
	}
	ms, ok := CeilMs(time.Unix(math.MinInt64/1000+1, 1))
	require.True(t, ok)
	require.Equal(t, int64(math.MinInt64/1000*1000+1001), ms)
}

// TestQueueIsBoundedInBytesToo: keys may be long. What does not fit is forgotten, and fits again
// when notes were taken. Until then the queue is full: writers evict before they begin, where they
// would not take the time for it else.
func TestQueueIsBoundedInBytesToo(t *testing.T) {
	var q Queue
	f := &cf.Family{Name: "f", Base: 8}
	key := make([]byte, maxNoteBytes/4)
	for i := range 6 {
		require.Equal(t, i > 4, q.Full())
		key[0] = byte(i)
		q.Add(f, key, 1)
	}
	require.Equal(t, 4, q.Len())
	require.True(t, q.Full())
	require.Len(t, q.Take(1), 1)
	require.False(t, q.Full())
	q.Add(f, key, 1)
	require.Equal(t, 4, q.Len())
	last := q.Take(10)
	require.Equal(t, string(key), last[3].Key)
	require.Zero(t, q.Len())
}

// noteOfA is what a reader notes that found the key a expired.
func noteOfA(r Rows) []Note {
	return []Note{{Base: r.Family.Base, Family: "f", Key: "a", Expiry: 1000}}
}
