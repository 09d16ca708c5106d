package kv_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// A store with MaxBytes had 28.1 of 28.3 MB of its file free, after all rows had been deleted, and
// each of fifty puts was ErrNoSpace: what commits free is to be had after a checkpoint, and no put
// waited for one. A cache that purged on ErrNoSpace and tried once more was refused again by a
// quarter of its puts. A put waits for the checkpoint that makes space for it: ErrNoSpace says that
// what is stored and the row do not fit.

// boundCase is a store with MaxBytes.
type boundCase struct {
	max        int64
	size       int // of values, bytes
	durability kv.Durability
	memory     bool
}

func (c boundCase) String() string {
	where := "file"
	if c.memory {
		where = "memory"
	}
	return fmt.Sprintf("%dMiB_%d_%v_%s", c.max>>20, c.size, c.durability, where)
}

func boundCases() (all []boundCase) {
	if testing.Short() {
		return []boundCase{{8 << 20, 4_000, kv.NoSync, true}, {32 << 20, 40_000, kv.NoSync, true}}
	}
	return []boundCase{
		{32 << 20, 800, kv.NoSync, true}, {32 << 20, 800, kv.Sync, true},
		{32 << 20, 4_000, kv.NoSync, true}, {32 << 20, 4_000, kv.NoSync, false}, {32 << 20, 4_000,
			kv.Sync, false},
		{32 << 20, 40_000, kv.NoSync, true}, {32 << 20, 40_000, kv.Sync, false},
		{128 << 20, 4_000, kv.NoSync, false}, {512 << 20, 40_000, kv.NoSync, true},
	}
}

func (c boundCase) open(t *testing.T) *kv.DB {
	o := &kv.Options{MaxBytes: c.max, Durability: c.durability}
	if c.memory {
		return openOn(t, vfs.NewMemory(), o)
	}
	db := mustOpen(t, t.TempDir()+"/a.ebb", o)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func boundKey(n int) []byte { return fmt.Appendf(nil, "key-%08d", n) }

// fill puts rows until one does not fit, many in a transaction and then one by one, and counts
// them.
func (c boundCase) fill(t *testing.T, db *kv.DB, name string) (n int) {
	t.Helper()
	family, value := db.CF(name), make([]byte, c.size)
	for _, rows := range []int{1 << 20 / c.size, 20} {
		for {
			b := db.NewBatch()
			for i := range rows {
				b.CF(name).Put(boundKey(n+i), value)
			}
			err := db.Apply(t.Context(), b)
			if err != nil {
				require.ErrorIs(t, err, kv.ErrNoSpace)
				break
			}
			n += rows
		}
	}
	for {
		err := family.Put(boundKey(n), value)
		if err != nil {
			require.ErrorIs(t, err, kv.ErrNoSpace)
			return n
		}
		n++
	}
}

// TestPutsFindWhatWasFreedUnderMaxBytes by each kind of delete, at once.
func TestPutsFindWhatWasFreedUnderMaxBytes(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, c := range boundCases() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			db := c.open(t)
			rows := 0
			for _, freed := range []struct {
				name string
				free func(f *kv.Family, n int) error
			}{
				{"all", func(f *kv.Family, n int) error { return f.DeleteRange(nil, nil) }},
				{"single", func(f *kv.Family, n int) error {
					for i := range n / 2 {
						if err := f.Delete(boundKey(i)); err != nil {
							return err
						}
					}
					return nil
				}},
				{"range", func(f *kv.Family,
					n int) error {
					return f.DeleteRange(boundKey(n/4), boundKey(n))
				}},
				{"drop", func(f *kv.Family, n int) error {
					return db.Update(func(tx *kv.Tx) error {
						if err := tx.DropCF("f"); err != nil {
							return err
						}
						return tx.CreateCF("f", kv.CFOptions{})
					})
				}},
			} {
				require.NoError(t, db.Update(func(tx *kv.Tx) error {
					return tx.EnsureCF("f",
						kv.CFOptions{})
				}))
				f := db.CF("f")
				require.NoError(t, f.Clear())
				n := c.fill(t, db, "f")
				require.Greater(t, int64(n*c.size), c.max*55/100, "%s: %+v", freed.name, db.Stats())
				if rows > 0 {
					require.Greater(t, n, rows*9/10, "%s: no space is lost", freed.name)
				}
				rows = max(rows, n)
				require.NoError(t, freed.free(f, n))
				for i := range n / 4 {
					require.NoError(t, f.Put(boundKey(n+i), make([]byte, c.size)),
						"%s: put %d: %+v", freed.name, i, db.Stats())
				}
				s := db.Stats()
				require.LessOrEqual(t, s.FileBytes+s.LogBytes, c.max+c.max/32, freed.name)
			}
		})
	}
}

// TestACacheUnderMaxBytesIsRefusedOnceAtMost: on ErrNoSpace it deletes its oldest tenth, or its expired
// keys, and retries once.
func TestACacheUnderMaxBytesIsRefusedOnceAtMost(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, c := range boundCases() {
		for _, purges := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/purges_%v", c, purges), func(t *testing.T) {
				t.Parallel()
				now := time.UnixMilli(1e12)
				o := &kv.Options{MaxBytes: c.max, Durability: c.durability,
					Clock: func() time.Time { return now }}
				fs := vfs.NewMemory()
				db := openOn(t, fs, o)
				live := int(c.max * 3 / 10 / int64(c.size)) // rows
				oldest, refused := 0, 0
				put := func(n int) error {
					if n%3 == 0 {
						return db.Update(func(tx *kv.Tx) error {
							return tx.PutTTL(boundKey(n), make([]byte, c.size),
								time.Duration(live)*time.Second)
						})
					}
					return db.PutTTL(boundKey(n), make([]byte, c.size), time.Duration(live)*time.Second)
				}
				for n := range 6 * live {
					now = now.Add(time.Second)
					err := put(n)
					if errors.Is(err, kv.ErrNoSpace) {
						refused++
						if purges {
							_, err = db.PurgeExpired(t.Context(), kv.PurgeOptions{})
						} else {
							to := oldest + (n-oldest)/10
							err = db.DeleteRange(boundKey(oldest), boundKey(to))
							oldest = to
						}
						require.NoError(t, err)
						err = put(n)
					}
					require.NoError(t, err, "put %d: %+v", n, db.Stats())
				}
				require.Positive(t, refused)
			})
		}
	}
}

// TestNoPutWaitsForASnapshotUnderMaxBytes: no checkpoint frees the pages of a snapshot.
func TestNoPutWaitsForASnapshotUnderMaxBytes(t *testing.T) {
	racetest.OneGoroutine(t)
	c := boundCase{32 << 20, 4_000, kv.Sync, true}
	db := c.open(t)
	n := c.fill(t, db, "default")
	held := beginTx(t, db, false)
	require.NoError(t, db.Clear())
	require.NoError(t, db.Put(boundKey(0), make([]byte, c.size)), "in the pages kept for deletes")
	for i := range 5 {
		require.ErrorIs(t, db.Put(boundKey(i), make([]byte, c.size)), kv.ErrNoSpace)
	}
	require.NoError(t, held.Rollback())
	for i := range n / 2 {
		require.NoError(t, db.Put(boundKey(i), make([]byte, c.size)))
	}
}

// TestErrNoSpaceNamesItsBound: the path, MaxBytes as given, and the missing bytes. It was the bound of
// the main file, or 1.
func TestErrNoSpaceNamesItsBound(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, most := range []int64{400_000, 4 << 20} {
		db := openOn(t, vfs.NewMemory(), &kv.Options{MaxBytes: most})
		err := error(nil)
		for n := 0; err == nil; n++ {
			err = db.Put(boundKey(n), make([]byte, 4_000))
		}
		require.ErrorIs(t, err, kv.ErrNoSpace)
		require.ErrorContains(t, err, fmt.Sprintf("MaxBytes is %d", most))
		require.ErrorContains(t, err, ".ebb")
		require.Regexp(t, `\d+ bytes more are needed|needs \d+ more`, err.Error())
		t.Log(err)
	}
}

// TestDeletesWorkAtTheBound fills a bounded store until it is full, empties it, and fills it again.
func TestDeletesWorkAtTheBound(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, size := range []int{900, 3000} { // in the page, and in extents
		t.Run(fmt.Sprint(size), func(t *testing.T) { fillAndEmpty(t, make([]byte, size)) })
	}
}

func fillAndEmpty(t *testing.T, value []byte) {
	db := openOn(t, vfs.NewMemory(), &kv.Options{MaxBytes: 4 << 20, Durability: kv.NoSync})
	for round := range 3 {
		var err error
		n := 0
		for ; err == nil && n < 10_000; n++ {
			err = db.Put(fmt.Appendf(nil, "k%06d", n), value)
		}
		require.ErrorIs(t, err, kv.ErrNoSpace, "round %d", round)
		require.Greater(t, n, 500, "round %d", round)
		s := db.Stats()
		require.LessOrEqual(t, s.FileBytes+s.LogBytes, int64(4<<20))
		require.NoError(t, db.Delete([]byte("k000000")))
		require.NoError(t, db.Clear())
		require.NoError(t, db.Checkpoint(t.Context()))
	}
	require.NoError(t, db.Put([]byte("k"), value))
}

// TestLargeValuesAreOverwrittenAtTheBound: a checkpoint frees the pages that the log refers to, and
// a write that needs the space waits for it.
func TestLargeValuesAreOverwrittenAtTheBound(t *testing.T) {
	racetest.OneGoroutine(t)
	db := openOn(t, vfs.NewMemory(), &kv.Options{MaxBytes: 8 << 20})
	for i := range 100 {
		require.NoError(t, db.Put(fmt.Append(nil, i%2), make([]byte, 1<<20)), "put %d", i)
	}
}

// The bound was passed by what was freed, and nothing was to be had of it: a refused put of 6 MiB
// left 2.6 MB in the log each time, up to 132 MB under a bound of 32 MiB, since a checkpoint
// without changes made a log segment and gave none back; single deletes of random keys took the
// file to twice its bound, since they grew it before they filled holes, and the wait for a
// checkpoint ended when one before it did; a second bulk load found no space in an empty store.

// requireWithin is that main file and log together are within MaxBytes and what deletes may have
// above it.
func (c boundCase) requireWithin(t *testing.T, db *kv.DB, what string, args ...any) {
	t.Helper()
	s := db.Stats()
	if s.FileBytes+s.LogBytes > c.max+c.max/32 {
		what = fmt.Sprintf(what, args...)
		require.Fail(t, "past the bound", "%s: file %d, log %d", what, s.FileBytes, s.LogBytes)
	}
}

// spaceCases are small stores, in memory and in a file.
func spaceCases() []boundCase {
	return []boundCase{
		{32 << 20, 40_000, kv.NoSync, true},
		{32 << 20, 4_000, kv.NoSync, true},
		{32 << 20, 4_000, kv.Sync, false},
	}[:racetest.Sample(3, 1)]
}

// TestLargeTransactionsFitAfterClearUnderMaxBytes: a value, a batch and an Update of a fifth of the
// bound, and no number of refusals makes the log longer.
func TestLargeTransactionsFitAfterClearUnderMaxBytes(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, c := range spaceCases() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			db := c.open(t)
			c.fill(t, db, "default")
			require.NoError(t, db.Clear())
			for i := range 8 {
				require.NoError(t, db.Put([]byte("large"), make([]byte, c.max/5)), "put %d: %+v", i,
					db.Stats())
				c.requireWithin(t, db, "put %d", i)
			}
			require.NoError(t, db.Clear())
			c.fill(t, db, "default")
			require.NoError(t, db.Clear())
			rows := int(c.max) / 5 / c.size
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				for i := range rows {
					if err := tx.Put(boundKey(i), make([]byte, c.size)); err != nil {
						return err
					}
				}
				return nil
			}))
			c.requireWithin(t, db, "update")
			b := db.NewBatch()
			for i := range rows {
				b.Put(boundKey(rows+i), make([]byte, c.size))
			}
			require.NoError(t, db.Apply(t.Context(), b))
			c.requireWithin(t, db, "batch")
			for i := range racetest.Sample(50, 10) { // more than there is
				err := db.Update(func(tx *kv.Tx) error {
					for i := range 10 * rows {
						if err := tx.Put(boundKey(i), make([]byte, c.size)); err != nil {
							return err
						}
					}
					return nil
				})
				require.ErrorIs(t, err, kv.ErrNoSpace)
				c.requireWithin(t, db, "refusal %d", i)
			}
			for i := range racetest.Sample(50, 10) {
				require.ErrorIs(t, db.Put([]byte("large"), make([]byte, c.max)), kv.ErrNoSpace)
				c.requireWithin(t, db, "refused value %d", i)
			}
			require.NoError(t, db.Clear())
			require.NoError(t, db.Put([]byte("large"), make([]byte, c.max/5)))
		})
	}
}

// TestSingleDeletesOfRandomKeysStayUnderMaxBytes, turn after turn with puts of as many.
func TestSingleDeletesOfRandomKeysStayUnderMaxBytes(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, c := range []boundCase{
		{8 << 20, 800, kv.Sync, true},
		{32 << 20, 800, kv.NoSync, true},
		{32 << 20, 800, kv.NoSync, false},
	}[:racetest.Sample(3, 1)] {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			db := c.open(t)
			random := rand.New(rand.NewPCG(1, 1))
			var keys [][]byte
			put := func() error {
				key := fmt.Appendf(nil, "%016x", random.Uint64())
				err := db.Put(key, make([]byte, c.size))
				if err == nil {
					keys = append(keys, key)
				} else {
					require.ErrorIs(t, err, kv.ErrNoSpace)
				}
				c.requireWithin(t, db, "put")
				return err
			}
			for put() == nil {
			}
			require.Greater(t, int64(len(keys)*c.size), c.max*4/10)
			for range 6 {
				n := len(keys) / 10
				for _, key := range keys[:n] {
					require.NoError(t, db.Delete(key))
					c.requireWithin(t, db, "delete")
				}
				keys = keys[n:]
				for i := 0; i < n && put() == nil; i++ {
				}
			}
			require.Greater(t, int64(len(keys)*c.size), c.max*3/10)
			c.requireWithin(t, db, "end")
		})
	}
}

// TestABulkLoadFindsWhatWasFreedUnderMaxBytes: it reads its rows once, and so makes its checkpoint
// before.
func TestABulkLoadFindsWhatWasFreedUnderMaxBytes(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, c := range spaceCases() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			db := c.open(t)
			for i := range 4 {
				_, err := db.BulkLoad(t.Context(), "default", func(yield func(key, value []byte) bool) {
					for n := range 16_000_000 / c.size {
						if !yield(boundKey(n), make([]byte, c.size)) {
							return
						}
					}
				})
				require.NoError(t, err, "load %d: %+v", i, db.Stats())
				c.requireWithin(t, db, "load %d", i)
				require.NoError(t, db.Clear())
			}
		})
	}
}

// A cache with MaxBytes 32 MiB that deleted its oldest tenth, row by row, on each ErrNoSpace made
// 724 checkpoints for 2,103 deletes, and one for each tenth put that filled it again. A delete of a
// random row copies a page and frees one, which counts after a checkpoint only: near the bound each
// delete could make the next put fit or not, so each waited for a checkpoint. Now the main file
// borrows as many pages as are freed from the log's share, a thirty-second of MaxBytes at most.
