package kv_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
					o = &kv.Options{Events: &kv.Events{CommitGroup: func(int, int64, time.Duration) { body() }}}
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
	for name, cause := range map[string]error{"broken": errors.New("the disk is gone"), "full": vfs.ErrNoSpace} {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			fsys := &hookFS{vfs.NewMemory(), func(call, _ string) error {
				if broken.Load() && changes(call) {
					return cause
				}
				return nil
			}}
			db, err := openfs.Open(fsys, path, nil, txn.Options{SegmentSize: 64 << 10})
			require.NoError(t, err)
			require.NoError(t, db.Put([]byte("first"), nil))
			broken.Store(true)
			for i, err := range together(t, db, add(db, "n"), add(db, "n"), add(db, "n")) {
				require.ErrorIs(t, err, kv.ErrCommitUnknown, i)
			}
			require.ErrorIs(t, add(db, "n")(), kv.ErrFailed)
			_, err = db.Get([]byte("n"))
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
			db, err := openfs.Open(fsys, path, o, txn.Options{SegmentSize: 64 << 10, Inline: true})
			require.NoError(t, err)
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
							waitFor(
								t,
								"the store is being shut down",
								func() bool { _, err := db.Has(small); return isErr(err, kv.ErrClosed) },
							)
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
