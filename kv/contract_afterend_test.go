package kv_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
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
	db := mustOpen(t, at, nil)
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
	db = mustOpen(t, at, nil)
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
		"Tx.Now": func(t *testing.T, _ *kept, got []reflect.Value,
			_ error) {
			require.False(t, got[0].IsZero())
		},
		"Tx.Seq": func(t *testing.T, _ *kept, got []reflect.Value,
			_ error) {
			require.NotZero(t, got[0].Uint())
		},
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
		"CF.Name": func(t *testing.T, _ *kept, got []reflect.Value,
			_ error) {
			require.NotEmpty(t, got[0].String())
		},
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
			result.Call([]reflect.Value{reflect.MakeFunc(result.Type().In(0),
				func([]reflect.Value) []reflect.Value {
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
		case reflect.TypeFor[kv.Durability](), reflect.TypeFor[kv.PutOptions](),
			reflect.TypeFor[kv.CFOptions](),
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
					"all": func(tx *kv.Tx) (func() bool, func()) { return pulled(tx.All()) },
					"prefix": func(tx *kv.Tx) (func() bool, func()) {
						return pulled(tx.CF("f").Prefix([]byte{}))
					},
					"keys_only": func(tx *kv.Tx) (func() bool, func()) {
						return pulled(tx.Scan(kv.ScanOptions{KeysOnly: true}))
					},
					"reverse": func(tx *kv.Tx) (func() bool, func()) {
						return pulled(tx.Scan(kv.ScanOptions{Reverse: true}))
					},
					"expiring": func(tx *kv.Tx) (func() bool,
						func()) {
						return pulled(tx.Expiring(time.Time{}))
					},
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
		"DB.Close":    noError,
		"DB.Shutdown": noError,
		"DB.Path":     func(t *testing.T, got []reflect.Value) { require.NotEmpty(t, got[0].String()) },
		"DB.MaxKeySize": func(t *testing.T,
			got []reflect.Value) {
			require.Equal(t, int64(1024), got[0].Int())
		},
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
		"DB.CF": func(t *testing.T, got []reflect.Value) { callClosed(t, got[0].Interface()) },
		"DB.NewBatch": func(t *testing.T,
			got []reflect.Value) {
			require.Zero(t, got[0].Interface().(*kv.Batch).Len())
		},
		"Family.Name": func(t *testing.T,
			got []reflect.Value) {
			require.Equal(t, "f", got[0].String())
		},
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
