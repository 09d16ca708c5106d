package salvage_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/salvage"
	"github.com/ebbkv/ebb/kv"
)

// TestNewStoreAfterACrash: its name stands for the whole store or for nothing, and once Run has returned
// nil for the whole store. A Run after the crash removes what the other one has left.
func TestNewStoreAfterACrash(t *testing.T) {
	racetest.OneGoroutine(t)
	const out = "out.ebb"
	disk := crashfs.New(crashfs.Options{})
	db := open(t, disk, damaged, kv.Options{})
	want := []string{}
	for i := range 40 {
		key := fmt.Sprintf("%03d", i)
		require.NoError(t, db.Put([]byte(key), make([]byte, 50*i)))
		want = append(want, "default/"+key)
	}
	require.NoError(t, db.Close())
	begun := disk.Len()
	run := func(fsys *crashfs.Disk) {
		_, err := salvage.Run(t.Context(), damaged, out, salvage.Options{FS: fsys, Engine: engine})
		require.NoError(t, err)
		require.Equal(t, want, keys(t, fsys, out))
	}
	_, err := salvage.Run(t.Context(), damaged, out, salvage.Options{FS: disk, Engine: engine})
	require.NoError(t, err)
	returned := disk.Len()
	absent, whole := 0, 0
	for im := range disk.Images(crashfs.ImageOptions{
		From: begun, Random: 2,
		OneOf: func(p crashfs.Profile) int {
			if p == crashfs.Kill || p == crashfs.None {
				return 1
			}
			return racetest.Sample(6, 30)
		},
		Expects: func(point int) uint64 {
			if point >= returned { // An image without the store is wrong from then on.
				return 1
			}
			return 0
		},
	}) {
		d := im.Disk(crashfs.Options{})
		if _, err := d.Stat(out); errors.Is(err, fs.ErrNotExist) {
			require.Less(t, im.Point, returned, im.Desc())
			if absent++; absent%8 == 0 {
				run(d)
			}
			continue
		}
		require.Equal(t, want, keys(t, d, out), "%d %s", im.Point, im.Desc())
		whole++
	}
	require.Positive(t, absent)
	require.Positive(t, whole)
}
