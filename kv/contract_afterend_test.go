package kv_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// kept is all that a caller can keep of a transaction beyond its end.
type kept struct {
	tx        *kv.Tx
	family    *kv.CF
	savepoint kv.Savepoint
	cursors   map[string]*kv.Cursor // by where they are
}

// keep takes of a transaction what a caller can, each thing in use.
func keep(t *testing.T, tx *kv.Tx) *kept {
	t.Helper()
	k := &kept{tx: tx, family: tx.CF("f"), savepoint: tx.Savepoint(), cursors: map[string]*kv.Cursor{}}
	_, err := k.family.Count()
	require.NoError(t, err)
	for name, c := range map[string]*kv.Cursor{
		"nowhere": tx.Cursor(), "row": tx.Cursor(), "row of a family": k.family.Cursor(),
		"row in bounds":    tx.CursorIn(kv.ScanOptions{Lower: []byte("a"), KeysOnly: true}),
		"row with a value": tx.Cursor(),
	} {
		if name != "nowhere" {
			require.True(t, c.Seek([]byte("k")), name)
			require.Equal(t, "k", string(c.Key()))
		}
		if name == "row with a value" {
			require.NotEmpty(t, c.Value())
		}
		k.cursors[name] = c
	}
	return k
}

// ends are the ways in which a transaction ends that was used before, and what its calls return
// from then on.
var ends = []struct {
	name string
	want error
	end  func(t *testing.T, db *kv.DB, writable bool, use func(*kv.Tx))
}{
	{"rollback", kv.ErrTxnDone, func(t *testing.T, db *kv.DB, writable bool, use func(*kv.Tx)) {
		require.NoError(t, begin(t, db, writable, use).Rollback())
	}},
	{"commit", kv.ErrTxnDone, func(t *testing.T, db *kv.DB, writable bool, use func(*kv.Tx)) {
		require.NoError(t, begin(t, db, writable, use).Commit())
	}},
	{"callback", kv.ErrTxnDone, func(t *testing.T, db *kv.DB, writable bool, use func(*kv.Tx)) {
		run := db.View
		if writable {
			run = db.Update
		}
		require.NoError(t, run(func(tx *kv.Tx) error { use(tx); return nil }))
	}},
	{"close", kv.ErrTxnDone, func(t *testing.T, db *kv.DB, writable bool, use func(*kv.Tx)) {
		require.NoError(t, begin(t, db, writable, use).Rollback())
		require.NoError(t, db.Close())
	}},
	{"shutdown", kv.ErrClosed, func(t *testing.T, db *kv.DB, writable bool, use func(*kv.Tx)) {
		begin(t, db, writable, use)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, db.Shutdown(ctx))
	}},
}

func begin(t *testing.T, db *kv.DB, writable bool, use func(*kv.Tx)) *kv.Tx {
	t.Helper()
	tx, err := db.Begin(t.Context(), writable)
	require.NoError(t, err)
	use(tx)
	return tx
}

// openMapped opens a store on disk whose rows are read through the map of its main file.
func openMapped(t *testing.T) *kv.DB {
	t.Helper()
	at := filepath.Join(t.TempDir(), "a.ebb")
	db, err := kv.Open(at, nil)
	require.NoError(t, err)
	require.NoError(t, db.CreateCF("f", kv.CFOptions{}))
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for _, key := range []string{"k", "l", "m", "n"} {
			err := errors.Join(tx.PutTTL([]byte(key), []byte("v"), time.Hour),
				tx.CF("f").Put([]byte(key), make([]byte, 10_000)))
			if err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, db.Close())
	db, err = kv.Open(at, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// TestWhatOutlivesItsTransactionTellsOfItsEnd: a cursor on a row, after the rollback of its
// transaction, returned true from Valid, and its key pointed into freed memory; after Close a read of
// it was a fault that killed the process.
//
// Every exported method of every type that a transaction returns is called after every way of ending
// it: it returns the error and nothing else, or it has a row in afterEnd. A new method is called too.
func TestWhatOutlivesItsTransactionTellsOfItsEnd(t *testing.T) {
	for _, end := range ends {
		for _, writable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/writable_%v", end.name, writable), func(t *testing.T) {
				var k *kept
				end.end(t, openMapped(t), writable, func(tx *kv.Tx) { k = keep(t, tx) })
				for name, c := range k.cursors {
					askCursor(t, name, c, end.want)
				}
				callAll(t, k.tx, k, end.want)
				callAll(t, k.family, k, end.want)
				for name, c := range k.cursors {
					t.Run(name, func(t *testing.T) { callAll(t, c, k, end.want) })
				}
			})
		}
	}
}

// askCursor asks a cursor in the order that a loop has, before anything was called that could have
// told it of the end.
func askCursor(t *testing.T, name string, c *kv.Cursor, want error) {
	t.Helper()
	require.False(t, c.Valid(), name)
	require.Nil(t, c.Key(), name)
	require.Nil(t, c.Value(), name)
	_, ok := c.Expiry()
	require.False(t, ok, name)
	require.ErrorIs(t, c.Err(), want, name)
	require.ErrorIs(t, c.Delete(), want, name)
}

// afterEnd is what those methods return after the end that do not return the error and else
// nothing.
func afterEnd(name string) func(t *testing.T, k *kept, got []reflect.Value, want error) {
	return map[string]func(t *testing.T, k *kept, got []reflect.Value, want error){
		"Tx.Now":      func(t *testing.T, _ *kept, got []reflect.Value, _ error) { require.False(t, got[0].IsZero()) },
		"Tx.Seq":      func(t *testing.T, _ *kept, got []reflect.Value, _ error) { require.NotZero(t, got[0].Uint()) },
		"Tx.Writable": func(*testing.T, *kept, []reflect.Value, error) {},
		// of a range after the end, if there was one
		"Tx.Err": func(t *testing.T, _ *kept, got []reflect.Value, want error) {
			if err, _ := got[0].Interface().(error); err != nil {
				require.ErrorIs(t, err, want)
			}
		},
		"Tx.Savepoint": func(t *testing.T, k *kept, got []reflect.Value, want error) {
			require.ErrorIs(t, k.tx.RollbackTo(got[0].Interface().(kv.Savepoint)), want)
			require.ErrorIs(t, k.tx.RollbackTo(k.savepoint), want)
		},
		"Tx.CF": func(t *testing.T, k *kept, got []reflect.Value, want error) {
			callAll(t, got[0].Interface(), k, want)
		},
		"CF.Name":      func(t *testing.T, _ *kept, got []reflect.Value, _ error) { require.NotEmpty(t, got[0].String()) },
		"Tx.GetAppend": onlyDst,
		"CF.GetAppend": onlyDst,
		"Tx.Cursor":    newCursor,
		"Tx.CursorIn":  newCursor,
		"CF.Cursor":    newCursor,
		"CF.CursorIn":  newCursor,
	}[name]
}

// onlyDst requires of GetAppend that it gives back what it was given.
func onlyDst(t *testing.T, _ *kept, got []reflect.Value, want error) {
	require.Equal(t, "k", string(got[0].Bytes()))
	require.ErrorIs(t, got[1].Interface().(error), want)
}

func newCursor(t *testing.T, _ *kept, got []reflect.Value, want error) {
	c := got[0].Interface().(*kv.Cursor)
	require.False(t, c.Valid())
	require.ErrorIs(t, c.Err(), want)
	require.False(t, c.First())
	require.ErrorIs(t, c.Err(), want)
}

// callAll calls each exported method of what, a pointer, with arguments that are good.
func callAll(t *testing.T, what any, k *kept, want error) {
	t.Helper()
	eachMethod(t, what, k, func(name string, got []reflect.Value) {
		if check := afterEnd(name); check != nil {
			check(t, k, got, want)
		} else {
			toldOfTheEnd(t, name, k, got, want)
		}
	})
}

func eachMethod(t *testing.T, what any, k *kept, result func(name string, got []reflect.Value)) {
	t.Helper()
	v := reflect.ValueOf(what)
	for i := range v.NumMethod() {
		name := v.Type().Elem().Name() + "." + v.Type().Method(i).Name
		m := v.Method(i)
		result(name, m.Call(arguments(t, name, m.Type(), k)))
	}
}

// toldOfTheEnd requires the error, if there is a place for one, and else nothing.
func toldOfTheEnd(t *testing.T, name string, k *kept, got []reflect.Value, want error) {
	t.Helper()
	for _, result := range got {
		switch {
		case result.Type() == reflect.TypeFor[error]():
			err, _ := result.Interface().(error)
			require.ErrorIs(t, err, want, name)
		case result.Kind() == reflect.Func: // a range
			result.Call([]reflect.Value{reflect.MakeFunc(result.Type().In(0), func([]reflect.Value) []reflect.Value {
				t.Errorf("%s yields a row", name)
				return []reflect.Value{reflect.ValueOf(false)}
			})})
			require.ErrorIs(t, k.tx.Err(), want, name)
		default:
			require.True(t, result.IsZero(), "%s returns %v", name, result)
		}
	}
}

// arguments are good ones for a method.
func arguments(t *testing.T, name string, m reflect.Type, k *kept) (args []reflect.Value) {
	t.Helper()
	for i := range m.NumIn() {
		in := m.In(i)
		var arg any
		switch in {
		case reflect.TypeFor[[]byte]():
			arg = []byte("k")
		case reflect.TypeFor[[][]byte]():
			arg = [][]byte{[]byte("k")}
		case reflect.TypeFor[string]():
			arg = "f"
		case reflect.TypeFor[context.Context]():
			arg = context.Background()
		case reflect.TypeFor[time.Duration]():
			arg = time.Hour
		case reflect.TypeFor[time.Time]():
			arg = time.Now().Add(time.Hour)
		case reflect.TypeFor[int64]():
			arg = int64(1)
		case reflect.TypeFor[uint64]():
			arg = uint64(1)
		case reflect.TypeFor[kv.Savepoint]():
			arg = k.savepoint
		case reflect.TypeFor[bool]():
			arg = true
		case reflect.TypeFor[*kv.Batch]():
			arg = new(kv.Batch)
		case reflect.TypeFor[kv.Durability](), reflect.TypeFor[kv.PutOptions](), reflect.TypeFor[kv.CFOptions](),
			reflect.TypeFor[kv.ScanOptions](), reflect.TypeFor[kv.PurgeOptions](),
			reflect.TypeFor[kv.BackupOptions](), reflect.TypeFor[kv.CompactOptions]():
			arg = reflect.Zero(in).Interface()
		case reflect.TypeFor[io.Writer]():
			arg = io.Discard
		default:
			require.Equal(t, reflect.Func, in.Kind(), "%s takes a %v: give it one here", name, in)
			arg = reflect.MakeFunc(in, func([]reflect.Value) []reflect.Value {
				t.Errorf("%s calls its function after the end", name)
				zeros := make([]reflect.Value, in.NumOut())
				for i := range zeros {
					zeros[i] = reflect.Zero(in.Out(i))
				}
				return zeros
			}).Interface()
		}
		args = append(args, reflect.ValueOf(arg))
	}
	return args
}

// TestRangeThatIsPulledBeyondTheEndStops takes one row of each range, ends the transaction and
// pulls on.
func TestRangeThatIsPulledBeyondTheEndStops(t *testing.T) {
	for _, end := range ends {
		for _, writable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/writable_%v", end.name, writable), func(t *testing.T) {
				for name, rangeOver := range map[string]func(tx *kv.Tx) (next func() bool, stop func()){
					"all":       func(tx *kv.Tx) (func() bool, func()) { return pulled(tx.All()) },
					"prefix":    func(tx *kv.Tx) (func() bool, func()) { return pulled(tx.CF("f").Prefix([]byte{})) },
					"keys_only": func(tx *kv.Tx) (func() bool, func()) { return pulled(tx.Scan(kv.ScanOptions{KeysOnly: true})) },
					"reverse":   func(tx *kv.Tx) (func() bool, func()) { return pulled(tx.Scan(kv.ScanOptions{Reverse: true})) },
					"expiring":  func(tx *kv.Tx) (func() bool, func()) { return pulled(tx.Expiring(time.Time{})) },
				} {
					t.Run(name, func(t *testing.T) {
						var kept *kv.Tx
						var next, stop func()
						more := true
						end.end(t, openMapped(t), writable, func(tx *kv.Tx) {
							pull, end := rangeOver(tx)
							kept, next, stop = tx, func() { more = pull() }, end
							next()
							require.True(t, more)
						})
						defer stop()
						next()
						require.False(t, more)
						require.ErrorIs(t, kept.Err(), end.want)
					})
				}
			})
		}
	}
}

func pulled[K, V any](seq iter.Seq2[K, V]) (next func() bool, stop func()) {
	pull, stop := iter.Pull2(seq)
	return func() bool { _, _, ok := pull(); return ok }, stop
}

// afterClose is what those methods of a closed store return that do not return the error and else
// nothing.
func afterClose(name string) func(t *testing.T, got []reflect.Value) {
	return map[string]func(t *testing.T, got []reflect.Value){
		"DB.Close":      noError,
		"DB.Shutdown":   noError,
		"DB.Path":       func(t *testing.T, got []reflect.Value) { require.NotEmpty(t, got[0].String()) },
		"DB.MaxKeySize": func(t *testing.T, got []reflect.Value) { require.Equal(t, int64(1024), got[0].Int()) },
		"DB.Stats": func(t *testing.T, got []reflect.Value) {
			require.Equal(t, int64(4), got[0].Interface().(kv.Stats).Families["f"].Rows)
		},
		"DB.RecoveryInfo": func(t *testing.T, got []reflect.Value) {
			require.True(t, got[0].Interface().(kv.RecoveryInfo).Clean)
		},
		"DB.Check": func(t *testing.T, got []reflect.Value) {
			var kinds []string
			for p := range got[0].Interface().(iter.Seq[kv.Problem]) {
				kinds = append(kinds, p.Kind)
			}
			require.Equal(t, []string{"closed"}, kinds)
		},
		"DB.CF":            func(t *testing.T, got []reflect.Value) { callClosed(t, got[0].Interface()) },
		"DB.NewBatch":      func(t *testing.T, got []reflect.Value) { require.Zero(t, got[0].Interface().(*kv.Batch).Len()) },
		"Family.Name":      func(t *testing.T, got []reflect.Value) { require.Equal(t, "f", got[0].String()) },
		"DB.GetAppend":     onlyDstClosed,
		"Family.GetAppend": onlyDstClosed,
	}[name]
}

func noError(t *testing.T, got []reflect.Value) { require.True(t, got[0].IsZero()) }

func onlyDstClosed(t *testing.T, got []reflect.Value) { onlyDst(t, nil, got, kv.ErrClosed) }

func callClosed(t *testing.T, what any) {
	t.Helper()
	eachMethod(t, what, nil, func(name string, got []reflect.Value) {
		if check := afterClose(name); check != nil {
			check(t, got)
		} else {
			toldOfTheEnd(t, name, nil, got, kv.ErrClosed)
		}
	})
}

// TestWhatOutlivesItsStoreTellsOfItsEnd calls every exported method of a closed store and of its
// families, and applies a batch that was filled before. A new method is called too.
func TestWhatOutlivesItsStoreTellsOfItsEnd(t *testing.T) {
	for name, end := range map[string]func(db *kv.DB) error{
		"close":    (*kv.DB).Close,
		"shutdown": func(db *kv.DB) error { return db.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			db := openMapped(t)
			family, batch, problems := db.CF("f"), db.NewBatch(), db.Check(t.Context())
			batch.Put([]byte("k"), []byte("v"))
			_, err := family.Count()
			require.NoError(t, err)
			require.NoError(t, end(db))
			callClosed(t, db)
			callClosed(t, family)
			require.ErrorIs(t, db.Apply(t.Context(), batch), kv.ErrClosed)
			batch.CF("f").Put([]byte("k"), []byte("v"))
			require.Equal(t, 2, batch.Len())
			batch.Reset()
			for p := range problems {
				require.Equal(t, "closed", p.Kind)
			}
		})
	}
}

// TestShutdownEndsCursorsOfOtherGoroutines moves and reads a cursor until it has ended, while another
// goroutine shuts the store down.
func TestShutdownEndsCursorsOfOtherGoroutines(t *testing.T) {
	for _, writable := range []bool{false, true} {
		t.Run(fmt.Sprintf("writable_%v", writable), func(t *testing.T) {
			db := openMapped(t)
			tx, err := db.Begin(t.Context(), writable)
			require.NoError(t, err)
			c := tx.CF("f").Cursor()
			require.True(t, c.First())
			done := make(chan error)
			go func() {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				done <- db.Shutdown(ctx)
			}()
			for c.Valid() {
				if key := c.Key(); key != nil {
					require.Len(t, key, 1)
				}
				if value := c.Value(); value != nil {
					require.Len(t, value, 10_000)
				}
				if !c.Next() && c.Err() == nil {
					c.First()
				}
			}
			require.ErrorIs(t, c.Err(), kv.ErrClosed)
			require.NoError(t, <-done)
			_ = tx.Rollback()
		})
	}
}

// TestReadsThatMeetShutdownReturnErrClosed: a reader that Shutdown had ended during a call read from
// the closed file, without a map of it, and returned "a read failed", which OnDamage took for a
// damaged range.
func TestReadsThatMeetShutdownReturnErrClosed(t *testing.T) {
	for _, onDamage := range []bool{false, true} {
		t.Run(fmt.Sprintf("onDamage_%v", onDamage), func(t *testing.T) {
			var db *kv.DB
			closeAtRead := false
			fsys := &hookFS{vfs.NewMemory(), func(call, _ string) error {
				if call != "read" || !closeAtRead {
					return nil
				}
				closeAtRead = false
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				return db.Shutdown(ctx)
			}}
			open := func() {
				var err error
				db, err = openfs.Open(fsys, "a.ebb", nil, txn.Options{NoMap: true})
				require.NoError(t, err)
			}
			open()
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				for i := range 300 {
					if err := tx.Put(fmt.Appendf(nil, "%03d", i), make([]byte, 500)); err != nil {
						return err
					}
				}
				return nil
			}))
			require.NoError(t, db.Close())
			open()
			tx, err := db.Begin(t.Context(), false)
			require.NoError(t, err)
			if onDamage {
				tx.OnDamage(func(d kv.Damage) bool { t.Errorf("damage: %v", d); return true })
			}
			c := tx.Cursor()
			require.True(t, c.First())
			closeAtRead = true
			for c.Next() {
			}
			require.False(t, closeAtRead)
			require.ErrorIs(t, c.Err(), kv.ErrClosed)
			require.NotErrorIs(t, tx.Rollback(), kv.ErrFailed)
		})
	}
}

// TestValueStaysUntilTheTransactionEnds, also one that the transaction itself has written, and then
// rolled back or deleted. The file is a real one, whose pages are mapped: writes to them show in
// slices that point there.
func TestValueStaysUntilTheTransactionEnds(t *testing.T) {
	// One page, which a deletion gives to the tree; one that a rollback gives to the next value;
	// some pages; many.
	for _, size := range []int{2500, 20_000, 6000, 300_000}[:racetest.Sample(4, 2)] {
		value := func(b byte) []byte { return bytes.Repeat([]byte{b}, size) }
		for name, undo := range map[string]func(tx *kv.Tx, sp kv.Savepoint) error{
			"rollback": func(tx *kv.Tx, sp kv.Savepoint) error { return tx.RollbackTo(sp) },
			"delete":   func(tx *kv.Tx, _ kv.Savepoint) error { return tx.Delete([]byte("a")) },
			"put":      func(tx *kv.Tx, _ kv.Savepoint) error { return tx.Put([]byte("a"), value('c')) },
		} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				db, err := openfs.Open(nil, filepath.Join(t.TempDir(), "a.ebb"),
					&kv.Options{CacheBytes: 1 << 20}, txn.Options{})
				require.NoError(t, err)
				defer func() { require.NoError(t, db.Close()) }()
				require.NoError(t, db.Update(func(tx *kv.Tx) error {
					var sp kv.Savepoint
					if name == "rollback" {
						sp = tx.Savepoint() // pages of transactions without one are used again sooner
					}
					for _, key := range []string{"a", "aa", "ab"} {
						require.NoError(t, tx.Put([]byte(key), value('a')))
					}
					got, err := tx.Get([]byte("a"))
					require.NoError(t, err)
					require.NoError(t, undo(tx, sp))
					for i := range 4 << 20 / size {
						require.NoError(t, tx.Put(fmt.Appendf(nil, "b%d", i), value('b')))
						require.NoError(t, tx.Put(fmt.Appendf(nil, "c%d", i), make([]byte, 900)))
					}
					require.True(t, bytes.Equal(value('a'), got))
					return nil
				}))
			})
		}
	}
}

// churn overwrites the same rows in many commits, with a checkpoint now and then.
func churn(t *testing.T, db *kv.DB, rounds int) {
	t.Helper()
	for i := range rounds {
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			for k := range 40 {
				key := fmt.Appendf(nil, "%03d", (i*7+k*11)%400)
				if err := tx.Put(key, fmt.Appendf(nil, "%0200d", i)); err != nil {
					return err
				}
			}
			return nil
		}))
		if i%20 == 19 {
			require.NoError(t, db.Checkpoint(context.Background()))
		}
	}
}

// TestReaderOpenForHours holds a snapshot over many commits and checkpoints, on a clock of the test's
// own. It reads the same throughout; writers never wait; Stats reports its age; the file grows by its
// pinned pages, not with every commit; and after its end all of them are reused.
func TestReaderOpenForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := openfs.Open(vfs.NewMemory(), path, nil, txn.Options{SegmentSize: 64 << 10, Inline: true})
		require.NoError(t, err)
		churn(t, db, 40)
		churn(t, db, 100)
		plain := db.Stats().FileBytes

		tx, err := db.Begin(t.Context(), false)
		require.NoError(t, err)
		sum := snapshot(t, tx)
		pinned := int64(0)
		for hour := range 5 {
			time.Sleep(time.Hour)
			churn(t, db, 100)
			stats := db.Stats()
			require.Equal(t, 1, stats.Readers)
			require.Equal(t, time.Duration(hour+1)*time.Hour, stats.OldestReaderAge, "writers have not waited")
			now := snapshot(t, tx)
			require.Equal(t, sum, now)
			if hour == 0 {
				pinned = stats.PinnedBytes
				require.NotZero(t, pinned)
			}
			require.Equal(t, pinned, stats.PinnedBytes, "the snapshot is no larger than it was")
			require.LessOrEqual(t, stats.FileBytes, plain+pinned+(256<<10), "one step of growth above what is pinned")
		}
		grown := db.Stats().FileBytes
		require.NoError(t, tx.Rollback())
		require.Zero(t, db.Stats().OldestReaderAge)
		churn(t, db, 100)
		require.Zero(t, db.Stats().PinnedBytes)
		require.LessOrEqual(t, db.Stats().FileBytes, grown, "what was pinned is used again")
		checkStore(t, db)
		require.NoError(t, db.Close())
	})
}

// snapshot reads all that a transaction sees.
func snapshot(t *testing.T, tx *kv.Tx) (all string) {
	t.Helper()
	n := 0
	for k, v := range tx.All() {
		n++
		all += string(k) + "=" + string(v) + "\n"
	}
	require.NoError(t, tx.Err())
	require.Equal(t, 400, n)
	return all
}

// TestRowsInOrderBesideReaders applies batches of rows in ascending order to a store with NoSync,
// concurrently with checkpoints, syncs, changes of recent rows, and readers, each of which sees whole
// batches. Then it opens the store again after Close.
func TestRowsInOrderBesideReaders(t *testing.T) {
	const size = 400
	batches := racetest.Sample(150, 60)
	at := filepath.Join(t.TempDir(), "test.ebb")
	o := &kv.Options{Durability: kv.NoSync, CacheBytes: 4 << 20, CheckpointBytes: 1 << 20}
	db, err := openfs.Open(vfs.OS, at, o, txn.Options{SegmentSize: 256 << 10})
	require.NoError(t, err)
	key := func(i int) []byte { return fmt.Appendf(nil, "key %08d", i) }
	read := func(tx *kv.Tx) (int, error) { return readBatches(tx, key, size) }
	var done atomic.Bool
	var readers sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		readers.Go(func() {
			for last := 0; !done.Load() && errs[i] == nil; time.Sleep(time.Duration(i) * time.Millisecond) {
				errs[i] = db.View(func(tx *kv.Tx) error {
					n, err := read(tx)
					if err == nil && n < last {
						err = fmt.Errorf("%d rows after %d", n, last)
					}
					last = n
					return err
				})
			}
		})
	}
	b := db.NewBatch()
	value := make([]byte, 120)
	for i := range batches {
		b.Reset()
		for k := i * size; k < (i+1)*size; k++ {
			binary.BigEndian.PutUint64(value, uint64(k))
			if k%97 == 0 {
				b.PutTTL(key(k), value, time.Hour)
			} else {
				b.Put(key(k), value)
			}
		}
		require.NoError(t, db.Apply(context.Background(), b))
		switch i % 10 {
		case 3:
			require.NoError(t, db.Sync())
		case 7: // rows of leaves that the log names
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				for k := i * size; k < (i+1)*size; k += 7 {
					v, err := tx.Get(key(k))
					if err != nil {
						return err
					}
					if err := tx.Put(key(k), append(v, "changed"...)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
	done.Store(true)
	readers.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	for range 2 {
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			n, err := read(tx)
			require.Equal(t, batches*size, n)
			return err
		}))
		require.NoError(t, db.Close())
		db, err = kv.Open(at, o)
		require.NoError(t, err)
	}
	require.NoError(t, db.Close())
}

// readBatches counts the rows: whole batches of size rows, in order.
func readBatches(tx *kv.Tx, key func(int) []byte, size int) (n int, err error) {
	for k, v := range tx.All() {
		if string(k) != string(key(n)) || len(v) < 8 || binary.BigEndian.Uint64(v) != uint64(n) {
			return n, fmt.Errorf("row %d is %q", n, k)
		}
		n++
	}
	if n%size != 0 {
		err = fmt.Errorf("%d rows are no whole batches", n)
	}
	return n, err
}
