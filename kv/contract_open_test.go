package kv_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/pager"
)

// Offsets in a meta page: see docs/format.md.
const (
	metaVersion  = 32
	metaFlags    = 36
	metaRequired = 40
	metaStoreID  = 56
	metaPageSize = 72
)

// forged returns a store whose two meta pages say something else, with right checksums.
func forged(store []byte, off int, value uint64) []byte {
	store = bytes.Clone(store)
	for slot := range 2 {
		page := store[slot*4096 : (slot+1)*4096]
		if bytes.Equal(page, make([]byte, len(page))) {
			continue
		}
		if off == metaRequired {
			binary.LittleEndian.PutUint64(page[off:], value)
		} else {
			binary.LittleEndian.PutUint32(page[off:], uint32(value))
		}
		pager.SetChecksum(page, pager.Salt([16]byte(page[metaStoreID:])))
	}
	return store
}

// TestForgedStoresAreRefusedWithNumbers has the lines of the contract about what a whole meta page
// says, for reading and for writing: the error has its kind, and both numbers where there are two.
func TestForgedStoresAreRefusedWithNumbers(t *testing.T) {
	good := storesOfEachKind(t)["clean"][mainFile]
	for _, test := range []struct {
		name  string
		store []byte
		opts  kv.Options
		want  error
		says  []string
	}{
		{"newer_version", forged(good, metaVersion, 77), kv.Options{}, kv.ErrVersion, []string{"77", fmt.Sprint(pager.FormatVersion)}},
		{"older_version", forged(good, metaVersion, 1), kv.Options{}, kv.ErrVersion, []string{"version 1", fmt.Sprint(pager.FormatVersion)}},
		{"unknown_feature", forged(good, metaRequired, 1<<40), kv.Options{}, kv.ErrVersion, []string{"0x10000000000", "0x1"}},
		{"page_size_that_cannot_be", forged(good, metaPageSize, 5000), kv.Options{}, kv.ErrCorrupt, nil},
		{"page_size_of_another_store", forged(good, metaPageSize, 8192), kv.Options{}, kv.ErrCorrupt, nil},
		{"unknown_flag", forged(good, metaFlags, 0x80), kv.Options{}, kv.ErrCorrupt, nil},
		{"other_page_size", good, kv.Options{PageSize: 8192}, kv.ErrInvalidOptions, []string{"4096", "8192"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, readOnly := range []bool{false, true} {
				disk := files{mainFile: test.store}.disk(t)
				before := image(t, disk, "dir")
				test.opts.ReadOnly = readOnly
				_, err := reopenAt(disk, newClock(), &test.opts)
				require.ErrorIs(t, err, test.want)
				for _, other := range []error{kv.ErrCorrupt, kv.ErrVersion, kv.ErrNotDatabase, kv.ErrInvalidOptions} {
					require.Equal(t, other == test.want, errors.Is(err, other), "%v is also %v", err, other)
				}
				for _, number := range test.says {
					require.ErrorContains(t, err, number)
				}
				require.Equal(t, before, image(t, disk, "dir"))
			}
		})
	}
}

// TestOpenErrorsNameThePathAndNoContent: errors do not leak the content of a file.
func TestOpenErrorsNameThePathAndNoContent(t *testing.T) {
	disk := files{mainFile: []byte("secret content of some other program, long enough to be looked at")}.disk(t)
	_, err := reopenAt(disk, newClock(), nil)
	require.Error(t, err)
	require.ErrorContains(t, err, path)
	require.NotContains(t, err.Error(), "secret")
	_, err = kv.OpenFS(vfs.NewMemory(), "absent/x.ebb", &kv.Options{MustExist: true}, kv.Tuning{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "absent/x.ebb")
}
