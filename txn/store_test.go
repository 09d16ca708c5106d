package txn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

func rowsUpTo(n int) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for i := range n {
			if !yield([]byte(fmt.Sprintf("%08d", i)), []byte(fmt.Sprint(i))) {
				return
			}
		}
	}
}

// bulkLoad is BulkLoad of the rows of a sequence.
func (s *Store) bulkLoad(
	ctx context.Context, fn func(*Tx) error, id TreeID, rows iter.Seq2[[]byte, []byte],
) (uint64, error) {
	return s.BulkLoad(ctx, fn, id, func(add func(key, value []byte, tag int64) error) error {
		for key, value := range rows {
			if err := add(key, value, 0); err != nil {
				return err
			}
		}
		return nil
	})
}

func create(id TreeID) func(*Tx) error { return func(tx *Tx) error { return tx.Create(id) } }

// TestPagesOfTwoEpochsInOneCheckpoint: a load that fails between two checkpoints ends an epoch, and
// nothing else.
func TestPagesOfTwoEpochsInOneCheckpoint(t *testing.T) {
	fs := vfs.NewMemory()
	o := testOptions(fs)
	o.CheckpointBytes = 0
	s, err := Open("/a.ebb", o)
	require.NoError(t, err)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	const n = 2000
	want := 0
	for i := range 8 {
		update(t, s, func(tx *Tx) {
			// Each round changes pages of the rounds before, gives some up, and makes new ones.
			for row := range n {
				key := fmt.Appendf(nil, "%04d", row)
				switch {
				case row%8 == i:
					mustPut(t, tx, 9, key, make([]byte, 300), 0)
					want++
				case row%8 == i-2 && row < n/2:
					mustDelete(t, tx, 9, key)
					want--
				}
			}
		})
		_, err = s.bulkLoad(nil, create(10), 10, func(yield func(key, value []byte) bool) {
			_ = yield([]byte("b"), make([]byte, 9000)) && yield([]byte("a"), nil)
		})
		require.ErrorIs(t, err, ErrOrder)
		if i == 5 {
			require.NoError(t, s.Checkpoint(nil))
			requireSound(t, s)
		}
	}
	requireSound(t, s)
	require.NoError(t, s.Close())
	s = openTest(t, "/a.ebb", o)
	read := begin(t, s, false)
	defer read.Rollback()
	require.Len(t, contents(t, read, 9), want)
}

// TestEveryFailedOperationEndsInADefiniteState fails the n-th operation of a session, n = 0, 1, 2
// ... until one passes, and opens the files again: what was acknowledged is there, what failed for
// certain is not.
func TestEveryFailedOperationEndsInADefiniteState(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, fault := range []crashfs.Fault{
		{Kinds: crashfs.KindWrite | crashfs.KindSyncs}, {Do: crashfs.Gate}, {Do: crashfs.Short},
		{Do: crashfs.Zero},
	} {
		n := 0
		for ; ; n++ {
			disk := crashfs.New(crashfs.Options{Direct: n%2 == 0})
			o := testOptions(disk)
			o.CheckpointBytes = 40 << 10
			failures := 0
			o.Events.Failure = func(error) { failures++ }
			s, err := Open("/a.ebb", o)
			require.NoError(t, err)
			fault.N = n
			in := disk.Inject(fault)
			sure, maybe := 0, 0
			var first error
			for i := 1; i <= 12; i++ {
				tx, err := s.Begin(nil, true)
				if err != nil {
					require.ErrorIs(t, err, ErrFailed)
					break
				}
				for k := range 30 {
					if _, err = tx.Put(CatalogTree, []byte(fmt.Sprintf("%d-%d", i, k)),
						make([]byte, 100+100*(k%4)), 0); err != nil {
						break
					}
				}
				if err == nil && i%3 == 0 {
					_, err = tx.Put(CatalogTree, []byte(fmt.Sprintf("%d-big", i)), make([]byte, 9000), 0)
				}
				if err != nil {
					tx.Rollback()
				} else {
					err = tx.Commit(Durability(i % 2))
				}
				switch {
				case err == nil:
					sure, maybe = i, i
					continue
				case errors.Is(err, ErrUnknown):
					maybe = i
				default:
					require.ErrorIs(t, err, ErrFailed)
				}
				first = err
				break
			}
			if s.Failed() != nil {
				require.Equal(t, 1, failures)
				_, err = s.Begin(nil, true)
				require.ErrorIs(t, err, ErrFailed)
				require.ErrorIs(t, s.Sync(), ErrFailed)
				require.ErrorIs(t, s.Checkpoint(nil), ErrFailed)
				read, err := s.Begin(nil, false)
				require.NoError(t, err, "snapshots go on reading")
				_ = contents(t, read, CatalogTree)
				read.Rollback()
			}
			_ = s.Close()
			if first == nil && in.Fired() == 0 {
				break
			}
			s, err = Open("/a.ebb", o)
			require.NoError(t, err, "fault %+v after %v", fault, first)
			read := begin(t, s, false)
			rows := contents(t, read, CatalogTree)
			last := 0
			for i := 1; i <= 12; i++ {
				have := 0
				for k := range 30 {
					if _, ok := rows[fmt.Sprintf("%d-%d", i, k)]; ok {
						have++
					}
				}
				require.True(t, have == 0 || have == 30, "commit %d is there in part", i)
				if have > 0 {
					require.Equal(t, i-1, last, "a hole before commit %d", i)
					last = i
				}
			}
			require.GreaterOrEqual(t, last, sure, "%+v: %v", fault, first)
			require.LessOrEqual(t, last, maybe, "%+v: %v", fault, first)
			read.Rollback()
			requireSound(t, s)
			require.NoError(t, s.Close())
		}
		require.Greater(t, n, 10)
	}
}

func copyFiles(t *testing.T, from vfs.FS) vfs.FS {
	t.Helper()
	to := vfs.NewMemory()
	copyFilesTo(t, from, to)
	return to
}

// copyFilesTo copies all files of from to a disk, and makes them durable.
func copyFilesTo(t *testing.T, from, to vfs.FS) {
	t.Helper()
	names, err := from.List("/")
	require.NoError(t, err)
	for _, name := range names {
		copyFile(t, from, to, "/"+name)
	}
	require.NoError(t, to.SyncDir("/"))
}

func copyFile(t *testing.T, from, to vfs.FS, name string) {
	t.Helper()
	f, err := from.Open(name, 0)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	b := make([]byte, size)
	require.NoError(t, vfs.ReadFull(f, b, 0))
	require.NoError(t, f.Close())
	writeFile(t, to, name, b)
}

func TestTransactionAboveTheLimitIsRefusedAtThePutThatCrossesIt(t *testing.T) {
	o := testOptions(vfs.NewMemory())
	o.MaxTxnBytes = 10000
	s := openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) {
		var err error
		n := 0
		for ; err == nil; n++ {
			_, err = tx.Put(CatalogTree, []byte(fmt.Sprint(n)), make([]byte, 900), 0)
		}
		require.ErrorIs(t, err, ErrTxnTooBig)
		require.Equal(t, 12, n)
		require.LessOrEqual(t, tx.Bytes(), int64(10000))
		require.NoError(t, tx.Err(), "it can be committed as it is")
	})
}

func TestLargeTransactionsAppendToTheLogEarly(t *testing.T) {
	disk := vfs.NewMemory()
	s := mustOpen(t, testOptions(disk))
	fill := func(tx *Tx, tag string) {
		for i := range 30 {
			_, err := tx.Put(
				CatalogTree,
				[]byte(fmt.Sprint(tag, i)),
				bytes.Repeat([]byte{byte(i)}, 100_000+i*10_000),
				0,
			)
			require.NoError(t, err)
		}
		mustPut(t, tx, CatalogTree, []byte(tag), []byte("end"), 0)
	}
	tx := begin(t, s, true)
	fill(tx, "gone")
	tx.Rollback()
	update(t, s, func(tx *Tx) { fill(tx, "kept") })
	image := copyFiles(t, disk)
	require.NoError(t, s.Close())
	s = openTest(t, "/a.ebb", testOptions(image))
	require.False(t, s.Recovery().Clean)
	read := begin(t, s, false)
	defer read.Rollback()
	require.Equal(t, uint64(31), read.Rows(CatalogTree))
	_, _, found, err := read.Get(CatalogTree, []byte("gone"))
	require.NoError(t, err)
	require.False(t, found)
}

func TestAbandonLeavesReadersTheirMemory(t *testing.T) {
	disk := vfs.NewMemory()
	s := mustOpen(t, testOptions(disk))
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, CatalogTree, []byte("k"), []byte("value"), 0)
	})
	read := begin(t, s, false)
	v, _, _, err := read.Get(CatalogTree, []byte("k"))
	require.NoError(t, err)
	require.NoError(t, s.Abandon())
	require.Equal(t, "value", string(v))
	read.Rollback()
	s = openTest(t, "/a.ebb", testOptions(disk))
	require.True(t, s.Recovery().Clean)
}

func TestStampsChangeWithTheTree(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	seen := map[uint64]bool{}
	for i := range 5 {
		update(t, s, func(tx *Tx) {
			require.False(t, tx.read)
			before := tx.Stamp(CatalogTree)
			mustPut(t, tx, CatalogTree, []byte{byte(i)}, nil, 0)
			after := tx.Stamp(CatalogTree)
			require.NotEqual(t, before, after)
			require.False(t, seen[after])
			seen[after] = true
			tx.SetMark(int64(100 + i))
		})
		read := begin(t, s, false)
		require.Equal(t, int64(100+i), read.Mark())
		require.Equal(t, uint64(i+1), read.Seq())
		require.True(t, seen[read.Stamp(CatalogTree)])
		require.Zero(t, read.Stamp(99))
		require.False(t, read.done)
		read.Rollback()
		require.True(t, read.done)
		require.Zero(t, read.Stamp(CatalogTree))
		require.Zero(t, read.Rows(CatalogTree))
		require.False(t, read.Exists(CatalogTree))
	}
	require.NoError(t, s.Sync())
}

// TestClockMarkIsFinalOnceItIsLogged: a commit has one mark, in memory and in the log.
func TestClockMarkIsFinalOnceItIsLogged(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	s := openTest(t, "/a.ebb", testOptions(disk))
	marks := map[string]int64{}
	update(t, s, func(tx *Tx) {
		tx.SetMark(7)
		tx.SetDurability(NoSync) // else the log references the value
		mustPut(t, tx, CatalogTree, []byte("large"), make([]byte, 2*redoChunk), 0)
		tx.SetMark(8)
		marks["in the transaction"] = tx.Mark()
	})
	read := func(name string, s *Store) {
		tx := begin(t, s, false)
		marks[name] = tx.Mark()
		tx.Rollback()
	}
	read("after the commit", s)
	for im := range disk.Images(crashfs.ImageOptions{Profiles: crashfs.Kill, From: disk.Len()}) {
		read("from the log", openTest(t, "/a.ebb", testOptions(im.Disk(crashfs.Options{}))))
	}
	require.NoError(t, s.Checkpoint(nil))
	for im := range disk.Images(crashfs.ImageOptions{Profiles: crashfs.Kill, From: disk.Len()}) {
		read("from a checkpoint", openTest(t, "/a.ebb", testOptions(im.Disk(crashfs.Options{}))))
	}
	require.Equal(
		t,
		map[string]int64{"in the transaction": 7, "after the commit": 7, "from the log": 7,
			"from a checkpoint": 7},
		marks,
	)
}
