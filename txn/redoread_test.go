package txn

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// TestImpossibleLengthIsDamageAtOnce: an operation that announced a key of a terabyte was taken for
// one that goes on in the next record. All of its commit was read into memory, and each part of it
// moved all earlier ones: 64 MiB took a minute.
func TestImpossibleLengthIsDamageAtOnce(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	length := binary.AppendUvarint(nil, 1<<40)
	longest := uint64(tree.MaxKey(pager.MaxPageSize))
	for name, op := range map[string][]byte{
		"key":           append(appendOp(nil, opPut, 1), length...),
		"key_overflow":  append(appendOp(nil, opDelete, 1), bytes.Repeat([]byte{0xff}, 11)...),
		"key_by_a_byte": append(appendOp(nil, opDelete, 1), binary.AppendUvarint(nil, longest+2)...),
		"tagged_key":    append(appendTag(appendOp(nil, opPutTag, 1), 1), length...),
		"named_key":     append(appendTag(appendOp(nil, opPutNamed, 1), 1), length...),
		"set_tag_key":   append(appendTag(appendOp(nil, opSetTag, 1), 1), length...),
		"value":         append(appendPut(nil, 1, []byte("k"), 0), length...),
		"low_bound":     append(append(appendOp(nil, opRange, 1), rangeLo), length...),
		"high_bound":    append(append(appendOp(nil, opRange, 1), rangeHi), length...),
		"leaves":        append(append(appendOp(nil, opLeaves, 1), 5, 1), length...),
		"tree":          append([]byte{opDrop}, bytes.Repeat([]byte{0xff}, 11)...),
		"unknown":       {200, 1},
	} {
		payload := append(commitOne(), op...)
		err := newReplayer(s, emptyMeta(s), 1<<20).part(wal.Part{Payload: payload, Commit: 1000, First: true})
		require.ErrorIs(t, err, badfile.ErrCorrupt, name)
		require.NotContains(t, err.Error(), errShortRedo.Error(), name)
	}
}

// TestOperationOfManyPartsIsNotCopiedForEach: a value of 32 MiB that a backup found in the log was
// copied from its first byte on for each of its parts, of 128 KiB there. Here that would take minutes.
func TestOperationOfManyPartsIsNotCopiedForEach(t *testing.T) {
	value := bytes.Repeat([]byte("12345678"), 4<<20)
	payload := appendBytes(appendPut(commitOne(), 1, []byte("key"), 0), value)
	const part = 1 << 10
	var r LogOpReader
	got := 0
	for at := 0; at < len(payload); at += part {
		end := min(at+part, len(payload))
		require.NoError(t, r.Take(payload[at:end], at == 0, end == len(payload), func(op LogOp) error {
			_, v := op.Row()
			require.True(t, bytes.Equal(value, v))
			got++
			return nil
		}))
	}
	require.Equal(t, 1, got)
}

// TestBoundLongerThanAnyKeyIsCutInTheLog: it was logged whole, whatever its length, and read back into
// memory by recovery.
func TestBoundLongerThanAnyKeyIsCutInTheLog(t *testing.T) {
	fsys := vfs.NewMemory()
	s := openTest(t, "/a.ebb", testOptions(fsys))
	key := bytes.Repeat([]byte("k"), 1000)
	long := bytes.Repeat([]byte("k"), 1<<20)
	update(t, s, func(tx *Tx) {
		for i := range 4 {
			_, err := tx.Put(CatalogTree, append(key, byte(i)), nil, 0)
			require.NoError(t, err)
		}
	})
	update(t, s, func(tx *Tx) {
		rows, err := tx.DeleteRange(CatalogTree, append(bytes.Clone(key), 2), long)
		require.NoError(t, err)
		require.EqualValues(t, 2, rows)
		require.Less(t, tx.Bytes(), int64(4096))
		rows, err = tx.DeleteRange(CatalogTree, long, bytes.Repeat([]byte("l"), 1<<20))
		require.NoError(t, err)
		require.Zero(t, rows)
	})
	again := openTest(t, "/a.ebb", testOptions(copyFiles(t, fsys)))
	view(t, again, func(tx *Tx) { require.EqualValues(t, 2, tx.Rows(CatalogTree)) })
}
