package kv_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// crashed copies the files of an open store as a killed process would leave them.
func crashed(t *testing.T, from vfs.FS) vfs.FS {
	t.Helper()
	return crashedInto(t, vfs.NewMemory(), from)
}

// crashedInto is crashed with the disk that the files are copied to.
func crashedInto[D vfs.FS](t *testing.T, to D, from vfs.FS) D {
	t.Helper()
	names, err := from.List("dir")
	require.NoError(t, err)
	for _, name := range names {
		src, err := from.Open("dir/"+name, 0)
		require.NoError(t, err)
		size, err := src.Size()
		require.NoError(t, err)
		content := make([]byte, size)
		require.NoError(t, vfs.ReadFull(src, content, 0))
		dst, err := to.Open("dir/"+name, vfs.Write|vfs.Create)
		require.NoError(t, err)
		require.NoError(t, vfs.WriteFull(dst, content, 0))
		require.NoError(t, src.Close())
		require.NoError(t, dst.Close())
	}
	return to
}

// TestUncleanStoreIsReplayed: for reading without a changed byte, for writing for good.
func TestUncleanStoreIsReplayed(t *testing.T) {
	fsys := vfs.NewMemory()
	db := openOn(t, fsys, nil)
	for i := range 10 {
		require.NoError(t, db.Put(fmt.Appendf(nil, "k%d", i), nil))
	}
	fsys = crashed(t, fsys)
	before := image(t, fsys, "dir")

	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	db = openOn(t, fsys, &kv.Options{ReadOnly: true, Logger: log})
	info := db.RecoveryInfo()
	require.False(t, info.Clean)
	require.False(t, info.Created)
	require.GreaterOrEqual(t, info.CommitsReplayed, 10)
	require.Contains(t, text.String(), "replayed")
	require.Len(t, rows(t, db, "default"), 10)
	require.NoError(t, db.Close())
	require.Equal(t, before, image(t, fsys, "dir"))

	db = openOn(t, fsys, nil)
	require.Equal(t, info.CommitsReplayed, db.RecoveryInfo().CommitsReplayed)
	require.Equal(t, info.Seq, db.RecoveryInfo().Seq)
	require.NoError(t, db.Close())
	db = openOn(t, fsys, nil)
	require.True(t, db.RecoveryInfo().Clean)
	require.Len(t, rows(t, db, "default"), 10)
}

func TestMustExistDoesNotCreate(t *testing.T) {
	fsys := vfs.NewMemory()
	for _, o := range []kv.Options{{MustExist: true}, {ReadOnly: true}} {
		_, err := kv.OpenFS(fsys, path, &o, kv.Tuning{})
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NotErrorIs(t, err, kv.ErrNotFound, "another kind of absence")
	}
	db := openOn(t, fsys, nil)
	require.True(t, db.RecoveryInfo().Created)
	require.Equal(t, path, db.Path())
}

func TestEventsTellOfCommitsAndCheckpoints(t *testing.T) {
	var commits, checkpoints int
	var text bytes.Buffer
	db := openOn(t, vfs.NewMemory(), &kv.Options{
		Logger: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Events: &kv.Events{
			CommitGroup: func(n int, size int64, _ time.Duration) {
				commits += n
				if size <= 0 {
					t.Errorf("a group of %d bytes", size)
				}
			},
			Checkpoint: func(pages int, _ time.Duration, err error) {
				checkpoints++
				if err != nil || pages == 0 {
					t.Errorf("checkpoint of %d pages: %v", pages, err)
				}
			},
		},
	})
	before := commits
	for i := range 3 {
		require.NoError(t, db.Put([]byte{byte(i + 1)}, nil))
	}
	require.Equal(t, 3, commits-before)
	require.NoError(t, db.Checkpoint(t.Context()))
	require.NotZero(t, checkpoints)
	require.Contains(t, text.String(), "checkpoint")
	require.NotZero(t, db.Stats().Checkpoints)
}
