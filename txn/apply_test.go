package txn

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// batchStore opens a store in which every batch is one of many changes, with rows in tree 9.
func batchStore(t *testing.T, inline bool, rows int) *Store {
	t.Helper()
	o := testOptions(vfs.NewMemory())
	o.ManyFrom, o.Inline, o.CacheBytes = 2, inline, 4<<20
	if !inline {
		o.Choose = nil
	}
	s := openTest(t, "/a.ebb", o)
	fillTree(t, s, rows)
	return s
}

// fillTree makes tree 9, with rows, and says which.
func fillTree(t *testing.T, s *Store, rows int) map[string]string {
	t.Helper()
	all := map[string]string{}
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(9))
		for i := range rows {
			mustPut(t, tx, 9, batchKey(i), []byte("value"), 0)
			all[string(batchKey(i))] = "value"
		}
	})
	return all
}

func batchKey(i int) []byte { return fmt.Appendf(nil, "key-%04d-%06d", i*7919%10_000, i) }

// someChanges are n changes of keys below rows, none of them twice.
func someChanges(rnd *rand.Rand, n, rows int) []Change {
	changes := make([]Change, n)
	for i, k := range rnd.Perm(rows)[:n] {
		changes[i] = Change{Key: batchKey(k), Value: make([]byte, rnd.IntN(200))}
		if rnd.IntN(3) == 0 {
			changes[i] = Change{Key: batchKey(k), Delete: true}
		}
	}
	return changes
}

// TestBatchesBesideReaders: batches of all sizes beside readers, some rolled back, some with other
// changes in between, leave what their changes say.
func TestBatchesBesideReaders(t *testing.T) {
	const rows = 9000
	s := batchStore(t, false, rows)
	want := map[string]string{}
	view(t, s, func(tx *Tx) { want = contents(t, tx, 9) })
	rnd := rand.New(rand.NewPCG(9, 10))
	stop := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				tx, err := s.Begin(t.Context(), false)
				if err == nil {
					_, _, _, _ = tx.Get(9, batchKey(17))
					tx.Rollback()
				}
				time.Sleep(100 * time.Microsecond)
			}
		}
	})
	rounds := 60
	if racetest.Enabled || testing.Short() {
		rounds = 20
	}
	for range rounds {
		tx := begin(t, s, true)
		then := maps.Clone(want)
		for range 1 + rnd.IntN(3) {
			changes := someChanges(rnd, 1+rnd.IntN(3000), rows)
			for some := range slices.Chunk(changes, 1+rnd.IntN(3*ApplyRows)) {
				require.NoError(t, tx.applyAll(9, some, nil, false))
				for _, c := range some {
					if delete(then, string(c.Key)); !c.Delete {
						then[string(c.Key)] = string(c.Value)
					}
				}
				if rnd.IntN(400) == 0 {
					key := batchKey(rnd.IntN(rows))
					mustPut(t, tx, 9, key, make([]byte, 900), 0)
					then[string(key)] = string(make([]byte, 900))
				}
			}
		}
		if rnd.IntN(4) == 0 {
			tx.Rollback()
			continue
		}
		require.NoError(t, tx.Commit(NoSync))
		want = then
	}
	close(stop)
	beside.Wait()
	view(t, s, func(tx *Tx) { require.Equal(t, want, contents(t, tx, 9)) })
}
