package cf

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/txn"
)

// withEntry gives a write transaction on a catalog that holds one sound family and a row of any
// bytes.
func withEntry(t *testing.T, name string, entry []byte) *txn.Tx {
	t.Helper()
	s, err := txn.Open("test.ebb", txn.Options{FS: vfs.NewMemory()})
	require.NoError(t, err)
	tx, err := s.Begin(context.Background(), true)
	require.NoError(t, err)
	t.Cleanup(func() {
		tx.Rollback()
		require.NoError(t, s.Close())
	})
	_, err = Create(tx, "sound", Options{})
	require.NoError(t, err)
	_, err = tx.Put(txn.CatalogTree, []byte(name), entry, 0)
	require.NoError(t, err)
	return tx
}

// TestFamilyWithoutItsTreeIsCorrupt: the handle of such a family was returned, and its calls failed
// with an error of a lower package that did not name the damage.
func TestFamilyWithoutItsTreeIsCorrupt(t *testing.T) {
	tx := withEntry(t, "hollow", appendEntry(nil, &Family{Base: 1 << 47}))
	_, err := Lookup(tx, "hollow")
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.ErrorIs(t, Rename(tx, "hollow", "other"), badfile.ErrCorrupt)
	_, err = Lookup(tx, "sound")
	require.NoError(t, err)
}

// FuzzCatalog decodes an entry, which must encode to the same bytes, and puts it into a catalog:
// every verb ends in an answer or in damage, and the family beside it stays.
func FuzzCatalog(f *testing.F) {
	f.Add("sessions", appendEntry(nil, &Family{Base: 6}), "other")
	f.Add(
		"sound",
		appendEntry(nil, &Family{Base: 4, Options: Options{DefaultTTLMs: 1, RetentionMs: 2, PartitionMs: 1}}),
		"x",
	)
	f.Add("a", appendEntry(nil, &Family{Base: 1<<62 - 1}), "a")
	f.Add("__x", []byte{entryVersion + 1}, "")
	f.Fuzz(func(t *testing.T, name string, entry []byte, other string) {
		defer bound.Hold(t, 64<<20)()
		family, err := decodeEntry(name, entry)
		if err == nil {
			require.Equal(t, entry, appendEntry(nil, family))
		} else {
			require.True(t, errors.Is(err, badfile.ErrCorrupt) || errors.Is(err, ErrVersion), "%v", err)
		}
		if name == "" || len(name) > 500 || len(entry) > 5000 {
			return
		}
		tx := withEntry(t, name, entry)
		fine := func(err error) {
			t.Helper()
			for _, may := range []error{nil, badfile.ErrCorrupt, ErrVersion, ErrNotFound, ErrName,
				ErrReserved, ErrExists, ErrOptions} {
				if errors.Is(err, may) {
					return
				}
			}
			t.Errorf("error of a wrong kind: %v", err)
		}
		_, err = Lookup(tx, name)
		fine(err)
		fine(Each(tx, func(*Family) bool { return true }))
		_, err = FindBase(tx, 1<<40)
		fine(err)
		Check(tx, func(_ string, err error) bool { fine(err); return true })
		_, err = Create(tx, other, Options{})
		fine(err)
		fine(Alter(tx, name, Options{DefaultTTLMs: 5}))
		fine(Rename(tx, name, other+"2"))
		fine(Drop(tx, name))
		fine(Drop(tx, other+"2"))
	})
}
