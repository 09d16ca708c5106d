package txn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/wal"
)

// TestLargeValuesOfALogAreNotBuffered: a value that a commit without a sync has put is in the log, all
// of it, and was joined on the heap at every open. It goes to its extent part by part, in its turn
// among what was done before and after it.
func TestLargeValuesOfALogAreNotBuffered(t *testing.T) {
	value := func(seed, n int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%07d.", seed), n/8+1)[:n] }
	path := filepath.Join(t.TempDir(), "a.ebb")
	o := testOptions(vfs.OS)
	o.CheckpointBytes, o.CacheBytes, o.SegmentSize = 1<<40, 4<<20, 1<<20
	s, err := Open(path, o)
	require.NoError(t, err)
	want := map[string]int{} // sizes
	for i, n := range []int{10, largeValue - 1, largeValue, largeValue + 1, 16 << 20, 3<<20 + 5, 700} {
		tx := begin(t, s, true)
		tx.SetDurability(NoSync)
		for k := range 50 { // in part over what was there
			key := fmt.Sprintf("row %d", (i*31+k)%70)
			mustPut(t, tx, CatalogTree, []byte(key), value(1, 100+i), 0)
			want[key] = 100 + i
		}
		keys := []string{"large, again and again", fmt.Sprint("large ", i)}
		if i < 4 {
			keys = append(keys, "small, then large")
		}
		for _, key := range keys {
			mustPut(t, tx, CatalogTree, []byte(key), value(1, n), int64(i))
			want[key] = n
		}
		mustPut(t, tx, CatalogTree, []byte("row 3"), value(1, 7), 0)
		want["row 3"] = 7
		require.NoError(t, tx.Commit(NoSync))
	}
	killed := filepath.Join(t.TempDir(), "killed")
	require.NoError(t, os.CopyFS(killed, os.DirFS(filepath.Dir(path))))
	require.NoError(t, s.Close())
	path = filepath.Join(killed, "a.ebb")
	look := func(s *Store) {
		tx := begin(t, s, false)
		defer tx.Rollback()
		require.EqualValues(t, len(want), tx.Rows(CatalogTree))
		for key, n := range want {
			got, _, found, err := tx.Get(CatalogTree, []byte(key))
			require.NoError(t, err)
			require.True(t, found && bytes.Equal(value(1, n), got), "%s: %d bytes, not %d", key, len(got), n)
		}
		requireSound(t, s)
	}
	for _, asLogged := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "copy")
		require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Dir(path))))
		done := bound.Hold(t, 24<<20) // a joined value takes more, with what append drops
		s, err := openReplaying(filepath.Join(dir, "a.ebb"), o, asLogged)
		done()
		require.NoError(t, err)
		require.Equal(t, 7, s.Recovery().CommitsReplayed)
		look(s)
		require.NoError(t, s.Close())
	}
	o.ReadOnly = true
	s, err = Open(path, o)
	require.NoError(t, err)
	look(s)
	require.NoError(t, s.Close())
}

// TestLargeValueWithoutItsEndIsDamage, and so is one that no transaction puts, whatever of it is
// there.
func TestLargeValueWithoutItsEndIsDamage(t *testing.T) {
	commit := func(r redo, n uint64) []byte {
		b := binary.LittleEndian.AppendUint64(nil, 1)
		b = binary.LittleEndian.AppendUint64(b, 0)
		b = append(b, r.op)
		b = binary.AppendUvarint(b, uint64(r.id))
		b = appendBytes(b, r.key)
		return append(binary.AppendUvarint(b, n), make([]byte, 1000)...)
	}
	for name, payload := range map[string][]byte{
		"cut":       commit(redo{op: opPut, id: CatalogTree, key: []byte("k")}, largeValue),
		"too_large": commit(redo{op: opPut, id: CatalogTree, key: []byte("k")}, 1<<40),
		"no_tree":   commit(redo{op: opPut, id: 77, key: []byte("k")}, largeValue),
		"no_key":    commit(redo{op: opPut, id: CatalogTree}, largeValue),
	} {
		s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
		before := s.pg.Alloc.FileBytes()
		err := takeParts(newReplayer(s, emptyMeta(s), 1<<20), payload, 100, 1000)
		require.ErrorIs(t, err, badfile.ErrCorrupt, name)
		err = replayAll(s, 100, payload)
		require.ErrorIs(t, err, badfile.ErrCorrupt, name)
		if name != "cut" {
			require.Equal(t, before, s.pg.Alloc.FileBytes(), "%s: no extent is begun", name)
		}
		s.w.rollback()
	}
}

// TestCommitWithLostLeavesIsNotApplied: a later part of a commit references leaves that a crash has
// lost. Its earlier parts are not applied, neither by the reader that detects it nor by the next one.
func TestCommitWithLostLeavesIsNotApplied(t *testing.T) {
	for _, name := range []string{"in the first part", "in a later part"} {
		s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
		head := func(seq int) []byte {
			b := binary.LittleEndian.AppendUint64(nil, uint64(seq))
			return binary.LittleEndian.AppendUint64(b, uint64(7*seq))
		}
		put := func(b []byte, key string) []byte {
			return appendRedo(b, redo{op: opPut, id: CatalogTree, key: []byte(key), value: []byte("v")})
		}
		ref := s.table.Root
		ref.Pgid, ref.Epoch = 2, 1
		leaves := appendLeaves(nil, CatalogTree, ref, make([]byte, 4*sumSize))
		parts := []wal.Part{
			{Payload: put(head(1), "a"), Commit: 1000, First: true, Last: true},
			{Payload: put(head(2), "b"), Commit: 2000, First: true},
			{Payload: leaves, Commit: 2000, Last: true},
		}
		if name == "in the first part" {
			parts[1].Payload = append(parts[1].Payload, leaves...)
		}
		read := func(p *replayer) (err error) {
			for i := 0; i < len(parts) && err == nil; i++ {
				err = p.part(parts[i])
			}
			return err
		}
		p := newReplayer(s, emptyMeta(s), 1<<20)
		require.ErrorIs(t, read(p), wal.ErrRefLost)
		require.EqualValues(t, 1, p.last.seq)
		require.EqualValues(t, 7, p.last.mark)
		require.Empty(t, p.refs)
		again := newReplayer(s, emptyMeta(s), 1<<20)
		again.lost = p.lost
		s.w.begin()
		s.w.noLog = true
		again.applyWith(&s.w)
		require.ErrorIs(t, read(again), wal.ErrRefLost)
		require.NoError(t, again.finish())
		s.w.publishMaintenance()
		s.queue.makeVisible()
		tx := begin(t, s, false)
		require.Len(t, contents(t, tx, CatalogTree), 1, name)
		require.EqualValues(t, 1, s.head.seq)
		tx.Rollback()
	}
}

// TestFirstPassOverALogTakesLargeValues: a crash between the meta page of a checkpoint and the removal
// of the log before it leaves two states that the next open could start from. The log after the older
// one is then read before the page size is known, and a large value was refused there if its key had
// more than eight bytes: that state was passed over, though the newer one may not be durable.
func TestFirstPassOverALogTakesLargeValues(t *testing.T) {
	dir, copied := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	o := testOptions(vfs.OS)
	o.CheckpointBytes = 1 << 40
	s, err := Open(filepath.Join(dir, "a.ebb"), o)
	require.NoError(t, err)
	value := bytes.Repeat([]byte("value"), largeValue)
	key := []byte("a key of more than eight bytes")
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, CatalogTree, []byte("a"), nil, 0)
	})
	require.NoError(t, s.Checkpoint(t.Context()))
	update(t, s, func(tx *Tx) {
		tx.SetDurability(NoSync)
		mustPut(t, tx, CatalogTree, key, value, 0)
	})
	require.NoError(t, s.Sync())
	require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
	require.NoError(t, s.Checkpoint(t.Context()))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files { // all but the log that the checkpoint has released
		now, err := os.ReadFile(filepath.Join(dir, f.Name()))
		require.NoError(t, err)
		was, err := os.ReadFile(filepath.Join(copied, f.Name()))
		if f.Name() == "a.ebb" || err != nil || bytes.Equal(was[:64], now[:64]) {
			require.NoError(t, os.WriteFile(filepath.Join(copied, f.Name()), now, 0o600))
		}
	}
	require.NoError(t, s.Abandon())

	s, err = Open(filepath.Join(copied, "a.ebb"), o)
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Recovery().CommitsReplayed, "%+v: it starts from the older state",
		s.Recovery())
	view(t, s, func(tx *Tx) {
		got, _, found, err := tx.Get(CatalogTree, key)
		require.NoError(t, err)
		require.True(t, found && bytes.Equal(value, got))
	})
	require.NoError(t, s.Close())
}
