package txn

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// scoutStore opens a store in which every batch gets a scout, with rows in tree 9.
func scoutStore(t *testing.T, inline bool, rows int) *Store {
	t.Helper()
	o := testOptions(vfs.NewMemory())
	o.ManyFrom, o.Inline, o.CacheBytes = 2, inline, 4<<20
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
			_, err := tx.Put(9, scoutKey(i), []byte("value"), 0)
			require.NoError(t, err)
			all[string(scoutKey(i))] = "value"
		}
	})
	return all
}

func scoutKey(i int) []byte { return fmt.Appendf(nil, "key-%04d-%06d", i*7919%10_000, i) }

// someChanges are n changes of keys below rows, none of them twice.
func someChanges(rnd *rand.Rand, n, rows int) []Change {
	changes := make([]Change, n)
	for i, k := range rnd.Perm(rows)[:n] {
		changes[i] = Change{Key: scoutKey(k), Value: make([]byte, rnd.IntN(200))}
		if rnd.IntN(3) == 0 {
			changes[i] = Change{Key: scoutKey(k), Delete: true}
		}
	}
	return changes
}

// TestScoutFindsWaysAheadOfTheTransaction: from the second window of a batch on it follows. Changes that come in order, or that are few, have none, nor have
// those of a tree that the transaction has changed before.
func TestScoutFindsWaysAheadOfTheTransaction(t *testing.T) {
	s := scoutStore(t, true, 3000)
	rnd := rand.New(rand.NewPCG(1, 2))
	begin := func() *Tx {
		tx, err := s.Begin(t.Context(), true)
		require.NoError(t, err)
		return tx
	}
	out := func(tx *Tx) bool { return tx.w.scout != nil && tx.w.scout.out }

	tx := begin()
	changes := someChanges(rnd, 2000, 3000)
	tx.sendScout(9, len(changes), keysOf(changes))
	require.True(t, out(tx))
	require.Equal(t, int64(scoutRing), tx.w.scout.found.Load(), "as far as it may go")
	followed := 0
	for some := range slices.Chunk(changes, ApplyRows) {
		state, err := tx.w.state(9)
		require.NoError(t, err)
		var ways tree.Ways
		if tx.w.follow(&ways, state, some) {
			followed++
		}
		tx.w.scout.taken -= int64(len(some))
		require.NoError(t, tx.applyAll(9, some, nil))
	}
	require.Equal(t, len(changes)/ApplyRows-1, followed)
	require.NoError(t, tx.Commit(NoSync))
	require.False(t, s.w.scout.out)
	for i := range s.w.scout.ring {
		require.Nil(t, s.w.scout.ring[i].Key, "the keys are the caller's")
	}

	tx = begin()
	tx.sendScout(9, 1, keysOf(changes))
	require.False(t, out(tx), "one change")
	tx.sendScout(9, ApplyRows-1, keysOf(changes[:ApplyRows-1]))
	require.False(t, out(tx), "fewer than are looked for at a time")
	ordered := slices.SortedFunc(slices.Values(changes), func(a, b Change) int { return slices.Compare(a.Key, b.Key) })
	tx.sendScout(9, len(ordered), keysOf(ordered))
	require.False(t, out(tx), "in order")
	tx.sendScout(10, len(changes), keysOf(changes))
	require.False(t, out(tx), "no such tree")
	tx.sendScout(9, len(changes), keysOf(changes))
	require.True(t, out(tx))
	require.NoError(t, tx.applyAll(9, changes[:40], nil))
	require.True(t, out(tx))
	_, err := tx.Put(9, []byte("another"), nil, 0)
	require.NoError(t, err)
	require.NoError(t, tx.applyAll(9, changes[40:80], nil))
	require.False(t, out(tx), "something else has changed the tree")
	tx.sendScout(9, len(changes), keysOf(changes))
	require.False(t, out(tx), "the tree is not what it was")
	tx.Rollback()
	tx.sendScout(9, len(changes), keysOf(changes))

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s.o.Inline = false
	tx = begin()
	tx.sendScout(9, len(changes), keysOf(changes))
	require.False(t, out(tx), "no other processor")
	tx.Rollback()
	s.o.Inline = true
}

// TestScoutThatFellBehindGoesOnBeforeTheTransaction: what it leaves out the transaction looks for itself.
func TestScoutThatFellBehindGoesOnBeforeTheTransaction(t *testing.T) {
	s := scoutStore(t, true, 5000)
	tx, err := s.Begin(t.Context(), true)
	require.NoError(t, err)
	changes := someChanges(rand.New(rand.NewPCG(3, 4)), 4000, 5000)
	tx.sendScout(9, len(changes), keysOf(changes))
	c := s.w.scout
	c.at.Store(1600)
	require.True(t, c.step(c.trip))
	found := c.found.Load()
	require.GreaterOrEqual(t, found, int64(1600+scoutLead))
	require.Less(t, found, int64(1600+scoutLead+2*ApplyRows))
	at := found - ApplyRows
	require.Equal(t, changes[at].Key, c.ring[at%scoutRing].Key)
	c.at.Store(1 << 20)
	require.False(t, c.step(c.trip), "there are no more")
	require.Equal(t, found, c.found.Load())
	tx.Rollback()
}

// slowKeys give nothing any more until they are let go on.
type slowKeys struct {
	aheadKeys
	calls       int
	asked, goOn chan struct{}
}

func (k *slowKeys) Next(keys [][]byte) int {
	if k.calls++; k.calls == 3 {
		close(k.asked)
		<-k.goOn
	}
	return k.aheadKeys.Next(keys)
}

// TestEndWaitsForTheScout: what it reads is there only as long as the transaction is. One that no processor was found for is not waited for, and looks at
// nothing when its time has come.
func TestEndWaitsForTheScout(t *testing.T) {
	for name, end := range map[string]func(tx *Tx) error{
		"commit":   func(tx *Tx) error { return tx.Commit(NoSync) },
		"rollback": func(tx *Tx) error { tx.Rollback(); return nil },
		"another":  func(tx *Tx) error { tx.sendScout(9, 2, keysOf(nil)); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := scoutStore(t, false, 3000)
			tx, err := s.Begin(t.Context(), true)
			require.NoError(t, err)
			changes := someChanges(rand.New(rand.NewPCG(5, 6)), 1000, 3000)
			keys := &slowKeys{aheadKeys: keysOf(changes), asked: make(chan struct{}), goOn: make(chan struct{})}
			tx.sendScout(9, len(changes), keys)
			require.NoError(t, tx.applyAll(9, changes[:10], nil))
			<-keys.asked
			done := make(chan error, 1)
			go func() { done <- end(tx) }()
			select {
			case <-done:
				require.Fail(t, "the transaction has ended while its scout was out")
			case <-time.After(20 * time.Millisecond):
			}
			close(keys.goOn)
			require.NoError(t, <-done)
			asked := keys.calls
			s.w.scout.explore(s.w.scout.trip - 1)
			require.Equal(t, asked, keys.calls)
			tx.Rollback()
		})
	}
}

// failingKeys panic when they are asked for the third time.
type failingKeys struct {
	aheadKeys
	calls int
	with  func()
}

func (k *failingKeys) Next(keys [][]byte) int {
	if k.calls++; k.calls == 3 {
		k.with()
	}
	return k.aheadKeys.Next(keys)
}

// TestScoutThatCannotGoOn: what a page of a damaged file may lead it to do ends its way, and nothing else. A broken promise of the engine is not
// kept back.
func TestScoutThatCannotGoOn(t *testing.T) {
	s := scoutStore(t, true, 3000)
	changes := someChanges(rand.New(rand.NewPCG(7, 8)), 1000, 3000)
	tx, err := s.Begin(t.Context(), true)
	require.NoError(t, err)
	var none []int
	tx.sendScout(9, len(changes), &failingKeys{aheadKeys: keysOf(changes), with: func() { none[len(changes)] = 1 }})
	require.Equal(t, int64(2*ApplyRows), s.w.scout.found.Load())
	require.NoError(t, tx.applyAll(9, changes, nil))
	require.NoError(t, tx.Commit(NoSync))

	tx, err = s.Begin(t.Context(), true)
	require.NoError(t, err)
	broken := errors.New("broken")
	require.PanicsWithValue(t, broken, func() {
		tx.sendScout(9, len(changes), &failingKeys{aheadKeys: keysOf(changes), with: func() { panic(broken) }})
	})
	tx.Rollback()
}

// TestBatchesWithScouts: batches of all sizes beside readers and checkpoints, some given up, some with other changes in between, leave what they would leave
// without.
func TestBatchesWithScouts(t *testing.T) {
	const rows = 9000
	s := scoutStore(t, false, rows)
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
					_, _, _, _ = tx.Get(9, scoutKey(17))
					tx.Rollback()
				}
				time.Sleep(100 * time.Microsecond)
			}
		}
	})
	scouts := 0
	rounds := 60
	if racetest.Enabled || testing.Short() {
		rounds = 20
	}
	for range rounds {
		tx, err := s.Begin(t.Context(), true)
		require.NoError(t, err)
		then := maps.Clone(want)
		for range 1 + rnd.IntN(3) {
			changes := someChanges(rnd, 1+rnd.IntN(3000), rows)
			tx.sendScout(9, len(changes), keysOf(changes))
			for some := range slices.Chunk(changes, 1+rnd.IntN(3*ApplyRows)) {
				require.NoError(t, tx.applyAll(9, some, nil))
				for _, c := range some {
					if delete(then, string(c.Key)); !c.Delete {
						then[string(c.Key)] = string(c.Value)
					}
				}
				if rnd.IntN(400) == 0 {
					key := scoutKey(rnd.IntN(rows))
					_, err := tx.Put(9, key, make([]byte, 900), 0)
					require.NoError(t, err)
					then[string(key)] = string(make([]byte, 900))
				}
			}
			if s.w.scout.found.Load() > 0 {
				scouts++
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
	if runtime.GOMAXPROCS(0) > 1 {
		require.Positive(t, scouts)
	}
}
