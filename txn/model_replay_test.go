package txn

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// ascendingModel is what a store holds in two trees, by key, each value behind its tag.
type ascendingModel [2]map[string]string

var risingTrees = [2]TreeID{CatalogTree, 9}

// require compares.
func (m ascendingModel) require(t *testing.T, s *Store) {
	t.Helper()
	view(t, s, func(tx *Tx) {
		for i, id := range risingTrees {
			have := map[string]string{}
			c := tx.Cursor(id)
			for ok := c.First(); ok; ok = c.Next() {
				have[string(c.Key())] = tagged(c.Tag(), c.Value())
			}
			require.NoError(t, c.Err())
			require.EqualValues(t, len(have), tx.Rows(id))
			require.True(t, maps.Equal(m[i], have), "tree %d: %d rows, want %d", id, len(have), len(m[i]))
		}
	})
}

func tagged(tag int64, value []byte) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(tag))) + string(value)
}

// change does something to the store and to the model: much of it puts rows behind all others, so
// that a log of it, in the order of keys, has puts whose keys rise, with something else between
// them.
func (m ascendingModel) change(t *testing.T, tx *Tx, rnd *rand.Rand) {
	i := min(rnd.IntN(4), 1)
	id, rows := risingTrees[i], m[i]
	put := func(key, value []byte, tag int64) {
		mustPut(t, tx, id, key, value, tag)
		rows[string(key)] = tagged(tag, value)
	}
	remove := func(key string) {
		mustDelete(t, tx, id, []byte(key))
		delete(rows, key)
	}
	size := func() int { return 50 + rnd.IntN(80) }
	key := func(i int) []byte {
		if i%1000 > 990 { // shares less with the others
			return fmt.Appendf(nil, "k%d", i)
		}
		return fmt.Appendf(nil, "key %06d", i)
	}
	some := func() string { return slices.Sorted(maps.Keys(rows))[rnd.IntN(len(rows))] }
	switch n := rnd.IntN(20); {
	case n < 8:
		for from, i := rnd.IntN(8000), 0; i < 300; i++ {
			put(key(from+i), make([]byte, size()), 0)
		}
	case n < 11:
		for range 100 {
			put(key(rnd.IntN(9000)), make([]byte, size()), int64(rnd.IntN(2)))
		}
	case n < 13: // a value that has a page, or an extent, to itself
		put(key(rnd.IntN(9000)), make([]byte, tree.MaxInline(DefaultPageSize, len(key(0)))+rnd.IntN(3)-1), 3)
	case n < 14:
		put(slices.Concat(key(rnd.IntN(9000)), make([]byte, 500)), nil, 0)
	case len(rows) == 0:
	case n < 16: // put and deleted, deleted and put, put twice
		for range 30 {
			k := key(rnd.IntN(9000))
			put(k, make([]byte, size()), 0)
			remove(string(k))
			put(key(rnd.IntN(9000)), []byte("first"), 0)
			k = key(rnd.IntN(9000))
			put(k, []byte("first"), 7)
			put(k, make([]byte, size()), 0)
		}
	case n < 18:
		for range 20 {
			if len(rows) > 0 {
				remove(some())
			}
		}
	case n < 19:
		k := some()
		_, err := tx.SetTag(id, []byte(k), 5)
		require.NoError(t, err)
		rows[k] = tagged(5, []byte(rows[k][8:]))
	case rnd.IntN(4) == 0: // nothing may change places with it
		lo, hi := some(), some()
		if lo > hi {
			lo, hi = hi, lo
		}
		_, err := tx.DeleteRange(id, []byte(lo), []byte(hi))
		require.NoError(t, err)
		maps.DeleteFunc(rows, func(k, _ string) bool { return k >= lo && k < hi })
	}
}

// TestAscendingPutsOfALog keep their values, whatever operations are between them, with one replay
// batch and with many, with goroutines and without.
func TestAscendingPutsOfALog(t *testing.T) {
	for _, c := range []struct {
		name   string
		cache  int64
		inline bool
	}{{"at_once", 64 << 20, true}, {"beside", 64 << 20, false}, {"in_pieces", 1 << 20, true},
		{"in_few_frames", 1, true}} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(seeds(3)) {
				rnd := rand.New(rand.NewPCG(seed, 5))
				fs := vfs.NewMemory()
				o := testOptions(fs)
				o.CheckpointBytes, o.CacheBytes = 1<<30, 64<<20
				s := openTest(t, "/a.ebb", o)
				m := ascendingModel{{}, {}}
				update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
				for i := range racetest.Sample(40, 24) {
					update(t, s, func(tx *Tx) {
						for range 3 {
							m.change(t, tx, rnd)
						}
					})
					if seed%3 == 2 && i == 20 {
						require.NoError(t, s.Checkpoint(t.Context()))
					}
				}
				m.require(t, s)
				o.FS, o.Inline, o.CacheBytes = copyFiles(t, fs), c.inline, c.cache
				again := openTest(t, "/a.ebb", o)
				m.require(t, again)
				requireSound(t, again)
				for range 5 {
					update(t, again, func(tx *Tx) { m.change(t, tx, rnd) })
				}
				m.require(t, again)
				require.NoError(t, again.Checkpoint(t.Context()))
				o.FS = copyFiles(t, o.FS)
				m.require(t, openTest(t, "/a.ebb", o))
			}
		})
	}
}

// TestReplayOfANewStoreFillsLeaves as if its rows had been put in order.
func TestReplayOfANewStoreFillsLeaves(t *testing.T) {
	racetest.OneGoroutine(t)
	const n = 20_000
	fs := vfs.NewMemory()
	o := testOptions(fs)
	o.CheckpointBytes, o.CacheBytes, o.SegmentSize = 1<<30, 64<<20, 1<<20
	s := openTest(t, "/a.ebb", o)
	all := inOrder(0, n)
	rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
	for some := range slices.Chunk(all, 1000) {
		update(t, s, func(tx *Tx) { require.NoError(t, tx.Apply(CatalogTree, some, nil)) })
	}
	o.FS = copyFiles(t, fs)
	again := openTest(t, "/a.ebb", o)
	requireRows(t, again, n)
	leaves := uint64(n / 29) // of 4096 bytes, and rows of 135 or so
	require.Less(t, again.pg.Alloc.UsedPages(), leaves+leaves/10+40)

	o.FS, o.ReadOnly = copyFiles(t, fs), true
	looks := mustOpen(t, o)
	requireRows(t, looks, n)
	require.Zero(t, looks.Stats().PagesWritten)
	require.NoError(t, looks.Close())
}

// TestCrashWhileReplayAppliesTheLog: recovery finds the older version, and replays the log again.
func TestCrashWhileReplayAppliesTheLog(t *testing.T) {
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CheckpointBytes, o.CacheBytes = 1<<30, 16<<20
	s := openTest(t, "/a.ebb", o)
	m := ascendingModel{{}, {}}
	rnd := rand.New(rand.NewPCG(1, 3))
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	for i := range 24 {
		update(t, s, func(tx *Tx) { m.change(t, tx, rnd) })
		if i == 8 {
			require.NoError(t, s.Checkpoint(t.Context()))
		}
	}
	written := uint64(0)
	onCrash(t, disk, o, 1, func(s *Store) {
		m.require(t, s)
		written += s.Stats().PagesWritten
	})
	require.NotZero(t, written)
}
