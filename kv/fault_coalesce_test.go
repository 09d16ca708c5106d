package kv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// TestLeaderThatIsStoppedByACallback: the clock is called before the apply, an event after it. The
// followers of a leader that either of them stopped are applied once, and none hangs.
func TestLeaderThatIsStoppedByACallback(t *testing.T) {
	for way, leave := range ways {
		for _, where := range []string{"clock", "event"} {
			t.Run(way+"/"+where, func(t *testing.T) {
				var armed bool // guarded by the writer lock, then by the lead of the log
				value := errors.New("mine")
				body := func() {
					if armed {
						armed = false
						leave(value)
					}
				}
				o := &kv.Options{Clock: func() time.Time { body(); return time.UnixMilli(1_000_000) }}
				if where == "event" {
					o = &kv.Options{Events: &kv.Events{CommitGroup: func(int, int64,
						time.Duration) {
						body()
					}}}
				}
				db := openOn(t, vfs.NewMemory(), o)
				require.NoError(t, db.Put([]byte("first"), nil))
				ended := make(chan struct{})
				errs := together(t, db,
					func() error {
						defer close(ended)
						requireLeft(t, way, value, func() { armed = true; _ = add(db, "n")() })
						return nil
					},
					add(db, "n"), add(db, "n"), add(db, "n"),
				)
				<-ended
				require.NoError(t, errors.Join(errs...))
				want := 3
				if where == "event" {
					want = 4
				}
				require.Equal(t, want, countOf(t, db, "n"))
				checkStore(t, db)
			})
		}
	}
}

// TestLeaderThatIsStoppedAfterItsCommit: a write that was left out of the commit must not take it for
// its own.
func TestLeaderThatIsStoppedAfterItsCommit(t *testing.T) {
	for way, leave := range ways {
		t.Run(way, func(t *testing.T) {
			var armed atomic.Bool
			value := errors.New("mine")
			db := openOn(
				t,
				vfs.NewMemory(),
				&kv.Options{Events: &kv.Events{CommitGroup: func(int, int64, time.Duration) {
					if armed.Swap(false) {
						leave(value)
					}
				}}},
			)
			require.NoError(t, db.Put([]byte("first"), nil))
			ended := make(chan struct{})
			errs := together(t, db,
				func() error {
					defer close(ended)
					requireLeft(t, way, value, func() { armed.Store(true); _ = add(db, "n")() })
					return nil
				},
				add(db, "n"),
				func() error { return db.Expire([]byte("absent"), time.Hour) },
				func() error { return db.PutTTL([]byte("k"), nil, -1) },
				func() error { return db.Put([]byte("large"), make([]byte, 300<<10)) },
				add(db, "n"), // behind a large one it goes alone
			)
			<-ended
			for i, want := range []error{nil, nil, kv.ErrNotFound, kv.ErrInvalidTTL, nil, nil} {
				require.ErrorIs(t, errs[i], want, i)
			}
			require.Equal(t, 3, countOf(t, db, "n"))
		})
	}
}

// TestFailureReachesTheWholeGroup: no write returns nil for a commit that the disk failed, nor a
// definite failure for one that the next open may find.
func TestFailureReachesTheWholeGroup(t *testing.T) {
	for name, cause := range map[string]error{"broken": errors.New("the disk is gone"),
		"full": vfs.ErrNoSpace} {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			fsys := &hookFS{vfs.NewMemory(), func(call, _ string) error {
				if broken.Load() && changes(call) {
					return cause
				}
				return nil
			}}
			db := mustOpenOn(t, fsys, nil, txn.Options{SegmentSize: 64 << 10})
			require.NoError(t, db.Put([]byte("first"), nil))
			broken.Store(true)
			for i, err := range together(t, db, add(db, "n"), add(db, "n"), add(db, "n")) {
				require.ErrorIs(t, err, kv.ErrCommitUnknown, i)
			}
			require.ErrorIs(t, add(db, "n")(), kv.ErrFailed)
			_, err := db.Get([]byte("n"))
			require.ErrorIs(t, err, kv.ErrNotFound)
			require.Error(t, db.Close())
		})
	}
}

// TestFailureThatStopsTheLeaderLeavesAllInDoubt: the leader's commit fails, and a callback that does
// not return is the first to get the error. The next open may find the rows of the followers, so
// none of them may return that its row is not stored.
func TestFailureThatStopsTheLeaderLeavesAllInDoubt(t *testing.T) {
	for way, leave := range ways {
		t.Run(way, func(t *testing.T) {
			var broken, told atomic.Bool
			value := errors.New("mine")
			fsys := &hookFS{vfs.NewMemory(), func(call, _ string) error {
				if broken.Load() && changes(call) {
					return errMachine
				}
				return nil
			}}
			o := &kv.Options{Events: &kv.Events{Failure: func(error) {
				if !told.Swap(true) {
					leave(value)
				}
			}}}
			db := mustOpenOn(t, fsys, o, txn.Options{SegmentSize: 64 << 10, Inline: true})
			require.NoError(t, db.Put([]byte("first"), nil))
			broken.Store(true)
			ended := make(chan struct{})
			errs := together(t, db,
				func() error {
					defer close(ended)
					requireLeft(t, way, value, func() { _ = add(db, "n")() })
					return nil
				},
				add(db, "n"), add(db, "n"),
				func() error { return db.PutTTL([]byte("k"), nil, -1) }, // not in the commit
			)
			<-ended
			require.True(t, told.Load())
			for _, err := range errs[1:3] {
				require.ErrorIs(t, err, kv.ErrCommitUnknown)
				require.ErrorIs(t, err, errMachine)
			}
			require.ErrorIs(t, errs[3], kv.ErrFailed)
			require.NotErrorIs(t, errs[3], kv.ErrCommitUnknown)
			require.ErrorIs(t, db.Close(), errMachine)
		})
	}
}

// TestShutdownBesideALeaderThatIsStopped: Shutdown ends the store, or waits, but no write returns it
// as the reason of a failure if its row was committed.
func TestShutdownBesideALeaderThatIsStopped(t *testing.T) {
	for way, leave := range ways {
		t.Run(way, func(t *testing.T) {
			var armed atomic.Bool
			value := errors.New("mine")
			begun, fsys := make(chan struct{}), vfs.NewMemory()
			db, err := openfs.Open(
				fsys,
				path,
				&kv.Options{Events: &kv.Events{CommitGroup: func(int, int64, time.Duration) {
					if armed.Swap(false) {
						<-begun
						leave(value)
					}
				}}},
				txn.Options{SegmentSize: 64 << 10},
			)
			require.NoError(t, err)
			require.NoError(t, db.Put([]byte("first"), nil))
			ended, closed := make(chan struct{}), make(chan error, 1)
			errs := together(t, db,
				func() error {
					defer close(ended)
					requireLeft(t, way, value, func() {
						armed.Store(true)
						go func() {
							waitFor(t, "the leader commits", func() bool { return !armed.Load() })
							go func() { closed <- db.Shutdown(context.Background()) }()
							waitFor(t, "the store is being shut down",
								func() bool { _, err := db.Has(small); return isErr(err, kv.ErrClosed) })
							close(begun)
						}()
						_ = add(db, "n")()
					})
					return nil
				},
				add(db, "n"), add(db, "n"),
			)
			<-ended
			require.NoError(t, <-closed)
			for _, err := range errs[1:] {
				if err != nil {
					require.ErrorIs(t, err, kv.ErrCommitUnknown)
				}
			}
			require.Equal(t, 3, countOf(t, openOn(t, fsys, nil), "n"))
		})
	}
}

// full is a store of some hundred leaves, on a disk, of which nothing is in memory, with a log that
// has begun.
func full(t *testing.T) (*crashfs.Disk, *kv.DB, *ahead) { return fullOf(t, puts) }

// fullOfExpiries is full, of rows that expire.
func fullOfExpiries(t *testing.T) (*crashfs.Disk, *kv.DB, *ahead) {
	return fullOf(t, func(db *kv.DB, n int) *kv.Batch {
		b := db.NewBatch()
		for i := range n {
			b.PutTTL(fmt.Appendf(nil, "key %05d", i*37), nil, time.Hour+time.Duration(i)*time.Second)
		}
		return b
	})
}

func fullOf(t *testing.T, rows func(db *kv.DB, n int) *kv.Batch) (*crashfs.Disk, *kv.DB, *ahead) {
	t.Helper()
	disk := crashfs.New(crashfs.Options{Direct: true, Untraced: true})
	db, _ := openAhead(t, disk, nil)
	require.NoError(t, db.Apply(t.Context(), rows(db, 20000)))
	require.NoError(t, db.Close())
	db, fsys := openAhead(t, disk, nil)
	require.NoError(t, db.Put([]byte("first"), nil))
	for { // A goroutine may be making the file longer.
		may, err := kv.CanSubmitLog(db, 200, 8<<10)
		require.NoError(t, err)
		if may {
			return disk, db, fsys
		}
		time.Sleep(time.Millisecond)
	}
}

// changed is a batch that gives rows here and there another value.
func changed(db *kv.DB) *kv.Batch {
	b := db.NewBatch()
	for i := range 30 {
		b.Put(fmt.Appendf(nil, "key %05d", i*600*37), []byte("changed"))
	}
	return b
}

// changedExpiries is changed with other expiries, and some rows that have none any more.
func changedExpiries(db *kv.DB) *kv.Batch {
	b := db.NewBatch()
	for i := range 30 {
		key := fmt.Appendf(nil, "key %05d", i*600*37)
		if b.PutTTL(key, []byte("changed"), 1000*time.Hour); i%5 == 0 {
			b.Put(key, []byte("changed"))
		}
	}
	return b
}

func countChanged(t *testing.T, db *kv.DB) (n int) {
	t.Helper()
	for _, row := range rows(t, db, "default") {
		if strings.HasSuffix(row, "=changed") {
			n++
		}
	}
	return n
}

// TestRecordOfAFailedBatchIsRevoked: the log has its record, and revokes it before the call returns. The
// next transaction and the next Open find nothing of it.
func TestRecordOfAFailedBatchIsRevoked(t *testing.T) {
	of := []int{1, 2, 20}
	if testing.Short() {
		of = of[1:2]
	}
	for _, fails := range of {
		t.Run(fmt.Sprint(fails), func(t *testing.T) { requireTakenBack(t, fails, full, changed) })
		t.Run(fmt.Sprintf("%d_of_expiries", fails),
			func(t *testing.T) { requireTakenBack(t, fails, fullOfExpiries, changedExpiries) })
	}
}

// requireTakenBack fails a read of a batch, the fails-th beside the write of its record.
func requireTakenBack(t *testing.T, fails int,
	full func(*testing.T) (*crashfs.Disk, *kv.DB, *ahead), changed func(*kv.DB) *kv.Batch) {
	t.Helper()
	disk, db, fsys := full(t)
	reads := 0
	fsys.hook = func(call string) error {
		if call == "read" && fsys.inFlight.Load() {
			if reads++; reads == fails {
				return errMachine
			}
		}
		return nil
	}
	b, before := changed(db), expiring(t, db, "default")
	err := db.Apply(t.Context(), b)
	require.ErrorIs(t, err, errMachine)
	require.NotErrorIs(t, err, kv.ErrCommitUnknown)
	require.EqualValues(t, 1, fsys.started.Load())
	require.Zero(t, countChanged(t, db))
	require.Zero(t, countChanged(t, again(t, disk)))
	require.NoError(t, db.Put([]byte("next"), nil))
	left := again(t, disk)
	require.Zero(t, countChanged(t, left))
	require.Equal(t, before, expiring(t, left, "default"))
	_, err = left.Get([]byte("next"))
	require.NoError(t, err)
	require.NoError(t, db.Apply(t.Context(), b))
	left = again(t, disk)
	require.Equal(t, 30, countChanged(t, left))
	require.Equal(t, expiring(t, db, "default"), expiring(t, left, "default"))
	checkStore(t, db)
	require.NoError(t, db.Close())
}

// TestBatchThatCannotBeRevokedIsInDoubt: the disk fails the write that would revoke its record.
func TestBatchThatCannotBeRevokedIsInDoubt(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared_%v", shared), func(t *testing.T) {
			disk, db, fsys := full(t)
			fsys.breakBeside(new(atomic.Bool))
			errs := []error{nil}
			if shared {
				var writes []func() error
				for i := range 30 {
					writes = append(
						writes,
						func() error {
							return db.Put(fmt.Appendf(nil, "key %05d", i*600*37),
								[]byte("changed"))
						},
					)
				}
				errs = together(t, db, writes...)
			} else {
				errs[0] = db.Apply(t.Context(), changed(db))
			}
			for _, err := range errs {
				require.ErrorIs(t, err, kv.ErrCommitUnknown)
				require.ErrorIs(t, err, errMachine)
			}
			require.ErrorIs(t, db.Put([]byte("next"), nil), kv.ErrFailed)
			require.Error(t, db.Close())
			require.Equal(t, 30, countChanged(t, again(t, disk)), "that is why")
		})
	}
}

// TestBatchWhoseRecordIsInTheLogIsNotCancelled: Apply checks the context for the last time before.
func TestBatchWhoseRecordIsInTheLogIsNotCancelled(t *testing.T) {
	disk, db, fsys := full(t)
	ctx, cancel := context.WithCancel(t.Context())
	fsys.hook = func(call string) error {
		if call == "read" && fsys.inFlight.Load() {
			cancel()
		}
		return nil
	}
	require.NoError(t, db.Apply(ctx, changed(db)))
	require.Error(t, ctx.Err())
	require.Equal(t, 30, countChanged(t, db))
	require.Equal(t, 30, countChanged(t, again(t, disk)))
	require.ErrorIs(t, db.Apply(ctx, changed(db)), context.Canceled)
	require.NoError(t, db.Close())
}

// TestFollowersOfALeaderThatPanicsAreInDoubt: the CommitGroup callback panics, and the disk fails the
// write that would revoke the record. The followers retried in transactions of their own, and
// returned from the failed store that their rows were not stored.
func TestFollowersOfALeaderThatPanicsAreInDoubt(t *testing.T) {
	disk, db, _ := full(t)
	require.NoError(t, db.Close())
	var broken, panicked atomic.Bool
	db, fsys := openAhead(t, disk, &kv.Options{Events: &kv.Events{CommitGroup: func(int, int64,
		time.Duration) {
		if broken.Load() && !panicked.Swap(true) {
			panic("told")
		}
	}}})
	require.NoError(t, db.Put([]byte("first"), nil))
	fsys.breakBeside(&broken)
	errPanic := errors.New("panicked")
	var writes []func() error
	for i := range 30 {
		writes = append(writes, func() (err error) {
			defer func() {
				if recover() != nil {
					err = errPanic
				}
			}()
			return db.Put(fmt.Appendf(nil, "key %05d", i*600*37), []byte("changed"))
		})
	}
	leaders := 0
	for _, err := range together(t, db, writes...) {
		if errors.Is(err, errPanic) {
			leaders++
		} else {
			require.ErrorIs(t, err, kv.ErrCommitUnknown)
		}
	}
	require.Equal(t, 1, leaders)
	require.ErrorIs(t, db.Put([]byte("next"), nil), kv.ErrFailed)
	require.Error(t, db.Close())
	require.Equal(t, 30, countChanged(t, again(t, disk)), "that is why")
}
