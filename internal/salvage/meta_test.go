package salvage_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/salvage"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/txn"
)

// TestMetaPageDamagedInTheMiddleOfACheckpoint: commits go on beside a checkpoint, whose tables are
// complete before its meta page is written. With the older meta page damaged as well, the log has
// commits that these tables do not have: all that were acknowledged are saved.
func TestMetaPageDamagedInTheMiddleOfACheckpoint(t *testing.T) {
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	tuned := txn.Options{NoMap: true, Inline: true, SegmentSize: 64 << 10}
	beside := &besideFS{FS: disk}
	db, err := openfs.Open(beside, damaged, nil, tuned)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	put := func(i int) {
		require.NoError(t, db.Put(fmt.Appendf(nil, "%03d", i), make([]byte, 100)))
		disk.Acked(uint64(i))
	}
	for i := 1; i <= 40; i++ {
		if put(i); i%8 == 0 {
			require.NoError(t, db.Checkpoint(t.Context()))
		}
	}
	begun := disk.Len()
	for i := 41; i <= 44; i++ {
		put(i)
	}
	beside.write = func() { put(45) }
	require.NoError(t, db.Checkpoint(t.Context()))
	require.Nil(t, beside.write)
	n := 0
	for im := range disk.Images(crashfs.ImageOptions{
		Profiles: crashfs.Kill | crashfs.None | crashfs.Prefix | crashfs.Reorder, From: begun,
		OneOf: func(crashfs.Profile) int { return racetest.Sample(1, 8) },
	}) {
		d := im.Disk(crashfs.Options{})
		older := pager.Header{Epoch: pager.MaxEpoch}
		zero(t, d, func(h pager.Header) bool {
			if h.Kind == pager.KindMeta && h.Epoch < older.Epoch {
				older = h
			}
			return false
		})
		f, err := d.Open(damaged, vfs.Write)
		require.NoError(t, err)
		require.NoError(t, vfs.WriteFull(f, []byte("garbage"), int64(older.Pgid)*page+100))
		require.NoError(t, f.Close())
		n++
		n++
		r, err := salvage.Run(t.Context(), damaged, "out.ebb",
			salvage.Options{FS: d, Log: true, Engine: engine})
		require.NoError(t, err)
		saved := keys(t, d, "out.ebb")
		for i, key := range saved {
			require.Equal(t, fmt.Sprintf("default/%03d", i+1), key)
		}
		require.GreaterOrEqual(t, len(saved), int(im.Acked), "point %d %s, of 2 meta pages %d: %+v",
			im.Point, im.Desc(), older.Pgid, r)
	}
	require.Greater(t, n, racetest.Sample(20, 4))
}

// besideFS calls write once before a page of the main file is written.
type besideFS struct {
	vfs.FS
	write func()
}

func (fs *besideFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	f, err := fs.FS.Open(name, flag)
	if name != damaged || err != nil {
		return f, err
	}
	return &besideFile{f, fs}, nil
}

type besideFile struct {
	vfs.File
	fs *besideFS
}

func (f *besideFile) WriteAt(p []byte, off int64) (int, error) {
	if write := f.fs.write; write != nil && off >= 2*page {
		f.fs.write = nil
		write()
	}
	return f.File.WriteAt(p, off)
}

func (f *besideFile) StartWriteAt(p []byte, off int64) vfs.Pending { return vfs.WriteNow(f, p, off) }
