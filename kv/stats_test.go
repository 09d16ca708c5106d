package kv_test

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// scene is a session whose numbers are known: what events told of it, its files, and its numbers
// while it was open and after its end.
type scene struct {
	groups, parts, told   int   // events of CommitGroup with commits, without, and their commits
	checkpoints           int   // events of Checkpoint without an error
	logged                int64 // bytes of CommitGroup
	fileOpen, logOpen     int64 // bytes of the files while the store was open
	fileClosed, logClosed int64 // and at its end
	begun, open, closed   kv.Stats
}

// fileBytes sums the bytes of the main file and of the log's files.
func fileBytes(t *testing.T, fsys vfs.FS) (file, log int64) {
	t.Helper()
	names, err := fsys.List(filepath.Dir(path))
	require.NoError(t, err)
	for _, name := range names {
		f, err := fsys.Open(filepath.Join(filepath.Dir(path), name), 0)
		require.NoError(t, err)
		size, err := f.Size()
		require.NoError(t, err)
		require.NoError(t, f.Close())
		if strings.Contains(name, "-wal-") {
			log += size
		} else {
			file += size
		}
	}
	return file, log
}

// play makes the session: ten durable commits, a transaction with a log of several writes, a
// checkpoint, deletions beside a reader, a purge and an eviction, and a relaxed commit.
func play(t *testing.T) *scene {
	t.Helper()
	s, clock, fsys := new(scene), newClock(), vfs.NewMemory()
	db, err := openfs.Open(fsys, path,
		&kv.Options{Clock: clock.now, CheckpointBytes: 1 << 30, Events: &kv.Events{
			CommitGroup: func(commits int, bytes int64, _ time.Duration) {
				s.told, s.logged = s.told+commits, s.logged+bytes
				if commits > 0 {
					s.groups++
				} else {
					s.parts++
				}
			},
			Checkpoint: func(_ int, _ time.Duration, err error) {
				if err == nil {
					s.checkpoints++
				}
			},
		}}, txn.Options{SegmentSize: 64 << 10, Inline: true})
	require.NoError(t, err)
	s.begun = db.Stats()
	for i := range 10 {
		require.NoError(t, db.PutTTL([]byte{'a' + byte(i)}, nil, time.Second))
	}
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 3000 {
			if err := tx.Put([]byte{'z', byte(i >> 8), byte(i)}, make([]byte, 700)); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, db.Checkpoint(t.Context()))
	require.NoError(t, db.CreateCF("dropped", kv.CFOptions{}))
	reader := beginTx(t, db, false)
	require.NoError(t, db.DeletePrefix([]byte{'z'}))
	require.NoError(t, db.Put([]byte("after"), nil))
	pinned := db.Stats()
	require.Positive(t, pinned.PinnedBytes)
	require.LessOrEqual(t, pinned.PinnedBytes, pinned.FreeBytes)
	require.Equal(t, 1, pinned.Readers)
	require.Positive(t, pinned.OldestReaderAge)
	require.NoError(t, reader.Rollback())
	clock.move(time.Second)
	res, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{Limit: 4})
	require.NoError(t, err)
	require.EqualValues(t, 4, res.Purged)
	_, err = db.Get([]byte("e"))
	require.ErrorIs(t, err, kv.ErrNotFound)
	require.NoError(t, db.DropCF("dropped"), "with an eviction before it")
	clock.move(-time.Hour)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		tx.SetDurability(kv.NoSync)
		return tx.Put([]byte("relaxed"), nil)
	}))
	s.open = db.Stats()
	s.fileOpen, s.logOpen = fileBytes(t, fsys)
	require.NoError(t, db.Close())
	s.closed = db.Stats()
	s.fileClosed, s.logClosed = fileBytes(t, fsys)
	return s
}

// TestEveryNumberOfStatsIsTrue: LogBytes was above 0 after Close, which had removed the log,
// PinnedBytes after the end of the last reader, Groups above Commits, since it counted parts of them;
// DurableSeq was that of a relaxed commit, and the checkpoint of Close was neither counted nor
// reported. A field without a row fails.
func TestEveryNumberOfStatsIsTrue(t *testing.T) {
	s := play(t)
	checks := map[string]func(t *testing.T){
		"PageSize": func(t *testing.T) { require.Equal(t, 4096, s.open.PageSize) },
		"FileBytes": func(t *testing.T) {
			require.Equal(t, s.fileOpen, s.open.FileBytes)
			require.Equal(t, s.fileClosed, s.closed.FileBytes)
		},
		"DiskBytes": func(t *testing.T) {
			require.Equal(t, s.fileOpen, s.open.DiskBytes, "too small for holes")
			require.Equal(t, s.fileClosed, s.closed.DiskBytes)
		},
		"LogBytes": func(t *testing.T) {
			require.Equal(t, s.logOpen, s.open.LogBytes)
			require.Positive(t, s.logOpen)
			require.Zero(t, s.logClosed)
			require.Zero(t, s.closed.LogBytes)
		},
		"FreeBytes": func(t *testing.T) { require.Greater(t, s.open.FreeBytes, int64(1<<20)) },
		"PinnedBytes": func(t *testing.T) {
			require.Zero(t, s.open.PinnedBytes, "the last reader has left")
			require.Zero(t, s.closed.PinnedBytes)
		},
		"FrameBytes": func(t *testing.T) {
			require.Positive(t, s.open.FrameBytes)
			require.Zero(t, s.closed.FrameBytes)
		},
		"CacheBytes": func(t *testing.T) { // the default, of a machine with memory enough
			require.Positive(t, s.open.CacheBytes)
			require.Equal(t, s.open.CacheBytes, s.closed.CacheBytes)
		},
		"MemoryBytes":     func(t *testing.T) { require.Equal(t, s.open.MemoryBytes, s.closed.MemoryBytes) },
		"Readers":         func(t *testing.T) { require.Zero(t, s.open.Readers) }, // and one in play
		"OldestReaderAge": func(t *testing.T) { require.Zero(t, s.open.OldestReaderAge) },
		"Commits": func(t *testing.T) { // the store's own first one, 10 + 1, 3, a purge, an eviction, 2
			require.EqualValues(t, 1, s.begun.Commits)
			require.EqualValues(t, 19, s.open.Commits)
			require.EqualValues(t, s.told, s.open.Commits, "what CommitGroup tells of")
		},
		"Groups": func(t *testing.T) {
			require.EqualValues(t, s.groups, s.open.Groups)
			require.Positive(t, s.parts, "a large transaction")
			require.LessOrEqual(t, s.open.Groups, s.open.Commits)
		},
		"Checkpoints": func(t *testing.T) {
			require.EqualValues(t, 1, s.open.Checkpoints)
			require.Equal(t, 2, s.checkpoints, "Checkpoint tells of the last one, too")
			require.GreaterOrEqual(t, s.closed.Checkpoints, uint64(2),
				"those that pack the file at Close count")
		},
		"Seq": func(t *testing.T) {
			require.Equal(t, s.open.Commits, s.open.Seq)
			require.Equal(t, s.open.Seq, s.closed.Seq)
		},
		"DurableSeq": func(t *testing.T) {
			require.Equal(t, s.open.Seq-1, s.open.DurableSeq, "the last commit is relaxed")
			require.Equal(t, s.closed.Seq, s.closed.DurableSeq)
		},
		"Epoch": func(t *testing.T) { require.Greater(t, s.closed.Epoch, s.open.Epoch) },
		"PagesRead": func(t *testing.T) {
			require.GreaterOrEqual(t, s.closed.PagesRead,
				s.open.PagesRead)
		},
		"PagesWritten": func(t *testing.T) { require.Greater(t, s.closed.PagesWritten, s.open.PagesWritten) },
		"LogBytesWritten": func(t *testing.T) {
			require.GreaterOrEqual(t, int64(s.open.LogBytesWritten), s.logged)
			require.Greater(t, s.logged, int64(3000*700), "parts of a large transaction are told of")
		},
		"TrashTrees":  func(t *testing.T) { require.Zero(t, s.closed.TrashTrees) },
		"ClockSteps":  func(t *testing.T) { require.EqualValues(t, 1, s.open.ClockSteps) },
		"ClockJumped": func(t *testing.T) { require.False(t, s.open.ClockJumped) },
		"Families": func(t *testing.T) {
			require.Equal(t, map[string]kv.FamilyStats{"default": {
				Rows: 7, TTLRows: 5, Due: 0, Purged: 4, Evicted: 1, PurgeBatches: 1, BytesReclaimed: 5,
			}}, s.open.Families)
			require.Equal(t, s.open.Families, s.closed.Families)
		},
		"Partitions": func(t *testing.T) { require.Nil(t, s.open.Partitions) }, // see TestStatsOfPartitions
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[kv.Stats]()) {
		check := checks[field.Name]
		require.NotNil(t, check, "%s has no row", field.Name)
		t.Run(field.Name, check)
	}
}

// TestLogOfAKilledProcessCounts opens its files read-only: LogBytes was 0 beside them.
func TestLogOfAKilledProcessCounts(t *testing.T) {
	fsys := vfs.NewMemory()
	db := mustOpenOn(t, fsys, nil, txn.Options{SegmentSize: 64 << 10})
	fill(t, db, "a", "b")
	_, log := fileBytes(t, fsys)
	require.Positive(t, log)
	killed, err := copyFiles(fsys)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for _, o := range []*kv.Options{{ReadOnly: true}, nil} {
		db = mustOpenOn(t, killed, o, txn.Options{Inline: true})
		_, log = fileBytes(t, killed)
		require.Equal(t, log, db.Stats().LogBytes)
		require.Equal(t, o == nil, log == 0, "an Open that may write removes what it has replayed")
		info := db.RecoveryInfo()
		require.Equal(t, kv.RecoveryInfo{
			CommitsReplayed: 2, BytesReplayed: info.BytesReplayed, MetaEpoch: info.MetaEpoch, Seq: 2,
		}, info)
		require.Positive(t, info.BytesReplayed)
		require.NoError(t, db.Close())
		_, log = fileBytes(t, killed)
		require.Equal(t, log, db.Stats().LogBytes, "at its end")
	}
}

// TestCheckThatIsLeft: the body of a range over Check that leaves it at any finding, in whatever way,
// leaves no lock behind, and gets no more findings.
func TestCheckThatIsLeft(t *testing.T) {
	disk := vfs.NewMemory()
	open := func() *kv.DB {
		db, err := openfs.Open(disk, path, &kv.Options{Clock: newClock().now, CacheBytes: 1 << 20},
			txn.Options{SegmentSize: 64 << 10, NoMap: true})
		require.NoError(t, err)
		return db
	}
	db := open()
	require.NoError(t, db.Update(putMany(defaultCF, "row", 3000)))
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for _, name := range []string{"a", "b"} {
			require.NoError(t, tx.CreateCF(name, kv.CFOptions{}))
			require.NoError(t, tx.CF(name).PutTTL(small, nil, time.Hour))
			f, err := kv.FindFamily(tx, name)
			require.NoError(t, err)
			_, err = kv.RawTx(tx).Put(f.KeyIndex(), []byte("of no row"), make([]byte, 8), 0)
			require.NoError(t, err)
		}
		return nil
	}))
	require.NoError(t, db.Close())
	file, err := disk.Open(path, vfs.Write)
	require.NoError(t, err)
	size, err := file.Size()
	require.NoError(t, err)
	for off := int64(20 * 4096); off < min(size, 40*4096); off += 3 * 4096 {
		var b [1]byte
		require.NoError(t, vfs.ReadFull(file, b[:], off+2000))
		b[0]++
		_, err := file.WriteAt(b[:], off+2000)
		require.NoError(t, err)
	}
	require.NoError(t, file.Close())

	db = open()
	kinds, all := map[string]bool{}, 0
	for p := range db.Check(t.Context()) {
		kinds[p.Kind] = true
		all++
	}
	require.Greater(t, all, 2)
	require.Greater(t, len(kinds), 1, "%v", kinds)
	require.NoError(t, db.Close())
	value := errors.New("mine")
	for n := 1; n <= all; n++ {
		for _, way := range []string{"break", "panic", "goexit"} {
			db := open()
			met := 0
			leave := func() {
				for range db.Check(context.Background()) {
					if met++; met == n {
						if way == "break" {
							break
						}
						ways[way](value)
					}
				}
			}
			if way == "break" {
				leave()
			} else {
				requireLeft(t, way, value, leave)
			}
			require.Equal(t, n, met)
			require.Zero(t, db.Stats().Readers)
			require.NoError(t, db.CreateCF("new", kv.CFOptions{}))
			require.NoError(t, db.DropCF("new"))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			err := db.Checkpoint(ctx)
			cancel()
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			_ = db.Close()
		}
	}
}
