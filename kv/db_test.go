package kv_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

func TestCloseWithOpenTransactionsIsRefused(t *testing.T) {
	for _, writable := range []bool{false, true} {
		db := openTest(t)
		tx, err := db.Begin(t.Context(), writable)
		require.NoError(t, err)
		require.ErrorIs(t, db.Close(), kv.ErrTxnsOpen)
		_, err = tx.Has([]byte("k"))
		require.NoError(t, err, "still usable")
		require.NoError(t, tx.Rollback())
		require.NoError(t, db.Put([]byte("k"), nil))
		require.NoError(t, db.Close())
		require.NoError(t, db.Close(), "closed already")
	}
}

// TestCloseInsideATransactionIsRefusedAtOnce calls Close from the goroutine that has the
// transaction open, also while a purge in the background waits for that transaction: it must not
// wait for either.
func TestCloseInsideATransactionIsRefusedAtOnce(t *testing.T) {
	clock := newClock()
	db := openOn(t, vfs.NewMemory(), &kv.Options{
		Clock: clock.now, Durability: kv.NoSync, AutoPurge: &kv.AutoPurge{Interval: time.Nanosecond},
	})
	for _, run := range []func(func(*kv.Tx) error) error{db.View, db.Update} {
		require.NoError(t, db.PutTTL([]byte("k"), nil, time.Second))
		require.NoError(t, run(func(*kv.Tx) error {
			clock.ms.Add(2000)
			for range 20 {
				require.ErrorIs(t, db.Close(), kv.ErrTxnsOpen)
			}
			return nil
		}))
	}
	require.NoError(t, db.Put([]byte("k"), nil), "the store stays usable")
}

// TestCallsThatWaitForTheOpenTransactionEndWithTheirContext makes, inside a callback of Update, the
// calls that wait for their caller's own transaction: without a context they would deadlock.
func TestCallsThatWaitForTheOpenTransactionEndWithTheirContext(t *testing.T) {
	clock := newClock()
	db := openOn(t, vfs.NewMemory(), &kv.Options{Clock: clock.now})
	require.NoError(t, db.CreateCF("f", kv.CFOptions{}))
	require.NoError(t, db.PutTTL([]byte("k"), nil, time.Second))
	clock.ms.Add(2000)
	require.NoError(t, db.Update(func(*kv.Tx) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, db.Checkpoint(ctx), context.Canceled)
		require.ErrorIs(t, db.Apply(ctx, db.NewBatch()), context.Canceled)
		_, err := db.PurgeExpired(ctx, kv.PurgeOptions{})
		require.ErrorIs(t, err, context.Canceled)
		_, err = db.BulkLoad(ctx, "f", numbered(1))
		require.ErrorIs(t, err, context.Canceled)
		for p := range db.Check(ctx) {
			require.Equal(t, "incomplete", p.Kind)
		}
		return nil
	}))
}

func TestClosedStoreKeepsItsLastNumbers(t *testing.T) {
	db := openTest(t)
	fill(t, db, "a", "b")
	require.NoError(t, db.Close())
	require.Equal(t, int64(2), db.Stats().Families["default"].Rows)
	require.True(t, db.RecoveryInfo().Created)
	var found []string
	for p := range db.Check(t.Context()) {
		found = append(found, p.Kind)
	}
	require.Equal(t, []string{"closed"}, found)
	require.ErrorIs(t, db.CF("x").Put([]byte("k"), nil), kv.ErrClosed)
}

func TestShutdownWaitsForOpenTransactions(t *testing.T) {
	fsys := vfs.NewMemory()
	db := openOn(t, fsys, quick)
	reader := beginTx(t, db, false)
	writer := beginTx(t, db, true)
	done := make(chan error)
	var none context.Context // means background
	go func() { done <- db.Shutdown(none) }()
	for {
		tx, err := db.Begin(context.Background(), false)
		if err != nil {
			require.ErrorIs(t, err, kv.ErrClosed)
			break
		}
		require.NoError(t, tx.Rollback())
	}
	require.NoError(t, writer.Put([]byte("k"), []byte("v")), "open ones go on")
	require.NoError(t, writer.Commit())
	require.NoError(t, reader.Rollback())
	require.NoError(t, <-done)
	require.NoError(t, db.Shutdown(t.Context()))
	db = openOn(t, fsys, quick)
	require.Equal(t, []string{"k=v"}, rows(t, db, "default"))
}

// TestShutdownEndsTransactionsWhenItsContextEnds: the ones of other goroutines too, between two of
// their calls, and without a fault for slices that they hold.
func TestShutdownEndsTransactionsWhenItsContextEnds(t *testing.T) {
	fsys := vfs.NewMemory()
	db := openOn(t, fsys, quick)
	fill(t, db, "a", "b")
	ready, closed := new(sync.WaitGroup), make(chan struct{})
	errs := make(chan error, 3)
	ready.Add(3)
	go func() {
		errs <- db.View(func(tx *kv.Tx) error {
			value, err := tx.Get([]byte("a"))
			ready.Done()
			if err != nil {
				return err
			}
			<-closed
			if string(value) != "v-a" {
				return fmt.Errorf("the value is now %q", value)
			}
			_, err = tx.Get([]byte("a"))
			return err
		})
	}()
	go func() {
		errs <- db.Update(func(tx *kv.Tx) error {
			err := tx.Put([]byte("c"), nil)
			ready.Done()
			<-closed
			return err // Commit says ErrClosed.
		})
	}()
	go func() {
		errs <- db.View(func(tx *kv.Tx) error {
			c := tx.Cursor()
			ok := c.First()
			ready.Done()
			<-closed
			for ; ok; ok = c.Next() {
			}
			return c.Err()
		})
	}()
	ready.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, db.Shutdown(ctx))
	close(closed)
	for range 3 {
		require.ErrorIs(t, <-errs, kv.ErrClosed)
	}
	db = openOn(t, fsys, quick)
	require.Equal(t, []string{"a=v-a", "b=v-b"}, rows(t, db, "default"))
}

// TestConcurrentUse: writers move a unit between two families, readers always see the same sum.
func TestConcurrentUse(t *testing.T) {
	db := openTest(t)
	for _, name := range []string{"a", "b"} {
		require.NoError(t, db.CreateCF(name, kv.CFOptions{}))
	}
	k, work := []byte("n"), new(sync.WaitGroup)
	_, err := db.CF("a").Increment(k, 1000, 0)
	require.NoError(t, err)
	_, err = db.CF("b").Increment(k, 1000, 0)
	require.NoError(t, err)
	check := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	for g := range 4 {
		work.Go(func() {
			for i := range 200 {
				check(db.Update(func(tx *kv.Tx) error {
					_, err := tx.CF("a").Increment(k, 1, 0)
					_, err2 := tx.CF("b").Increment(k, -1, 0)
					return errors.Join(err, err2, tx.Put(fmt.Appendf(nil, "%d-%d", g, i), nil))
				}))
				b := db.NewBatch()
				b.Put(fmt.Appendf(nil, "b%d", g), fmt.Appendf(nil, "%d", i))
				check(db.Apply(t.Context(), b))
			}
		})
		work.Go(func() {
			for range 200 {
				check(db.View(func(tx *kv.Tx) error {
					a, err := tx.CF("a").Get(k)
					b, err2 := tx.CF("b").Get(k)
					if sum := counter(a) + counter(b); sum != 2000 {
						return fmt.Errorf("the sum is %d", sum)
					}
					return errors.Join(err, err2)
				}))
				_, err := db.CF("a").Get(k)
				check(err)
				_ = db.Stats()
			}
		})
	}
	work.Go(func() {
		for i := range 50 {
			check(db.CreateCF(fmt.Sprint("f", i), kv.CFOptions{}))
			check(db.CF(fmt.Sprint("f", i)).Put(k, nil))
			if i%2 == 0 {
				check(db.DropCF(fmt.Sprint("f", i)))
			}
			check(db.Checkpoint(t.Context()))
		}
	})
	work.Wait()
	n, err := db.Count()
	require.NoError(t, err)
	require.Equal(t, int64(804), n)
}

// counter reads the value of an Increment.
func counter(b []byte) (n int64) {
	for _, x := range b {
		n = n<<8 | int64(x)
	}
	return n
}

func TestFailedStoreReadsOn(t *testing.T) {
	fsys := newBrokenFS()
	heard := 0
	db, err := openfs.Open(fsys, path,
		&kv.Options{Events: &kv.Events{Failure: func(error) { heard++ }}}, txn.Options{})
	require.NoError(t, err)
	fill(t, db, "a")
	poison(t, fsys, db)
	require.Equal(t, 1, heard)
	require.Equal(t, []string{"a=v-a"}, rows(t, db, "default"))
	require.ErrorIs(t, db.Sync(), kv.ErrFailed)
	require.ErrorIs(t, db.Checkpoint(t.Context()), kv.ErrFailed)
	_, err = db.Begin(t.Context(), true)
	require.ErrorIs(t, err, kv.ErrFailed)
	require.ErrorIs(t, err, errMachine, "with the first cause")
	_ = db.Close()
	fsys.broken.Store(false)
	db = openOn(t, fsys, nil)
	require.Contains(t, rows(t, db, "default"), "a=v-a")
}

// TestCloseFromManyGoroutines calls Close again and again while other goroutines begin, hold and use
// transactions: Close is refused while one is open, and never ends one. Finally one Close succeeds,
// all later ones return nil, no transaction begins any more, and every committed row is stored.
func TestCloseFromManyGoroutines(t *testing.T) {
	for round := range 8 {
		fsys := vfs.NewMemory()
		db := openOn(t, fsys, quick)
		held, err := db.Begin(t.Context(), round%2 == 0)
		require.NoError(t, err)
		var users, closers sync.WaitGroup
		errs := make(chan error, 64)
		var committed [4]int
		if round%2 == 1 { // Else the held one is the writer.
			for g := range committed {
				users.Go(func() {
					for i := range 50 {
						err := db.Update(func(tx *kv.Tx) error {
							if err := tx.Put(fmt.Appendf(nil, "%d-%02d", g, i), nil); err != nil {
								return err
							}
							for range tx.All() { // Never cut.
							}
							return nil
						})
						if err != nil {
							errs <- err
							return
						}
						committed[g]++
					}
				})
			}
		}
		for range 4 {
			users.Go(func() {
				for range 100 {
					err := db.View(func(tx *kv.Tx) error {
						for range tx.All() {
						}
						return tx.Err()
					})
					if err != nil {
						errs <- err
						return
					}
				}
			})
			closers.Go(func() {
				for range 100 {
					if err := db.Close(); !errors.Is(err, kv.ErrTxnsOpen) {
						errs <- fmt.Errorf("close with an open transaction: %w", err)
						return
					}
				}
			})
		}
		users.Wait()
		closers.Wait()
		require.NoError(t, held.Rollback())
		for range 4 {
			closers.Go(func() { errs <- db.Close() })
			closers.Go(func() {
				if err := db.View(func(*kv.Tx) error { return nil }); err != nil && !errors.Is(err,
					kv.ErrClosed) {
					errs <- err
				}
			})
		}
		closers.Wait()
		close(errs)
		for err := range errs {
			if !errors.Is(err, kv.ErrTxnsOpen) { // The last views may come first.
				require.NoError(t, err)
			}
		}
		require.NoError(t, db.Close())
		require.ErrorIs(t, db.View(func(*kv.Tx) error { return nil }), kv.ErrClosed)
		n := 0
		for _, c := range committed {
			n += c
		}
		require.Len(t, rows(t, openOn(t, fsys, quick), "default"), n)
	}
}

// TestShutdownEndsALoad at the next row, whether it goes through one transaction or many.
func TestShutdownEndsALoad(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Hour} {
		db, err := kv.OpenMemory(nil)
		require.NoError(t, err)
		require.NoError(t, db.CreateCF("f", kv.CFOptions{DefaultTTL: ttl}))
		begun, over, loaded := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := db.BulkLoad(context.Background(), "f", func(yield func(k, v []byte) bool) {
				for i := uint64(0); i < 5000 && yield(binary.BigEndian.AppendUint64(nil, i), nil); i++ {
					if i == 0 {
						close(begun)
					}
					select {
					case <-over: // It went on although the store is closed, or is asked for a row no more.
						return
					case <-time.After(time.Millisecond):
					}
				}
			})
			loaded <- err
		}()
		<-begun
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, db.Shutdown(ctx))
		close(over)
		require.ErrorIs(t, <-loaded, kv.ErrClosed, "default ttl %v", ttl)
	}
}
