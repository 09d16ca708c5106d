package kv_test

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// stops is a store whose CommitGroup ends its goroutine once, when it is armed.
type stops struct {
	*kv.DB
	disk  *crashfs.Disk
	value error
	armed atomic.Bool
	leave func(any)
}

func openStops(t *testing.T, leave func(any), tune txn.Options) *stops {
	s := &stops{disk: crashfs.New(crashfs.Options{}), value: errors.New("mine"), leave: leave}
	db, err := openfs.Open(
		s.disk,
		path,
		&kv.Options{Events: &kv.Events{CommitGroup: func(int, int64, time.Duration) {
			if s.armed.Swap(false) {
				s.leave(s.value)
			}
		}}},
		tune,
	)
	require.NoError(t, err)
	s.DB = db
	return s
}

// reopen is for a store that its session has left as a crash would.
func (s *stops) reopen(t *testing.T) *kv.DB {
	require.ErrorIs(t, s.Close(), kv.ErrFailed)
	return openOn(t, s.disk, nil)
}

// TestCheckpointThatACallbackStops: its pages count as written in memory. So no more pages are
// written, and the log keeps all records.
func TestCheckpointThatACallbackStops(t *testing.T) {
	for way, leave := range ways {
		t.Run(way, func(t *testing.T) {
			s := openStops(t, leave, txn.Options{SegmentSize: 64 << 10})
			require.NoError(t, s.Update(putMany(defaultCF, "row", 300)))
			requireLeft(t, way, s.value, func() { s.armed.Store(true); _ = s.Checkpoint(t.Context()) })
			require.ErrorIs(t, s.Put([]byte("k"), nil), kv.ErrFailed)
			require.ErrorIs(t, s.Checkpoint(t.Context()), kv.ErrFailed)
			db := s.reopen(t)
			require.Len(t, rows(t, db, "default"), 300)
		})
	}
}

// TestBulkLoadThatACallbackStops: all of its rows are stored or none, and later writes are not
// acknowledged.
func TestBulkLoadThatACallbackStops(t *testing.T) {
	for way, leave := range ways {
		t.Run(way, func(t *testing.T) {
			s := openStops(t, leave, txn.Options{SegmentSize: 64 << 10})
			require.NoError(t, s.Put([]byte("first"), nil))
			require.NoError(t, s.CreateCF("f", kv.CFOptions{}))
			requireLeft(t, way, s.value, func() {
				s.armed.Store(true)
				_, _ = s.BulkLoad(t.Context(), "f", func(yield func(k, v []byte) bool) {
					for i := range 100 {
						if !yield(fmt.Appendf(nil, "%03d", i), nil) {
							return
						}
					}
				})
			})
			require.ErrorIs(t, s.Put([]byte("k"), nil), kv.ErrFailed)
			require.Empty(t, rows(t, s.DB, "f"), "no reader sees it before it is durable")
			db := s.reopen(t)
			require.Len(t, rows(t, db, "default"), 1)
			require.Contains(t, []int{0, 100}, len(rows(t, db, "f")))
		})
	}
}

// TestCommitThatACallbackStopsBeforeItsEnd: a large commit makes the log write its queue before it
// ends. The parts in the log must not become the beginning of the next commit.
func TestCommitThatACallbackStopsBeforeItsEnd(t *testing.T) {
	racetest.OneGoroutine(t)
	for way, leave := range ways {
		for name, savepoint := range map[string]bool{"appended at once": true, "appended bit by bit": false} {
			t.Run(way+"/"+name, func(t *testing.T) {
				s := openStops(t, leave, txn.Options{})
				require.NoError(t, s.Put([]byte("first"), nil))
				requireLeft(t, way, s.value, func() {
					_ = s.Update(func(tx *kv.Tx) error {
						if savepoint {
							tx.Savepoint()
						}
						s.armed.Store(true)
						return putMany(defaultCF, "never", 40_000)(tx)
					})
				})
				require.False(t, s.armed.Load(), "it was written on its way")
				require.NoError(t, s.Put([]byte("last"), nil))
				for im := range s.disk.Images(crashfs.ImageOptions{Profiles: crashfs.Kill,
					From: s.disk.Len()}) {
					db := openOn(t, im.Disk(crashfs.Options{}), nil)
					require.Equal(t, []string{"first=", "last="}, rows(t, db, "default"))
				}
				require.NoError(t, s.Close())
			})
		}
	}
}

// errBroken is the panic of a broken invariant.
var errBroken = errors.New("invariant broken")

// TestPanicInsideTheEngineLeavesTheFilesRight stops the engine with a panic before its n-th call of the
// disk, for every n of a session. The files are as a killed process leaves them: each commit that
// returned is there, the one that had begun is there whole or not at all. The deferred calls of the
// engine damage nothing: the same holds for the files that it leaves if the panic is recovered.
func TestPanicInsideTheEngineLeavesTheFilesRight(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	states := sessionStates(t)
	n := 0
	for ; ; n += stride(3) {
		disk := vfs.NewMemory()
		var s *session
		left, calls, at := vfs.FS(nil), 0, ""
		fsys := &hookFS{disk, func(call, name string) error {
			if calls++; calls == n+1 {
				left, at = crashed(t, disk), fmt.Sprintf("call %d, %s of %s", n, call, name)
				panic(errBroken)
			}
			return nil
		}}
		s = &session{clock: newClock(), begun: 1}
		func() {
			defer func() {
				if r := recover(); r != nil {
					require.Equal(t, errBroken, r)
				}
			}()
			db, err := reopenAt(fsys, s.clock, nil)
			require.NoError(t, err)
			s.db, s.acked = db, 1
			require.NoError(t, s.run())
		}()
		if left == nil {
			break
		}
		lo := max(s.acked, 1) // An open that is killed may leave no store: the next one makes it.
		requireState(t, left, states, lo, s.begun, at)
		requireState(t, crashed(t, disk), states, lo, s.begun, at+", unwound")
	}
	require.Greater(t, n, 200)
}

// stride is n with -short and under the race detector, half as much in other runs, and 1 where
// EBB_EXHAUSTIVE is set, as by `make torture`: how far apart the calls are that fail.
func stride(n int) int {
	switch {
	case os.Getenv("EBB_EXHAUSTIVE") != "":
		return 1
	case testing.Short() || racetest.Enabled:
		return n
	}
	return (n + 1) / 2
}

// TestOptionThatDoesNotComeBack: functions of Options, armed after Open, called by every call. They
// may be called before a transaction has begun, or after a commit: the store stays usable.
func TestOptionThatDoesNotComeBack(t *testing.T) {
	for way, leave := range ways {
		value := errors.New("mine")
		for name, o := range map[string]func(body func()) *kv.Options{
			"OnExpire": func(body func()) *kv.Options { return &kv.Options{OnExpire: tell(body)} },
			"Clock": func(body func()) *kv.Options {
				clock := newClock()
				return &kv.Options{Clock: func() time.Time {
					body()
					clock.move(time.Hour)
					return clock.now()
				}}
			},
			"Events.CommitGroup": func(body func()) *kv.Options {
				return &kv.Options{Events: &kv.Events{CommitGroup: func(int, int64,
					time.Duration) {
					body()
				}}}
			},
			"Events.Checkpoint": func(body func()) *kv.Options {
				return &kv.Options{Events: &kv.Events{Checkpoint: func(int, time.Duration, error) { body() }}}
			},
			"Events.Purge": func(body func()) *kv.Options {
				return &kv.Options{Events: &kv.Events{Purge: func(string, kv.PurgeResult,
					time.Duration, error) {
					body()
				}}}
			},
		} {
			for call, do := range map[string]func(db *kv.DB) error{
				"Get": func(db *kv.DB) error { _, err := db.CF("f").Get([]byte("due-001")); return err },
				"View": func(db *kv.DB) error {
					return db.View(func(tx *kv.Tx) error {
						_,
							err := tx.Get(small)
						return err
					})
				},
				"Put":    func(db *kv.DB) error { return db.Put([]byte("k"), nil) },
				"Update": func(db *kv.DB) error { return db.Update(putMany(defaultCF, "u", 10)) },
				"Apply": func(db *kv.DB) error {
					b := db.NewBatch()
					b.Put([]byte("k"),
						nil)
					return db.Apply(t.Context(), b)
				},
				"Purge": func(db *kv.DB) error {
					_,
						err := db.PurgeExpired(t.Context(), kv.PurgeOptions{})
					return err
				},
				"Checkpoint": func(db *kv.DB) error {
					return errors.Join(db.Put([]byte("k"), nil),
						db.Checkpoint(t.Context()))
				},
			} {
				if racetest.Quick() && way == "goexit" && call != "Update" {
					continue
				}
				t.Run(way+"/"+name+"/"+call, func(t *testing.T) {
					armed := false
					db := openForCallbacks(t, o(func() {
						if armed {
							armed = false
							leave(value)
						}
					}))
					_, _ = db.CF("f").Has([]byte("due-002")) // A note, so that the next writer evicts.
					armed = true
					left := make(chan struct{})
					go func() {
						defer close(left)
						defer func() {
							if r := recover(); r != nil {
								require.Same(t, value, r)
							}
						}()
						_ = do(db)
					}()
					<-left
					armed = false
					_, before, err := stored(db)
					require.NoError(t, err)
					requireUntouched(t, db, before)
					require.NoError(t, db.Put([]byte("next"), nil))
				})
			}
		}
	}
}

// TestFailureEventThatPanics fails each call of a session that reads or changes a file, from there on,
// and the Failure event panics: the store still reads, refuses writes, and can be closed.
func TestFailureEventThatPanics(t *testing.T) {
	n := 0
	for ; ; n += stride(5) {
		calls, told, at := 0, false, ""
		s := &session{clock: newClock(), begun: 1}
		disk := vfs.NewMemory()
		fsys := &hookFS{disk, func(call, name string) error {
			if s.db == nil || !changes(call) && call != "read" {
				return nil
			}
			if calls++; calls > n {
				at = fmt.Sprintf("call %d, %s of %s, in %s", n, call, name, s.step)
				return errMachine
			}
			return nil
		}}
		db, err := reopenAt(fsys, s.clock, &kv.Options{Events: &kv.Events{Failure: func(error) {
			told = true
			panic(errBroken)
		}}})
		require.NoError(t, err)
		s.db = db
		stopped := func(fn func() error) (err error) {
			defer func() {
				if r := recover(); r != nil {
					require.Equal(t, errBroken, r)
				}
			}()
			return fn()
		}
		if err := stopped(s.run); at == "" {
			require.NoError(t, err)
			break
		}
		if told && s.step != "close" {
			if _, _, err := stored(db); err != nil {
				require.ErrorIs(t, err, errMachine, at) // The disk cannot be read.
			}
			require.ErrorIs(t, db.Put([]byte("k"), nil), kv.ErrFailed, at)
			require.ErrorIs(t, db.Close(), errMachine, at)
		}
		_ = stopped(db.Close)
		db, err = reopenAt(disk, s.clock, nil)
		require.NoError(t, err, "%s: the file is still locked", at)
		require.NoError(t, db.Close())
	}
	require.Greater(t, n, 100)
}
