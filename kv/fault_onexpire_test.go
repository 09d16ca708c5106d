package kv_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

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
