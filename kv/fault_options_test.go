package kv_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

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
