package kv_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/kv"
)

// stops is a store whose CommitGroup ends its goroutine once, when it is armed.
type stops struct {
	*kv.DB
	disk  *crashfs.Disk
	value error
	armed atomic.Bool
	leave func(any)
}

func openStops(t *testing.T, leave func(any), tune kv.Tuning) *stops {
	s := &stops{disk: crashfs.New(crashfs.Options{}), value: errors.New("mine"), leave: leave}
	db, err := kv.OpenFS(
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

// TestCheckpointThatACallbackStops: what it was to write counts as written in memory. So nothing
// more is written, and the log keeps all.
func TestCheckpointThatACallbackStops(t *testing.T) {
	for way, leave := range ways {
		t.Run(way, func(t *testing.T) {
			s := openStops(t, leave, kv.Tuning{SegmentSize: 64 << 10})
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
			s := openStops(t, leave, kv.Tuning{SegmentSize: 64 << 10})
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
			require.Empty(t, rows(t, s.DB, "f"), "nobody sees it before it is durable")
			db := s.reopen(t)
			require.Len(t, rows(t, db, "default"), 1)
			require.Contains(t, []int{0, 100}, len(rows(t, db, "f")))
		})
	}
}

// TestCommitThatACallbackStopsBeforeItsEnd: a commit of many parts has the log's queue written on
// its way. What is already there of it must not become the beginning of the next one.
func TestCommitThatACallbackStopsBeforeItsEnd(t *testing.T) {
	for way, leave := range ways {
		for name, savepoint := range map[string]bool{"appended at once": true, "appended bit by bit": false} {
			t.Run(way+"/"+name, func(t *testing.T) {
				s := openStops(t, leave, kv.Tuning{})
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
				for im := range s.disk.Images(crashfs.ImageOptions{Profiles: crashfs.Kill, From: s.disk.Len()}) {
					db := openOn(t, im.Disk(crashfs.Options{}), nil)
					require.Equal(t, []string{"first=", "last="}, rows(t, db, "default"))
				}
				require.NoError(t, s.Close())
			})
		}
	}
}
