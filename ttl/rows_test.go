package ttl

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/txn"
)

// A shelf is a store on a simulated disk with one family of so many keys: each with an even number
// i expires in second i+2.
const shelfKeys = 600

func shelfKey(i int) []byte { return fmt.Appendf(nil, "key-%04d", i) }

func openShelf(t *testing.T, disk *crashfs.Disk) *txn.Store {
	t.Helper()
	return openBounded(t, disk, 0)
}

// openBounded opens a store whose transactions have at most so many log bytes; 0: the default.
func openBounded(t *testing.T, disk *crashfs.Disk, most int64) *txn.Store {
	t.Helper()
	s, err := txn.Open("/a.ebb", txn.Options{FS: disk, NoMap: true, Inline: true, MaxTxnBytes: most})
	require.NoError(t, err)
	return s
}

// freshRows returns the Rows of an empty family in an open transaction; the test's end closes the
// store.
func freshRows(t *testing.T) Rows {
	t.Helper()
	s := openShelf(t, crashfs.New(crashfs.Options{}))
	r, done := rowsOf(t, s)
	t.Cleanup(func() {
		done(false)
		require.NoError(t, s.Close())
	})
	return r
}

func newShelf(t *testing.T) *crashfs.Disk {
	t.Helper()
	disk := crashfs.New(crashfs.Options{})
	s := openShelf(t, disk)
	r, done := rowsOf(t, s)
	for i := range shelfKeys {
		require.NoError(t, r.Put(shelfKey(i), make([]byte, 40), int64(1-i%2)*int64(i+2)*1000))
	}
	done(true)
	require.NoError(t, s.Close())
	return disk
}

// rowsOf begins a write transaction on the family, making it if need be.
func rowsOf(t *testing.T, s *txn.Store) (r Rows, done func(commit bool)) {
	t.Helper()
	tx, err := s.Begin(context.Background(), true)
	require.NoError(t, err)
	f, err := cf.Lookup(tx, "f")
	if err != nil {
		require.ErrorIs(t, err, cf.ErrNotFound)
		f, err = cf.Create(tx, "f", cf.Options{})
	}
	require.NoError(t, err)
	return Rows{Tx: tx, Family: f}, func(commit bool) {
		if !commit {
			tx.Rollback()
			return
		}
		require.NoError(t, tx.Commit(txn.Sync))
	}
}

func heard([]byte, []byte) error { return nil }

var writingVerbs = map[string]func(r Rows) error{
	"put":                    func(r Rows) error { return r.Put(shelfKey(4), []byte("v"), 99_000) },
	"put_for_ever":           func(r Rows) error { return r.Put(shelfKey(6), []byte("v"), 0) },
	"set_expiry":             func(r Rows) error { return r.SetExpiry(shelfKey(8), 99_000) },
	"persist":                func(r Rows) error { return r.SetExpiry(shelfKey(10), 0) },
	"delete":                 func(r Rows) error { return r.Delete(shelfKey(12)) },
	"apply":                  func(r Rows) error { return r.Apply(someChanges()) },
	"apply_held":             applyHeld,
	"clear":                  func(r Rows) error { return r.Clear() },
	"delete_range_of_some":   func(r Rows) error { return r.DeleteRange(shelfKey(7), shelfKey(590)) },
	"delete_range_from_none": func(r Rows) error { return r.DeleteRange(nil, shelfKey(50)) },
	"delete_range_of_all":    func(r Rows) error { return r.DeleteRange(nil, nil) },
	"purge": func(r Rows) error {
		_, _, err := r.Purge(300_000, 1000, Callbacks{Before: heard})
		return err
	},
	"purge_unheard": func(r Rows) error { _, _, err := r.Purge(300_000, 1000, Callbacks{}); return err },
	"purge_each": func(r Rows) error {
		_, _, err := r.Purge(300_000, 1000, Callbacks{After: heard})
		return err
	},
	"evict": func(r Rows) error {
		var notes []Note
		for i := 0; i < 200; i += 20 {
			notes = append(
				notes,
				Note{Base: r.Family.Base, Family: "f", Key: string(shelfKey(i)), Expiry: int64(i+2) * 1000},
			)
		}
		_, err := r.Evict(300_000, notes, Callbacks{Before: heard})
		return err
	},
}

// someChanges of rows with and without an expiry, to the one and the other, one of them twice.
func someChanges() []Change {
	return []Change{
		{Key: shelfKey(20), Value: []byte("v"), Tag: 99_000}, {Key: shelfKey(311), Value: []byte("v"),
			Tag: 98_000},
		{Key: shelfKey(500), Delete: true}, {Key: shelfKey(20), Value: []byte("w")},
	}
}

// applyHeld puts twice as many rows as Apply takes, and settles once.
func applyHeld(r Rows) error {
	e := NewIndexBuffer()
	defer e.Release()
	for i := range 2 {
		var some []Change
		for k := range ApplyRows {
			some = append(
				some,
				Change{Key: shelfKey(31 * (k + ApplyRows*i) % shelfKeys), Value: []byte("v"),
					Tag: int64(90_000 - k)},
			)
		}
		if err := r.ApplyBuffered(some, e, false); err != nil {
			return err
		}
	}
	return r.FlushIndexes(e)
}

var readingVerbs = map[string]func(r Rows) error{
	"get":   func(r Rows) error { _, _, _, err := r.Get(shelfKey(300)); return err },
	"info":  func(r Rows) error { _, _, _, err := r.Info(shelfKey(300)); return err },
	"first": func(r Rows) error { _, _, err := r.First(); return err },
	"due":   func(r Rows) error { _, err := r.Due(300_000); return err },
	"walk": func(r Rows) error {
		for w := r.ByExpiry(); ; {
			if _, _, ok, err := w.Next(); err != nil || !ok {
				return err
			}
		}
	},
	"check": func(r Rows) error {
		return Check(context.Background(), r.Tx, r.Family, func(err *badfile.Error) bool { return true })
	},
}

// TestReadErrorEndsTheVerbThatItHits fails the n-th read of every verb, n = 0, 1, 2 ... until it
// needs no more: the verb gives that error and no other, and does not take it for a key that is not
// there.
func TestReadErrorEndsTheVerbThatItHits(t *testing.T) {
	disk, failed := newShelf(t), 0
	for _, verbs := range []map[string]func(Rows) error{writingVerbs, readingVerbs} {
		for name, verb := range verbs {
			t.Run(name, func(t *testing.T) {
				n, err := requireReadErrors(t, disk, verb)
				require.NoError(t, err)
				failed += n
			})
		}
	}
	require.Greater(t, failed, 50, "reads that failed")
}

// requireReadErrors fails the reads of a verb, one after the other. It counts them, and gives what
// the verb says without.
func requireReadErrors(t *testing.T, disk *crashfs.Disk, verb func(Rows) error) (reads int, err error) {
	t.Helper()
	for n := 0; ; n++ {
		s := openShelf(t, disk)
		r, done := rowsOf(t, s)
		in := disk.Inject(crashfs.Fault{Kinds: crashfs.KindRead, N: n, Sticky: true})
		err := verb(r)
		in.Disarm()
		done(false)
		// A read of the free map that fails is the last of the store until it is opened again.
		if closed := s.Close(); closed != nil {
			require.ErrorIs(t, closed, txn.ErrFailed)
		}
		if in.Fired() == 0 {
			return n, err
		}
		require.ErrorIs(t, err, crashfs.ErrIO, "read %d", n)
		require.NotErrorIs(t, err, badfile.ErrCorrupt, "read %d", n)
	}
}

// TestLogThatCannotBeMadeEndsTheVerb: the first change of a session makes the log. Where that
// fails, each verb gives the error of its first change, and nothing is changed.
func TestLogThatCannotBeMadeEndsTheVerb(t *testing.T) {
	timed, plain := newShelf(t), crashfs.New(crashfs.Options{})
	s := openShelf(t, plain)
	r, done := rowsOf(t, s)
	for i := range shelfKeys {
		require.NoError(t, r.Put(shelfKey(i), nil, 0))
	}
	done(true)
	require.NoError(t, s.Close())
	for name, disk := range map[string]*crashfs.Disk{"timed": timed, "without_expiries": plain} {
		for verb, do := range writingVerbs {
			t.Run(name+"/"+verb, func(t *testing.T) {
				s := openShelf(t, disk)
				r, done := rowsOf(t, s)
				in := disk.Inject(crashfs.Fault{Kinds: crashfs.KindChanges, Sticky: true})
				err := do(r)
				in.Disarm()
				done(false)
				if in.Fired() == 0 { // nothing has an expiry, so there is nothing to purge
					require.NoError(t, err)
					require.Equal(t, "without_expiries", name)
					require.NoError(t, s.Close())
					return
				}
				require.ErrorIs(t, err, crashfs.ErrIO)
				require.ErrorIs(t, s.Close(), txn.ErrFailed)
				s = openShelf(t, disk)
				r, done = rowsOf(t, s)
				require.EqualValues(t, shelfKeys, r.Tx.Rows(r.Family.Data()))
				done(false)
				require.NoError(t, s.Close())
			})
		}
	}
}

// emptyBytes is Tx.Bytes of a transaction without changes.
const emptyBytes = 16

// TestVerbThatDoesNotFitChangesNothing leaves a transaction no room: a verb of several rows is
// refused before its first.
func TestVerbThatDoesNotFitChangesNothing(t *testing.T) {
	disk := newShelf(t)
	s := openBounded(t, disk, emptyBytes)
	defer func() { require.NoError(t, s.Close()) }()
	for name, verb := range writingVerbs {
		t.Run(name, func(t *testing.T) {
			r, done := rowsOf(t, s)
			defer done(false)
			require.ErrorIs(t, verb(r), txn.ErrTxnTooBig)
			require.EqualValues(t, emptyBytes, r.Tx.Bytes(), "nothing is logged")
			require.EqualValues(t, shelfKeys, r.Tx.Rows(r.Family.Data()))
			require.EqualValues(t, shelfKeys/2, r.Count())
			require.EqualValues(t, shelfKeys/2, r.Tx.Rows(r.Family.ExpiryIndex()))
		})
	}
}

// TestWhatIsHeldBackCountsForTheRoom: a transaction takes the same rows, whether the indexes come
// later or at once. When what is held back may not fit any more, it is settled, so that its real
// size counts.
func TestWhatIsHeldBackCountsForTheRoom(t *testing.T) {
	disk := newShelf(t)
	fit := func(most int64, held bool) (rows int) {
		s := openBounded(t, disk, emptyBytes+most)
		defer func() { require.NoError(t, s.Close()) }()
		r, done := rowsOf(t, s)
		defer done(false)
		e := NewIndexBuffer()
		defer e.Release()
		for ; ; rows++ {
			c := []Change{{Key: fmt.Appendf(nil, "new %d", rows), Value: make([]byte, 50), Tag: 99_000}}
			apply := func() error { return r.Apply(c) }
			if held {
				apply = func() error { return r.ApplyBuffered(c, e, false) }
			}
			if err := apply(); err != nil {
				require.ErrorIs(t, err, txn.ErrTxnTooBig)
				require.NoError(t, r.FlushIndexes(e))
				require.LessOrEqual(t, r.Tx.Bytes(), emptyBytes+most)
				require.Empty(t, findings(t, r))
				return rows
			}
		}
	}
	for _, most := range []int64{0, 500, 5_000, 100_000} {
		require.Equal(t, fit(most, false), fit(most, true), "%d bytes", most)
	}
	require.Greater(t, fit(100_000, true), 300)
}
