package txn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// mendBackup sets the checksums of a stream of pages of 4 KiB: of its meta page, of the header and of
// each frame, and with pages of each page, as far as they are there.
func mendBackup(b []byte, pages bool) {
	const headed = backupHeader + pager.MinPageSize
	if len(b) < headed {
		return
	}
	meta := b[backupHeader:headed]
	salt := pager.Salt([16]byte(meta[56:72]))
	pager.SetChecksum(meta, salt)
	sum := backupHeaderSum(b[:headed])
	binary.LittleEndian.PutUint64(b[offBackupSum:], sum)
	hash := xxhash.New()
	for b = b[headed:]; len(b) >= frameHeader; {
		size := frameHeader + int(binary.LittleEndian.Uint32(b[8:])%257)*pager.MinPageSize
		if size > len(b) {
			return
		}
		for at := frameHeader; pages && at < size; at += pager.MinPageSize {
			pager.SetChecksum(b[at:at+pager.MinPageSize], salt)
		}
		sum = frameSum(hash, sum, b[:size])
		binary.LittleEndian.PutUint64(b[offFrameSum:], sum)
		b = b[size:]
	}
}

// FuzzBackup reads and restores any bytes as a backup, also with right checksums: an error, or a store
// that opens and is sound.
func FuzzBackup(f *testing.F) {
	s, err := Open("/a.ebb", testOptions(vfs.NewMemory()))
	require.NoError(f, err)
	tx, err := s.Begin(f.Context(), true)
	require.NoError(f, err)
	require.NoError(f, tx.Create(9))
	for i := range 60 {
		_, err := tx.Put(9, []byte{byte(i)}, make([]byte, i*9), int64(i))
		require.NoError(f, err)
	}
	require.NoError(f, tx.Commit(Sync))
	var full, inc bytes.Buffer
	b, err := s.Backup(f.Context(), &full, BackupOptions{})
	require.NoError(f, err)
	_, err = s.Backup(f.Context(), &inc, BackupOptions{Since: b})
	require.NoError(f, err)
	require.NoError(f, s.Close())
	f.Add(full.Bytes(), false)
	f.Add(full.Bytes(), true)
	f.Add(inc.Bytes(), true)
	f.Add(full.Bytes()[:backupHeader+pager.MinPageSize], true)
	f.Fuzz(func(t *testing.T, stream []byte, mend bool) {
		defer bound.Hold(t, uint64(48<<20+64*len(stream)))()
		stream = bytes.Clone(stream)
		if mend {
			mendBackup(stream, true)
		}
		info, err := VerifyBackup(t.Context(), bytes.NewReader(stream))
		if err != nil {
			require.True(t, errors.Is(err, badfile.ErrCorrupt) || errors.Is(err, ErrVersion) ||
				errors.Is(err, ErrBackupBase), "%v", err)
			return
		}
		require.EqualValues(t, len(stream), info.Bytes)
		if info.StorePages > 1<<12 {
			return // The free map of a store costs bits for each of its pages.
		}
		o := testOptions(vfs.NewMemory())
		if err := Restore(t.Context(), "/r.ebb", o, bytes.NewReader(stream)); err != nil {
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			names, err := o.FS.List("/")
			require.NoError(t, err)
			require.Empty(t, names)
			return
		}
		o.MustExist = true
		s, err := Open("/r.ebb", o)
		require.NoError(t, err)
		requireSound(t, s)
		require.NoError(t, s.Close())
	})
}
