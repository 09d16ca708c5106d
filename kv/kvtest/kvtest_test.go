package kvtest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/kv/kvtest"
)

func TestAClockStandsWhereTheTestSetsIt(t *testing.T) {
	clock := kvtest.NewClock(time.UnixMilli(1_800_000_000_000))
	db := kvtest.Open(t, &kv.Options{Clock: clock.Now})
	require.NoError(t, db.PutTTL([]byte("k"), []byte("v"), time.Minute))
	clock.Advance(59 * time.Second)
	has, err := db.Has([]byte("k"))
	require.NoError(t, err)
	require.True(t, has)
	clock.Set(time.UnixMilli(1_800_000_060_000))
	_, err = db.Get([]byte("k"))
	require.ErrorIs(t, err, kv.ErrNotFound)
}

func TestAKilledProcessLosesNoCommit(t *testing.T) {
	disk := kvtest.NewDisk(t)
	db := disk.Open("app.ebb", &kv.Options{Durability: kv.NoSync})
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	disk.Kill()
	value, err := disk.Open("app.ebb", nil).Get([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, "v", string(value))
}

func TestAPowerCutLosesOnlyWhatWasNotSynced(t *testing.T) {
	kept, lost := 0, 0
	for seed := range uint64(20) {
		disk := kvtest.NewDisk(t)
		db := disk.Open("app.ebb", nil)
		require.NoError(t, db.Put([]byte("durable"), []byte("v")))
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			tx.SetDurability(kv.NoSync)
			return tx.Put([]byte("relaxed"), []byte("v"))
		}))
		disk.PowerCut(seed)
		db = disk.Open("app.ebb", nil)
		value, err := db.Get([]byte("durable"))
		require.NoError(t, err)
		require.Equal(t, "v", string(value))
		switch has, err := db.Has([]byte("relaxed")); {
		case err != nil:
			require.NoError(t, err)
		case has:
			kept++
		default:
			lost++
		}
	}
	require.NotZero(t, kept)
	require.NotZero(t, lost)
}

func TestSeveralCrashesFollowEachOther(t *testing.T) {
	disk := kvtest.NewDisk(t)
	for i := range 5 {
		db := disk.Open("app.ebb", nil)
		n, err := db.Count()
		require.NoError(t, err)
		require.EqualValues(t, i, n)
		require.NoError(t, db.Put(fmt.Appendf(nil, "%d", i), nil))
		disk.PowerCut(uint64(i))
	}
}

// recorder is a test whose errors do not fail this one.
type recorder struct {
	testing.TB
	cleanup []func()
	errors  int
}

func (r *recorder) Helper()               {}
func (r *recorder) Cleanup(f func())      { r.cleanup = append(r.cleanup, f) }
func (r *recorder) Errorf(string, ...any) { r.errors++ }

func TestAStoreThatCannotCloseFailsItsTest(t *testing.T) {
	r := &recorder{TB: t}
	db := kvtest.Open(r, nil)
	tx, err := db.Begin(t.Context(), false)
	require.NoError(t, err)
	r.cleanup[0]()
	require.Equal(t, 1, r.errors, "a transaction is open")
	require.NoError(t, errors.Join(tx.Rollback(), db.Close()))
	r.cleanup[0]()
	require.Equal(t, 1, r.errors, "a closed store is no error")
}
