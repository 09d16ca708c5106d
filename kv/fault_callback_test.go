package kv_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// A verb is one call within a transaction; it may end with the error of a read transaction that is
// asked to write.
type txVerb struct {
	name string
	do   func(tx *kv.Tx) error
}

var small = []byte("small")

// txVerbs are the verbs of *Tx, each on rows that are there.
var txVerbs = []txVerb{
	{"nothing", func(*kv.Tx) error { return nil }},
	{"Get", func(tx *kv.Tx) error { _, err := tx.Get(small); return err }},
	{"GetAppend", func(tx *kv.Tx) error { _, err := tx.GetAppend(nil, small); return err }},
	{"GetTTL", func(tx *kv.Tx) error { _, _, err := tx.GetTTL(small); return err }},
	{"Has", func(tx *kv.Tx) error { _, err := tx.Has(small); return err }},
	{"TTL", func(tx *kv.Tx) error { _, err := tx.TTL(small); return err }},
	{"Expiry", func(tx *kv.Tx) error { _, err := tx.Expiry(small); return err }},
	{"Size", func(tx *kv.Tx) error { _, err := tx.Size(small); return err }},
	{"Count", func(tx *kv.Tx) error { _, err := tx.Count(); return err }},
	{"CountLive", func(tx *kv.Tx) error { _, err := tx.CountLive(); return err }},
	{"NextExpiry", func(tx *kv.Tx) error { _, _, err := tx.NextExpiry(); return err }},
	{"ListCFs", func(tx *kv.Tx) error { _, err := tx.ListCFs(); return err }},
	{"Put", func(tx *kv.Tx) error { return tx.Put(small, []byte("other")) }},
	{"Put_large", func(tx *kv.Tx) error { return tx.Put(small, make([]byte, 50_000)) }},
	{"Put_many", putMany(defaultCF, "m", 500)},
	{"PutTTL", func(tx *kv.Tx) error { return tx.PutTTL(small, nil, time.Hour) }},
	{"PutExpireAt", func(tx *kv.Tx) error { return tx.PutExpireAt(small, nil, tx.Now().Add(time.Hour)) }},
	{
		"PutWith",
		func(tx *kv.Tx) error {
			_, err := tx.PutWith(small, nil,
				kv.PutOptions{IfPresent: true})
			return err
		},
	},
	{"Delete", func(tx *kv.Tx) error { return tx.Delete(small) }},
	{"Expire", func(tx *kv.Tx) error { return tx.Expire(small, time.Hour) }},
	{"ExpireAt", func(tx *kv.Tx) error { return tx.ExpireAt(small, tx.Now().Add(time.Hour)) }},
	{"Persist", func(tx *kv.Tx) error { return tx.Persist(small) }},
	{"Increment", func(tx *kv.Tx) error { _, err := tx.Increment([]byte("n"), 1, 0); return err }},
	{"GetAndExpire", func(tx *kv.Tx) error { _, err := tx.GetAndExpire(small, time.Hour); return err }},
	{"NextSequence", func(tx *kv.Tx) error { _, err := tx.NextSequence(); return err }},
	{"SetSequence", func(tx *kv.Tx) error { return tx.SetSequence(7) }},
	{"CompareAndSwap", func(tx *kv.Tx) error {
		_, err := tx.CompareAndSwap(small, []byte("v-small"), []byte("x"), kv.PutOptions{})
		return err
	}},
	{"CompareAndDelete",
		func(tx *kv.Tx) error { _, err := tx.CompareAndDelete(small, []byte("v-small")); return err }},
	{"DeleteRange", func(tx *kv.Tx) error { return tx.DeleteRange(nil, nil) }},
	{"DeletePrefix", func(tx *kv.Tx) error { return tx.DeletePrefix([]byte("r")) }},
	{"Clear", func(tx *kv.Tx) error { return tx.CF("f").Clear() }},
	{"CreateCF", func(tx *kv.Tx) error { return tx.CreateCF("new", kv.CFOptions{}) }},
	{"EnsureCF", func(tx *kv.Tx) error { return tx.EnsureCF("new", kv.CFOptions{}) }},
	{"AlterCF", func(tx *kv.Tx) error { return tx.AlterCF("f", kv.CFOptions{}) }},
	{"DropCF", func(tx *kv.Tx) error { return tx.DropCF("f") }},
	{"RenameCF", func(tx *kv.Tx) error { return tx.RenameCF("f", "g") }},
	{
		"PurgeExpired",
		func(tx *kv.Tx) error {
			_, err := tx.PurgeExpired(context.Background(),
				kv.PurgeOptions{})
			return err
		},
	},
	{"Savepoint", func(tx *kv.Tx) error {
		sp := tx.Savepoint()
		return errors.Join(tx.Put(small, nil), tx.RollbackTo(sp))
	}},
	{"Cursor.Delete", func(tx *kv.Tx) error {
		c := tx.Cursor()
		c.First()
		return c.Delete()
	}},
	{"OnCommit",
		func(tx *kv.Tx) error { tx.OnCommit(func() { panic("of what was rolled back") }); return nil }},
}

// txBodies are the functions of a user's that the engine calls within a transaction, beside the
// transaction's own.
var txBodies = map[string]func(tx *kv.Tx, body func()){
	"All":      func(tx *kv.Tx, body func()) { rangeOver(tx.All(), body) },
	"Prefix":   func(tx *kv.Tx, body func()) { rangeOver(tx.Prefix([]byte("row")), body) },
	"Scan":     func(tx *kv.Tx, body func()) { rangeOver(tx.Scan(kv.ScanOptions{Reverse: true}), body) },
	"Expiring": func(tx *kv.Tx, body func()) { rangeOver(tx.CF("f").Expiring(time.Time{}), body) },
	"OnExpire": func(tx *kv.Tx, body func()) {
		_, _ = tx.PurgeExpired(context.Background(), kv.PurgeOptions{OnExpire: tell(body)})
	},
	"Progress": func(tx *kv.Tx, body func()) {
		_, _ = tx.PurgeExpired(context.Background(), kv.PurgeOptions{Progress: func(int64) { body() }})
	},
}

func rangeOver[V any](seq iter.Seq2[[]byte, V], body func()) {
	for range seq {
		body()
	}
}

func tell(body func()) func(string, []byte, []byte) error {
	return func(string, []byte, []byte) error { body(); return nil }
}

// onlyWriting are the bodies that a read transaction never comes to.
var onlyWriting = map[string]bool{"OnExpire": true, "Progress": true}

// openForCallbacks opens a store with rows of each kind, some of them expired.
func openForCallbacks(t *testing.T, o *kv.Options) *kv.DB {
	t.Helper()
	clock := newClock()
	if o.Clock == nil {
		o.Clock = clock.now
	}
	db := openOn(t, vfs.NewMemory(), o)
	require.NoError(t, db.Update(putMany(defaultCF, "row", 300)))
	require.NoError(t, db.Put(small, []byte("v-small")))
	require.NoError(t, db.Put([]byte("large"), make([]byte, 30_000)))
	require.NoError(t, db.CreateCF("f", kv.CFOptions{DefaultTTL: time.Minute}))
	require.NoError(t, db.Update(putMany("f", "due", 30)))
	require.NoError(t, db.Checkpoint(t.Context()))
	clock.move(time.Hour)
	return db
}

// ways are the two ways in which a callback may not come back.
var ways = map[string]func(value any){
	"panic":  func(value any) { panic(value) },
	"goexit": func(any) { runtime.Goexit() },
}

// requireLeft runs fn in a goroutine of its own and requires that the goroutine ends, with that
// panic or by Goexit.
func requireLeft(t *testing.T, way string, value any, fn func()) {
	t.Helper()
	ended := make(chan any)
	go func() {
		came := any("returned")
		defer func() {
			if r := recover(); r != nil {
				came = r
			}
			ended <- came
		}()
		defer func() {
			if came == "returned" {
				came = "left"
			}
		}()
		fn()
		came = "finished"
	}()
	got := <-ended
	if way == "panic" {
		require.Same(t, value, got)
	} else {
		require.Equal(t, "left", got)
	}
}

// requireUntouched requires that a store holds what it held, has no transaction open, is sound, and
// works.
func requireUntouched(t *testing.T, db *kv.DB, before string) {
	t.Helper()
	_, after, err := stored(db)
	require.NoError(t, err)
	require.True(t, before == after, "something has changed")
	require.Zero(t, db.Stats().Readers)
	checkStore(t, db)
	require.NoError(t, db.Update(func(*kv.Tx) error { return nil }), "the writer lock is free")
}

// TestCallbackThatDoesNotComeBack panics, and ends its goroutine, after each verb of a transaction and
// in each callback of a verb: the transaction is rolled back, the lock is free, the same panic
// propagates, and the goroutine ends.
func TestCallbackThatDoesNotComeBack(t *testing.T) {
	racetest.OneGoroutine(t)
	db := openForCallbacks(t, &kv.Options{})
	_, before, err := stored(db)
	require.NoError(t, err)
	transactions := map[string]func(fn func(*kv.Tx) error) error{
		"View":          db.View,
		"Update":        db.Update,
		"UpdateContext": func(fn func(*kv.Tx) error) error { return db.UpdateContext(t.Context(), fn) },
	}
	for way, leave := range ways {
		value := errors.New("mine")
		for kind, run := range transactions {
			if racetest.Quick() && (kind == "UpdateContext" || kind == "View" && way == "goexit") {
				continue
			}
			for _, verb := range txVerbs {
				t.Run(way+"/"+kind+"/"+verb.name, func(t *testing.T) {
					requireLeft(t, way, value, func() {
						_ = run(func(tx *kv.Tx) error {
							if err := verb.do(tx); kind != "View" {
								require.NoError(t, err)
							}
							leave(value)
							return nil
						})
					})
					requireUntouched(t, db, before)
				})
			}
			for name, verb := range txBodies {
				if kind == "View" && onlyWriting[name] {
					continue
				}
				t.Run(way+"/"+kind+"/in_"+name, func(t *testing.T) {
					requireLeft(t, way, value, func() {
						_ = run(func(tx *kv.Tx) error {
							_ = tx.Put([]byte("not there"), nil)
							verb(tx, func() { leave(value) })
							return nil
						})
					})
					requireUntouched(t, db, before)
				})
			}
		}
	}
}

// TestNoPageIsLostToAPanic rolls the same transaction back by a panic over and over: the file and
// the memory of pages do not grow.
func TestNoPageIsLostToAPanic(t *testing.T) {
	db := openForCallbacks(t, &kv.Options{})
	bodies := append([]txVerb{}, txVerbs...)
	for name, verb := range txBodies {
		bodies = append(bodies, txVerb{"in_" + name, func(tx *kv.Tx) error {
			err := putMany(defaultCF, "m", 500)(tx)
			verb(tx, func() { panic(errBroken) })
			return err
		}})
	}
	for _, verb := range bodies {
		t.Run(verb.name, func(t *testing.T) {
			again := func(n int) (file, free, frames int64) {
				for range n {
					require.PanicsWithValue(t, errBroken, func() {
						_ = db.Update(func(tx *kv.Tx) error {
							require.NoError(t, verb.do(tx))
							panic(errBroken)
						})
					})
				}
				s := db.Stats()
				return s.FileBytes, s.FreeBytes, s.FrameBytes
			}
			file, free, frames := again(3)
			file2, free2, frames2 := again(20)
			require.Equal(t, []int64{file, free, frames}, []int64{file2, free2, frames2},
				"bytes of file, free pages, frames")
		})
	}
}

// TestOnCommitThatDoesNotComeBack: the transaction is committed, and the lock is free.
func TestOnCommitThatDoesNotComeBack(t *testing.T) {
	for way, leave := range ways {
		t.Run(way, func(t *testing.T) {
			db := openForCallbacks(t, &kv.Options{})
			value := errors.New("mine")
			requireLeft(t, way, value, func() {
				_ = db.Update(func(tx *kv.Tx) error {
					tx.OnCommit(func() { leave(value) })
					tx.OnCommit(func() { t.Error("one after the other") })
					return tx.Put([]byte("k"), []byte("v"))
				})
			})
			got, err := db.Get([]byte("k"))
			require.NoError(t, err)
			require.Equal(t, "v", string(got))
			_, before, err := stored(db)
			require.NoError(t, err)
			requireUntouched(t, db, before)
		})
	}
}

// storeCalls are calls that are no transaction of the user's, and which of the user's functions
// they call.
var storeCalls = map[string]func(db *kv.DB, body func()){
	"PurgeExpired/OnExpire": func(db *kv.DB, body func()) {
		_, _ = db.PurgeExpired(context.Background(), kv.PurgeOptions{OnExpire: tell(body)})
	},
	"BulkLoad/first_row": func(db *kv.DB, body func()) {
		_, _ = db.BulkLoad(context.Background(), "empty", func(func(k, v []byte) bool) { body() })
	},
	"BulkLoad/late_row": func(db *kv.DB, body func()) {
		_, _ = db.BulkLoad(context.Background(), "empty", func(yield func(k, v []byte) bool) {
			for i := range 5000 {
				if !yield(fmt.Appendf(nil, "%06d", i), make([]byte, 20+i%3000)) {
					return
				}
			}
			body()
		})
	},
}

// TestCallbackOfTheStoreThatDoesNotComeBack is the same for callbacks of calls on the whole store.
func TestCallbackOfTheStoreThatDoesNotComeBack(t *testing.T) {
	for way, leave := range ways {
		for name, call := range storeCalls {
			t.Run(way+"/"+name, func(t *testing.T) {
				db := openForCallbacks(t, &kv.Options{})
				require.NoError(t, db.CreateCF("empty", kv.CFOptions{}))
				_, before, err := stored(db)
				require.NoError(t, err)
				value := errors.New("mine")
				requireLeft(t, way, value, func() { call(db, func() { leave(value) }) })
				requireUntouched(t, db, before)
			})
		}
	}
}

// TestWritersThatShareATransactionFindExpiredRows: one-shot writes of many goroutines replace expired
// rows. A callback that fails fails the write of its own key only, and each row whose write returned
// nil was reported once.
func TestWritersThatShareATransactionFindExpiredRows(t *testing.T) {
	const keys = 64
	var mu sync.Mutex
	reported := map[string]int{}
	db, clock := openClock(t, kv.Options{OnExpireTx: func(tx *kv.Tx, _ string, key, _ []byte) error {
		name := string(key)
		tx.OnCommit(func() {
			mu.Lock()
			defer mu.Unlock()
			reported[name]++
		})
		if err := tx.CF("trace").Put(key, nil); err != nil {
			return err
		}
		if key[len(key)-1] == '7' {
			return errStop
		}
		return nil
	}})
	require.NoError(t, db.CreateCF("trace", kv.CFOptions{}))
	for round := range 5 {
		fillTTL(t, db, keys, time.Second)
		clock.move(time.Minute)
		clear(reported)
		first, err := db.Begin(t.Context(), true) // The others queue behind it.
		require.NoError(t, err)
		var writers, ready sync.WaitGroup
		ready.Add(keys)
		for i := range keys {
			key := fmt.Appendf(nil, "k%06d", i)
			writers.Go(func() {
				ready.Done()
				var err error
				switch i % 3 {
				case 0:
					err = db.Put(key, nil)
				case 1:
					err = db.PutTTL(key, nil, time.Hour)
				default:
					err = db.Delete(key)
				}
				if key[len(key)-1] == '7' {
					if !errors.Is(err, errStop) {
						t.Errorf("%s: %v, want the error of the callback", key, err)
					}
				} else if err != nil {
					t.Errorf("%s: %v", key, err)
				}
			})
		}
		ready.Wait()
		runtime.Gosched()
		require.NoError(t, first.Rollback())
		writers.Wait()
		for i := range keys {
			key := fmt.Sprintf("k%06d", i)
			want := 1
			if i%10 == 7 {
				want = 0
			}
			require.Equal(t, want, reported[key], key)
			has, err := db.CF("trace").Has([]byte(key))
			require.NoError(t, err)
			require.Equal(t, want == 1, has, key)
		}
		require.NoError(t, db.Clear(), round)
		require.NoError(t, db.CF("trace").Clear())
	}
}
