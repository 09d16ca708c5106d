package txn

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// A store whose tree 9 has three levels, and pages that no checkpoint has written: most changes there
// are made in place.
func openWide(t *testing.T) (*Store, *crashfs.Disk) {
	t.Helper()
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CheckpointBytes, o.CacheBytes, o.ManyFrom = 1<<30, 64<<20, 2
	s := mustOpen(t, o)
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(9))
		for i := range 20_000 {
			mustPut(t, tx, 9, undoKey(i), []byte(fmt.Sprint("first ", i)), int64(i%3))
		}
	})
	require.Equal(t, uint8(3), rootOf(s).Depth)
	return s, disk
}

func undoKey(i int) []byte { return fmt.Appendf(nil, "key-%016d", i*7919%1_000_003) }

func rootOf(s *Store) tree.Tree {
	t, _ := s.head.trees.get(9)
	return t
}

// frames are the bytes of all pages in use that no checkpoint has written.
func frames(t *testing.T, s *Store) map[pager.Pgid][]byte {
	t.Helper()
	all := map[pager.Pgid][]byte{}
	for id := range pager.Pgid(s.pg.Alloc.Pages()) {
		if s.pg.Pool.Owner(id) != 0 && s.pg.Pool.InFrame(id) {
			b, err := s.pg.Frame(pager.Ref{Pgid: id, Epoch: s.epoch}, s.w.View)
			require.NoError(t, err)
			all[id] = bytes.Clone(b)
		}
	}
	return all
}

func view(t *testing.T, s *Store, fn func(tx *Tx)) {
	t.Helper()
	tx := begin(t, s, false)
	defer tx.Rollback()
	fn(tx)
}

// shuffle changes rows of all kinds in all ways, n times.
func shuffle(t *testing.T, tx *Tx, rnd *rand.Rand, n int) {
	t.Helper()
	for range n {
		key := undoKey(rnd.Intn(21_000))
		var err error
		switch rnd.Intn(6) {
		case 5:
			some := make([]Change, 2+rnd.Intn(40))
			for i := range some {
				some[i] = Change{
					Key:   undoKey(rnd.Intn(21_000)),
					Value: make([]byte, rnd.Intn(40)),
					Tag:   int64(rnd.Intn(3)),
				}
				if rnd.Intn(3) == 0 {
					some[i] = Change{Key: some[i].Key, Delete: true}
				}
			}
			err = tx.Apply(9, some, make([]Info, len(some)))
		case 0:
			_, err = tx.Delete(9, key)
		case 1:
			_, err = tx.SetTag(9, key, int64(rnd.Intn(4)))
		case 2:
			err = tx.Apply(9, []Change{{Key: key, Value: []byte("first 7"), Delete: true}}, nil)
		default:
			_, err = tx.Put(9, key, make([]byte, rnd.Intn(40)), int64(rnd.Intn(3)))
		}
		require.NoError(t, err)
	}
}

// TestRowsThatFitAreUpdatedInPlace: no page is copied for a row that fits its page, nor for one that
// is deleted, or gets another value of the same size, or another tag.
func TestRowsThatFitAreUpdatedInPlace(t *testing.T) {
	s, _ := openWide(t)
	defer func() { require.NoError(t, s.Close()) }()
	before := rootOf(s)
	for name, change := range map[string]func(tx *Tx) error{
		"put": func(tx *Tx) error {
			_,
				err := tx.Put(9, []byte("key-0000000000000123x"), nil, 0)
			return err
		},
		"replace": func(tx *Tx) error { _, err := tx.Put(9, undoKey(5), []byte("other 5"), 2); return err },
		"tag":     func(tx *Tx) error { _, err := tx.SetTag(9, undoKey(4), 9); return err },
		"delete":  func(tx *Tx) error { _, err := tx.Delete(9, undoKey(8)); return err },
		"value": func(tx *Tx) error {
			return tx.Apply(9, []Change{{Key: undoKey(7), Value: []byte("first 7"), Delete: true}}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			pages := 0
			update(t, s, func(tx *Tx) {
				err = change(tx)
				pages = s.w.allocated.len()
			})
			require.NoError(t, err)
			require.Zero(t, pages)
			require.Equal(t, before.Root, rootOf(s).Root)
		})
	}
	require.Equal(t, before.Rows-1, rootOf(s).Rows)
	view(t, s, func(tx *Tx) {
		value, tag, found, err := tx.Get(9, undoKey(5))
		require.NoError(t, err)
		require.Equal(t, "other 5 2 true", fmt.Sprintf("%s %d %v", value, tag, found))
	})
	requireSound(t, s)
}

// TestRollbackLeavesEveryPageAsItWas to the last byte.
func TestRollbackLeavesEveryPageAsItWas(t *testing.T) {
	racetest.OneGoroutine(t)
	s, _ := openWide(t)
	defer func() { require.NoError(t, s.Close()) }()
	rnd := rand.New(rand.NewSource(1))
	for _, n := range []int{1, 2, 10, 100, 3000} {
		tx := begin(t, s, true)
		before := frames(t, s)
		shuffle(t, tx, rnd, n)
		require.True(t, n < 10 || s.w.undo != nil)
		tx.Rollback()
		require.True(t, maps.EqualFunc(before, frames(t, s), bytes.Equal))
		update(t, s, func(tx *Tx) { shuffle(t, tx, rnd, n) })
	}
	requireSound(t, s)
}

// TestConcurrentReaderSeesThePreviousVersion: while the transaction is open, after its commit or
// rollback, and while later ones change the same pages.
func TestConcurrentReaderSeesThePreviousVersion(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, end := range []string{"commit", "rollback"} {
		for _, look := range []string{"at once", "later"} {
			t.Run(end+", "+look, func(t *testing.T) {
				s, _ := openWide(t)
				defer func() { require.NoError(t, s.Close()) }()
				rnd := rand.New(rand.NewSource(2))
				rounds := 3
				if racetest.Quick() {
					rounds = 2
				}
				for range rounds {
					var was map[string]string
					view(t, s, func(tx *Tx) { was = contents(t, tx, 9) })
					tx := begin(t, s, true)
					shuffle(t, tx, rnd, 500)
					r := begin(t, s, false)
					if look == "at once" {
						require.True(t, maps.Equal(was, contents(t, r, 9)))
					}
					shuffle(t, tx, rnd, 500)
					own := contents(t, tx, 9)
					require.False(t, maps.Equal(was, own))
					if end == "commit" {
						require.NoError(t, tx.Commit(Sync))
					} else {
						tx.Rollback()
						own = was
					}
					require.True(t, maps.Equal(was, contents(t, r, 9)))
					view(t, s, func(tx *Tx) { require.True(t, maps.Equal(own, contents(t, tx, 9))) })
					update(t, s, func(tx *Tx) { shuffle(t, tx, rnd, 500) })
					require.True(t, maps.Equal(was, contents(t, r, 9)))
					rank, err := r.Rank(9, []byte("l"))
					require.NoError(t, err)
					require.EqualValues(t, len(was), rank, "the rows that branches count")
					r.Rollback()
				}
				requireSound(t, s)
			})
		}
	}
}

// TestReaderBeforeTheSyncSeesThePreviousVersion: of a commit that is not visible yet, or never will
// be, since its sync has failed.
func TestReaderBeforeTheSyncSeesThePreviousVersion(t *testing.T) {
	s, disk := openWide(t)
	var was map[string]string
	view(t, s, func(tx *Tx) { was = contents(t, tx, 9) })
	tx := begin(t, s, true)
	shuffle(t, tx, rand.New(rand.NewSource(3)), 500)
	disk.Inject(crashfs.Fault{Kinds: crashfs.KindSyncs, Sticky: true})
	require.Error(t, tx.Commit(Sync))
	for range 2 {
		view(t, s, func(tx *Tx) { require.True(t, maps.Equal(was, contents(t, tx, 9))) })
	}
	require.Error(t, s.Close())
}

// TestUndoBufferIsKeptForItsReaders: pages are copied until they have ended, and then changed in
// place again.
func TestUndoBufferIsKeptForItsReaders(t *testing.T) {
	s, _ := openWide(t)
	defer func() { require.NoError(t, s.Close()) }()
	touch := func(value string) (inPlace bool) {
		root := rootOf(s).Root
		update(t, s, func(tx *Tx) {
			mustPut(t, tx, 9, undoKey(5), []byte(value), 2)
		})
		return rootOf(s).Root == root
	}
	seen := func(r *Tx) string {
		value, _, _, err := r.Get(9, undoKey(5))
		require.NoError(t, err)
		return string(value)
	}
	require.True(t, touch("one   5"))
	tx := begin(t, s, true)
	mustPut(t, tx, 9, undoKey(5), []byte("two   5"), 2)
	r := begin(t, s, false)
	mustPut(t, tx, 9, undoKey(5), []byte("two!  5"), 2)
	require.Nil(t, s.w.Undo(), "it is frozen: nobody need look")
	require.NoError(t, tx.Commit(Sync))
	require.Equal(t, "one   5", seen(r))
	require.False(t, touch("three 5"))
	require.False(t, touch("four  5"))
	require.Equal(t, "one   5", seen(r))
	later := begin(t, s, false)
	r.Rollback()
	require.False(t, touch("five  5"), "the page is that of a version that is held")
	require.True(t, touch("six   5"), "it was copied after that version")
	require.Equal(t, "four  5", seen(later))
	later.Rollback()
	requireSound(t, s)
}

// TestSavepointEndsChangesInPlace: changes after it, which may be rolled back alone, copy pages.
func TestSavepointEndsChangesInPlace(t *testing.T) {
	s, _ := openWide(t)
	defer func() { require.NoError(t, s.Close()) }()
	rnd := rand.New(rand.NewSource(4))
	tx := begin(t, s, true)
	before := frames(t, s)
	shuffle(t, tx, rnd, 300)
	there := contents(t, tx, 9)
	sp := tx.Savepoint()
	shuffle(t, tx, rnd, 300)
	require.NoError(t, tx.RollbackTo(sp))
	require.True(t, maps.Equal(there, contents(t, tx, 9)))
	shuffle(t, tx, rnd, 300)
	tx.Rollback()
	require.True(t, maps.EqualFunc(before, frames(t, s), bytes.Equal))
}

// TestUndoIsBounded: a transaction that overwrites more than the undo buffer holds copies the rest,
// and is rolled back as a whole.
func TestUndoIsBounded(t *testing.T) {
	racetest.OneGoroutine(t)
	s := mustOpen(t, Options{FS: vfs.NewMemory()})
	defer func() { require.NoError(t, s.Close()) }()
	value := make([]byte, 900)
	fill := func(tx *Tx, value []byte) {
		for i := range 25_000 {
			mustPut(t, tx, 9, undoKey(i), value, 0)
		}
	}
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(9))
		fill(tx, value)
	})
	tx := begin(t, s, true)
	fill(tx, bytes.Repeat([]byte("x"), 900))
	require.Nil(t, s.w.Undo(), "it is full: nobody need look")
	require.NotZero(t, s.w.allocated.len())
	tx.Rollback()
	view(t, s, func(tx *Tx) {
		for i := range 25_000 {
			got, _, found, err := tx.Get(9, undoKey(i))
			require.True(t, err == nil && found && bytes.Equal(got, value), i)
		}
	})
}

// TestSnapshotsBesideRolledBackTransactions: readers begin at any moment of transactions that change
// rows in pairs, half of which are rolled back. Each sees one version, and none that was rolled back.
func TestSnapshotsBesideRolledBackTransactions(t *testing.T) {
	o := testOptions(vfs.NewMemory())
	o.Inline = false
	s := openTest(t, "/a.ebb", o)
	const pairs = 300
	put := func(n uint32, commit bool) {
		tx := begin(t, s, true)
		value := bytes.Repeat(fmt.Appendf(nil, "%08d", n), 12)
		// in an order in which neighbours lie in other pages: a page that is met twice running is
		// copied
		for i := range 3 * pairs {
			mustPut(t, tx, CatalogTree, fmt.Appendf(nil, "%d", i*101%pairs), value, 0)
		}
		if commit {
			require.NoError(t, tx.Commit(NoSync))
		} else {
			tx.Rollback()
		}
	}
	put(0, true)
	besideReaders(
		t,
		s,
		pairs,
		func(i int) []byte { return fmt.Appendf(nil, "%d", i) },
		0,
		400,
		func(n uint32) { put(n, n%2 == 0) },
	)
}

// besideReaders runs put so many times, a tenth of that under the race detector, beside readers of
// the rows keys in the catalog tree, which rest for a random time below pause. All rows have the
// same value in every state, and an even number in its first eight digits.
func besideReaders(
	t *testing.T,
	s *Store,
	rows int,
	key func(i int) []byte,
	pause time.Duration,
	rounds uint32,
	put func(n uint32),
) {
	t.Helper()
	var stop atomic.Bool
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			for rnd := rand.New(rand.NewSource(int64(g))); !stop.Load(); {
				tx, err := s.Begin(nil, false)
				if err != nil {
					t.Error(err)
					return
				}
				var first []byte
				for range 30 {
					v, _, found, err := tx.Get(CatalogTree, key(rnd.Intn(rows)))
					if err != nil || !found || first != nil && !bytes.Equal(v, first) || v[7]&1 != '0'&1 {
						t.Errorf("a snapshot shows %s and %s: %v", first, v, err)
						stop.Store(true)
						break
					}
					first = v
				}
				tx.Rollback()
				if pause > 0 {
					time.Sleep(time.Duration(rnd.Int63n(int64(pause))))
				}
			}
		})
	}
	if racetest.Enabled || racetest.Quick() {
		rounds /= 10
	}
	for n := uint32(0); n < rounds && !stop.Load(); n++ {
		put(n)
	}
	stop.Store(true)
	wg.Wait()
}
