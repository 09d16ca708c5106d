package certstore_test

import (
	"context"
	"io/fs"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/adapters/certstore"
	"github.com/ebbkv/ebb/kv"
)

var ctx = context.Background()

func open(t *testing.T) *certstore.Store {
	db, err := kv.OpenMemory(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s, err := certstore.New(db, "certificates")
	require.NoError(t, err)
	return s
}

// The file storage of certmagic and this one answer the same.
func TestTheStoreAnswersAsFilesDo(t *testing.T) {
	files := &certmagic.FileStorage{Path: t.TempDir()}
	s := open(t)
	names := []string{"certificates/ca/one/one.crt", "certificates/ca/one/one.key",
		"certificates/ca/two.b/two.crt", "certificates/ca-2/x", "certificates/ca0/x", "last"}
	same := func() {
		t.Helper()
		for _, key := range append(names, "certificates", "certificates/", "certificates/ca", "ca",
			"no/such") {
			want, wantErr := files.Load(ctx, key)
			got, err := s.Load(ctx, key)
			require.Equal(t, wantErr == nil, err == nil, key)
			require.Equal(t, string(want), string(got), key)
			require.Equal(t, files.Exists(ctx, key), s.Exists(ctx, key), key)
			wantInfo, wantErr := files.Stat(ctx, key)
			info, err := s.Stat(ctx, key)
			require.Equal(t, wantErr == nil, err == nil, key)
			require.Equal(t, wantInfo.IsTerminal, info.IsTerminal, key)
			if info.IsTerminal {
				require.Equal(t, wantInfo.Size, info.Size, key)
			}
			if !files.Exists(ctx, key) {
				require.ErrorIs(t, err, fs.ErrNotExist)
				continue
			}
			if wantInfo.IsTerminal {
				continue
			}
			wantKeys, wantErr := files.List(ctx, key, false)
			keys, err := s.List(ctx, key, false)
			require.Equal(t, wantErr == nil, err == nil, key)
			require.ElementsMatch(t, wantKeys, keys, key)
		}
	}
	same()
	for i, key := range names {
		require.NoError(t, files.Store(ctx, key, value(i)))
		require.NoError(t, s.Store(ctx, key, value(i)))
	}
	same()
	all, err := s.List(ctx, "certificates", true)
	require.NoError(t, err)
	require.ElementsMatch(t, names[:5], all)
	for _, key := range []string{"certificates/ca/one", "last", "no/such"} {
		require.NoError(t, files.Delete(ctx, key))
		require.NoError(t, s.Delete(ctx, key))
		same()
	}
}

func value(i int) []byte { return make([]byte, i*1000) }

func TestALockIsHeldByOneAtATime(t *testing.T) {
	s := open(t)
	var wg sync.WaitGroup
	n := 0
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if err := s.Lock(ctx, "n"); err != nil {
					t.Error(err)
				}
				n++ // the race detector watches
				if err := s.Unlock(ctx, "n"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 800, n)

	require.NoError(t, s.Lock(ctx, "n"))
	ended, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Lock(ended, "n"), context.DeadlineExceeded)
	locked, err := s.TryLock(ctx, "n")
	require.NoError(t, err)
	require.False(t, locked)
	require.NoError(t, s.Lock(ctx, "another"))
	require.NoError(t, s.Unlock(ctx, "n"))
	require.Error(t, s.Unlock(ctx, "n"))
	locked, err = s.TryLock(ctx, "n")
	require.NoError(t, err)
	require.True(t, locked)
}
