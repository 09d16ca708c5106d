package kv_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// TestDeletesWorkAtTheBound fills a bounded store until it is full, empties it, and fills it again.
func TestDeletesWorkAtTheBound(t *testing.T) {
	for _, size := range []int{900, 2000} { // in the page, and in extents
		t.Run(fmt.Sprint(size), func(t *testing.T) { fillAndEmpty(t, make([]byte, size)) })
	}
}

func fillAndEmpty(t *testing.T, value []byte) {
	db := openOn(t, vfs.NewMemory(), &kv.Options{MaxBytes: 4 << 20, Durability: kv.NoSync})
	for round := range 3 {
		var err error
		n := 0
		for ; err == nil && n < 10_000; n++ {
			err = db.Put(fmt.Appendf(nil, "k%06d", n), value)
		}
		require.ErrorIs(t, err, kv.ErrNoSpace, "round %d", round)
		require.Greater(t, n, 500, "round %d", round)
		s := db.Stats()
		require.LessOrEqual(t, s.FileBytes+s.LogBytes, int64(4<<20))
		require.NoError(t, db.Delete([]byte("k000000")))
		require.NoError(t, db.Clear())
		require.NoError(t, db.Checkpoint(t.Context()))
	}
	require.NoError(t, db.Put([]byte("k"), value))
}

// TestLargeValuesAreOverwrittenAtTheBound: a checkpoint frees the pages that the log refers to, and
// a write that needs the space waits for it.
func TestLargeValuesAreOverwrittenAtTheBound(t *testing.T) {
	db := openOn(t, vfs.NewMemory(), &kv.Options{MaxBytes: 8 << 20})
	for i := range 100 {
		require.NoError(t, db.Put(fmt.Append(nil, i%2), make([]byte, 1<<20)), "put %d", i)
	}
}
