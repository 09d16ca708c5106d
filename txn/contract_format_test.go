package txn

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/golden"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// goldenRedo has one operation of each kind.
var goldenRedo = []struct {
	want  redo
	parts []golden.Part
}{
	{redo{op: opPut, id: 1, key: []byte("key"), value: []byte("value")},
		[]golden.Part{
			{1, "put"},
			{1, "tree 1"},
			{1, "key length"},
			{3, `key "key"`},
			{1, "value length"},
			{5, `value "value"`},
		}},
	{redo{op: opPutTag, id: 300, key: []byte("k"), value: []byte{}, tag: 0x0102030405060708},
		[]golden.Part{
			{1, "put, tag"},
			{2, "tree 300"},
			{8, "tag"},
			{1, "key length"},
			{1, `key "k"`},
			{1, "value length"},
		}},
	{
		redo{op: opDelete, id: 1, key: []byte("key")},
		[]golden.Part{{1, "delete"}, {1, "tree 1"}, {1, "key length"}, {3, `key "key"`}},
	},
	{redo{op: opRange, id: 1}, []golden.Part{{1, "delete range"}, {1, "tree 1"}, {1, "bounds: none"}}},
	{redo{op: opRange, id: 1, key: []byte("a")},
		[]golden.Part{{1, "delete range"}, {1, "tree 1"}, {1, "bounds: lo"}, {1, "lo length"},
			{1, `lo "a"`}}},
	{redo{op: opRange, id: 1, value: []byte("b")},
		[]golden.Part{{1, "delete range"}, {1, "tree 1"}, {1, "bounds: hi"}, {1, "hi length"},
			{1, `hi "b"`}}},
	{
		redo{op: opRange, id: 1, key: []byte("a"), value: []byte("b")},
		[]golden.Part{{1, "delete range"}, {1, "tree 1"},
			{1, "bounds: lo and hi"}, {1, "lo length"}, {1, `lo "a"`}, {1, "hi length"}, {1, `hi "b"`}},
	},
	{redo{op: opCreate, id: 5}, []golden.Part{{1, "create"}, {1, "tree 5"}}},
	{redo{op: opDrop, id: 5}, []golden.Part{{1, "drop"}, {1, "tree 5"}}},
	{redo{op: opClear, id: 6}, []golden.Part{{1, "clear"}, {1, "tree 6"}}},
	{redo{op: opSetTag, id: 1, key: []byte("key"), tag: -2},
		[]golden.Part{{1, "set tag"}, {1, "tree 1"}, {8, "tag"}, {1, "key length"}, {3, `key "key"`}}},
	{redo{op: opSetTag, id: 1, key: []byte("key")},
		[]golden.Part{{1, "set tag"}, {1, "tree 1"}, {8, "no tag"}, {1, "key length"}, {3, `key "key"`}}},
	{redo{op: opNextTree, id: 1 << 20}, []golden.Part{{1, "next tree"}, {3, "2^20"}}},
	{
		redo{
			op:          opPutNamed,
			id:          1,
			key:         []byte("key"),
			tag:         3,
			extentPlace: extentPlace{ref: pager.Ref{Pgid: 300, Epoch: 7}, size: 1 << 20, sum: 9},
		},
		[]golden.Part{{1, "put, named"}, {1, "tree 1"}, {8, "tag"}, {1, "key length"}, {3, `key "key"`},
			{3, "value length 2^20"}, {2, "pgid 300"}, {1, "epoch 7"}, {8, "checksum"}},
	},
	{
		redo{
			op:          opLeaves,
			id:          1,
			extentPlace: extentPlace{ref: pager.Ref{Pgid: 300, Epoch: 7}, leaves: 2},
			sums:        []byte("checksumof these"),
		},
		[]golden.Part{
			{1, "leaves"},
			{1, "tree 1"},
			{2, "pgid 300"},
			{1, "epoch 7"},
			{1, "2 leaves"},
			{8, "checksum"},
			{8, "checksum"},
		},
	},
}

// appendRedo encodes an operation as the transaction's calls do.
func appendRedo(b []byte, r redo) []byte {
	switch r.op {
	case opPutTag:
		return appendBytes(appendBytes(appendTag(appendOp(b, r.op, r.id), r.tag), r.key), r.value)
	case opPut:
		return appendBytes(appendBytes(appendOp(b, r.op, r.id), r.key), r.value)
	case opDelete:
		return appendBytes(appendOp(b, r.op, r.id), r.key)
	case opRange:
		return appendRange(b, r.id, r.key, r.value)
	case opSetTag:
		return appendBytes(appendTag(appendOp(b, r.op, r.id), r.tag), r.key)
	case opPutNamed:
		return appendLogRef(b, r.id, r.tag, r.key, r.extentPlace)
	case opLeaves:
		return appendLeaves(b, r.id, r.ref, r.sums)
	}
	return appendOp(b, r.op, r.id)
}

func TestRedoBytesArePinned(t *testing.T) {
	b := []byte{7, 6, 5, 4, 3, 2, 1, 0, 0x7b, 0x68, 0xe5, 0xcf, 0x8b, 1, 0, 0}
	parts := []golden.Part{{8, "seq"}, {8, "clock mark: 1 700 000 000 123 ms"}}
	for _, g := range goldenRedo {
		b = appendRedo(b, g.want)
		parts = append(parts, g.parts...)
	}
	golden.Require(t, "redo.hex", "payload of a commit with one operation of each kind",
		golden.Row(parts...), b)
	rest := golden.Read(t, "testdata/redo.hex")[redoHead:]
	for _, g := range goldenRedo {
		var r redo
		var err error
		r, rest, err = decodeRedo(rest)
		require.NoError(t, err)
		require.Equal(t, g.want, r)
	}
	require.Empty(t, rest)
}

// TestTransactionsLogTheDocumentedPayload reads the log that a session left behind.
func TestTransactionsLogTheDocumentedPayload(t *testing.T) {
	fs := vfs.NewMemory()
	s := mustOpen(t, testOptions(fs))
	want := appendOp(make([]byte, redoHead), opNextTree, firstTree+2)
	want[0], want[8] = 1, 99
	tx := begin(t, s, true)
	tx.SetMark(99)
	id, err := tx.NewTreeIDs(2)
	require.NoError(t, err)
	do := func(r redo, call func() error) {
		t.Helper()
		require.NoError(t, call())
		want = appendRedo(want, r)
	}
	k, v := []byte("key"), []byte("value")
	do(redo{op: opCreate, id: id}, func() error { return tx.Create(id) })
	do(redo{op: opPut, id: id, key: k, value: v}, func() error { _, err := tx.Put(id, k, v, 0); return err })
	do(
		redo{op: opPutTag, id: id, key: k, value: v, tag: 1},
		func() error { _, err := tx.Put(id, k, v, 1); return err },
	)
	do(redo{op: opSetTag, id: id, key: k}, func() error { _, err := tx.SetTag(id, k, 0); return err })
	do(redo{op: opSetTag, id: id, key: k, tag: 1}, func() error { _, err := tx.SetTag(id, k, 1); return err })
	do(redo{op: opRange, id: id, key: []byte("k"), value: []byte("l")}, func() error {
		n, err := tx.DeleteRange(id, []byte("k"), []byte("l"))
		require.Equal(t, uint64(1), n)
		return err
	})
	do(redo{op: opPut, id: id, key: k, value: v}, func() error { _, err := tx.Put(id, k, v, 0); return err })
	do(redo{op: opDelete, id: id, key: k}, func() error { _, err := tx.Delete(id, k); return err })
	do(redo{op: opClear, id: id}, func() error { return tx.Clear(id) })
	do(redo{op: opDrop, id: id}, func() error { return tx.Drop(id) })
	require.Equal(t, int64(len(want)), tx.Bytes())
	require.NoError(t, tx.Commit(Sync))
	found, err := wal.Scan(s.walOptions())
	require.NoError(t, err)
	var got []byte
	_, err = found.Replay(wal.First(s.segment, 1), 0, func(p wal.Part) error {
		got = append(got, p.Payload...)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, s.Close())
}

func TestRedoThatDoesNotDecodeIsAnError(t *testing.T) {
	whole := golden.Read(t, "testdata/redo.hex")[redoHead:]
	bounds := map[int]bool{0: true}
	at := 0
	for _, g := range goldenRedo {
		for _, p := range g.parts {
			at += p.Size
		}
		bounds[at] = true
	}
	for n := range whole {
		rest := whole[:n]
		var err error
		for len(rest) > 0 && err == nil {
			_, rest, err = decodeRedo(rest)
		}
		require.Equal(t, bounds[n], err == nil, "cut at %d", n)
	}
	for _, test := range []struct {
		name string
		b    []byte
	}{
		{"operation_0", []byte{0, 1}},
		{"operation_10", []byte{10, 1}},
		{"named_value_above_the_limit",
			appendLogRef(nil, 1, 0, []byte("k"),
				extentPlace{ref: pager.Ref{Pgid: 2, Epoch: 2}, size: tree.MaxValue + 1})},
		{"named_value_of_an_epoch_past_the_last",
			appendLogRef(nil, 1, 0, []byte("k"),
				extentPlace{ref: pager.Ref{Pgid: 2, Epoch: pager.MaxEpoch + 1}, size: 9999})},
		{"bounds_of_bit_2", []byte{opRange, 1, 4}},
		{"short_tag", []byte{opSetTag, 1, 2, 1, 'k'}},
		{"put_of_tag_0", []byte{opPutTag, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'k', 0}},
		{"endless_number", append([]byte{opPut}, bytes.Repeat([]byte{0xff}, 20)...)},
		{"key_longer_than_memory", append(appendOp(nil, opPut, 1), 0xff, 0xff, 0xff, 0xff, 0xff,
			0xff, 0xff, 0xff, 0xff, 1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := decodeRedo(test.b)
			require.Error(t, err)
		})
	}
}

// FuzzRedo decodes a payload, and what decodes must encode and decode to the same operations. Then
// a store replays it.
func FuzzRedo(f *testing.F) {
	f.Add(golden.Read(f, "testdata/redo.hex")[redoHead:])
	f.Add([]byte{opPut, 1, 1, 'k', 1, 'v', opRange, 1, 0})
	for _, at := range []pager.Pgid{0, 3, 20} { // a meta page, pages that are in use, or free
		named := appendLogRef(nil, CatalogTree, 0, []byte("k"),
			extentPlace{ref: pager.Ref{Pgid: at, Epoch: 2}, size: 20_000})
		f.Add(named)
		f.Add(appendOp(named, opDrop, CatalogTree))
		f.Add(appendLeaves(nil, CatalogTree, pager.Ref{Pgid: at, Epoch: 2}, make([]byte, 2*sumSize)))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		defer bound.Hold(t, uint64(16<<20+64*len(payload)))()
		for rest := payload; len(rest) > 0; {
			r, more, err := decodeRedo(rest)
			if err != nil {
				break
			}
			again, end, err := decodeRedo(appendRedo(nil, r))
			require.NoError(t, err)
			require.Empty(t, end)
			require.Equal(t, r, again)
			rest = more
		}
		s, err := Open("/a.ebb", testOptions(vfs.NewMemory()))
		require.NoError(t, err)
		update(t, s, func(tx *Tx) { // the file has room for a value or two
			mustPut(t, tx, CatalogTree, []byte("row"), make([]byte, 1000), 0)
		})
		require.NoError(t, s.Checkpoint(t.Context()))
		commit := append(commitOne(), payload...)
		read := newReplayer(s, emptyMeta(s), 1<<20)
		for rest := payload; len(rest) > 0 && err == nil; {
			var r redo
			if r, rest, err = decodeRedo(rest); err == nil && r.isLogRef() {
				read.refs = append(read.refs, r.extentPlace)
			}
		}
		err = read.claimPages() // as recovery does, which gives a store up that has claimed and fails
		if err == nil {
			// Recovery reads the log without a writer first, which finds a value whose end is missing
			// before it has space.
			first := newReplayer(s, emptyMeta(s), 1<<20)
			err = takeParts(first, commit, 65, 1000)
		}
		if err == nil {
			err = replayAll(s, 64, commit)
			s.w.rollback()
			require.NoError(t, s.Failed())
		}
		if err == nil || len(read.refs) == 0 {
			requireSound(t, s)
		}
		require.NoError(t, s.Close())
	})
}

func TestReplayRefusesWhatNoTransactionWrites(t *testing.T) {
	for _, test := range []struct {
		name    string
		payload []byte
	}{
		{"nothing", nil},
		{"half_a_head", make([]byte, redoHead-1)},
		{"another_commit", append([]byte{2}, make([]byte, redoHead-1)...)},
		{"tree_table", appendBytes(appendBytes(appendOp(commitOne(), opPut, 0), []byte("k")), nil)},
		{"trash", appendOp(commitOne(), opDrop, trashBit)},
		{"empty_key", appendBytes(appendBytes(appendOp(commitOne(), opPut, 1), nil), nil)},
		{"key_too_large", appendBytes(appendOp(commitOne(), opDelete, 1), make([]byte, 2000))},
		{"no_such_tree", appendBytes(appendBytes(appendOp(commitOne(), opPut, 77), []byte("k")), nil)},
		{"tree_exists", appendOp(commitOne(), opCreate, 1)},
		{"garbage", append(commitOne(), 200)},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
			require.Error(t, replayAll(s, 64, test.payload))
			s.w.rollback()
		})
	}
}

// commitOne is the head of a payload of the first commit.
func commitOne() []byte { return append([]byte{1}, make([]byte, redoHead-1)...) }

var goldenTree = tree.Tree{
	Root:  pager.Ref{Pgid: 0x0102030405, Epoch: 0x0a0b0c0d},
	Rows:  0x1112131415,
	Depth: 3,
}

func TestTreeTableRowBytesArePinned(t *testing.T) {
	row := append(treeKey(trashBit|0x2122), appendTree(nil, goldenTree)...)
	golden.Require(
		t,
		"tree-row.hex",
		"tree table row of dropped tree 0x2122: key, then value",
		golden.Row([]golden.Part{
			{
				8,
				"tree number, big-endian",
			}, {8, "root pgid"}, {8, "rows"}, {4, "root epoch"}, {1, "depth"}, {3, "zeros"},
		}...),
		row,
	)
	got, err := decodeTree(golden.Read(t, "testdata/tree-row.hex")[8:])
	require.NoError(t, err)
	require.Equal(t, goldenTree, got)
}

func TestTreeTableRowIsProved(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(b []byte) []byte
	}{
		{"short", func(b []byte) []byte { return b[:treeRow-1] }},
		{"long", func(b []byte) []byte { return append(b, 0) }},
		{"reserved", func(b []byte) []byte { b[23] = 1; return b }},
		{"depth_without_root", func(b []byte) []byte { clear(b[:8]); return b }},
		{"root_without_depth", func(b []byte) []byte { b[20] = 0; return b }},
		{"rows_without_root", func(b []byte) []byte { clear(b[:8]); b[20] = 0; return b }},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := decodeTree(test.change(appendTree(nil, goldenTree)))
			require.Error(t, err)
		})
	}
	empty, err := decodeTree(appendTree(nil, tree.Tree{}))
	require.NoError(t, err)
	require.Zero(t, empty)
}

func TestTreeTableThatCannotBeIsDamage(t *testing.T) {
	for _, test := range []struct {
		name string
		put  func(w *writer, table *tree.Tree) error
	}{
		{"key_of_7_bytes", func(w *writer, table *tree.Tree) error {
			_, err := tree.Put(w, table, make([]byte, 7), appendTree(nil, tree.Tree{}), 0)
			return err
		}},
		{"row_of_3_bytes", func(w *writer, table *tree.Tree) error {
			_, err := tree.Put(w, table, treeKey(9), []byte("row"), 0)
			return err
		}},
		{"root_that_is_newer", func(w *writer, table *tree.Tree) error {
			root := pager.Ref{Pgid: 9, Epoch: w.s.epoch + 1}
			_, err := tree.Put(w, table, treeKey(9),
				appendTree(nil, tree.Tree{Root: root, Depth: 1, Rows: 1}), 0)
			return err
		}},
		{"no_catalog", func(w *writer, table *tree.Tree) error {
			if _, err := tree.Put(w, table, treeKey(9), appendTree(nil, tree.Tree{}), 0); err != nil {
				return err
			}
			_, err := tree.Delete(w, table, treeKey(CatalogTree))
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			fs := vfs.NewMemory()
			s := mustOpen(t, testOptions(fs))
			update(t, s, func(tx *Tx) {
				mustPut(t, tx, CatalogTree, []byte("a"), []byte("v"), 0)
			})
			require.NoError(t, s.Checkpoint(nil))
			clear(s.changed)
			s.w.begin()
			table := s.table
			require.NoError(t, test.put(&s.w, &table))
			s.table = table
			s.w.publishMaintenance()
			s.queue.makeVisible()
			require.NoError(t, s.Close())
			_, err := Open("/a.ebb", testOptions(fs))
			require.ErrorIs(t, err, badfile.ErrCorrupt)
		})
	}
}

func TestFilesOfOtherVersionsAreErrVersion(t *testing.T) {
	for _, name := range []string{"earlier-version.hex", "next-version.hex", "unknown-feature.hex"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile("../pager/testdata/" + name)
			require.NoError(t, err)
			content := golden.Read(t, "../pager/testdata/"+name)
			require.NotEmpty(t, text)
			fs := vfs.NewMemory()
			f, err := fs.Open("/a.ebb", vfs.Write|vfs.Create)
			require.NoError(t, err)
			require.NoError(t, vfs.WriteFull(f, content, 0))
			require.NoError(t, f.Close())
			for _, readOnly := range []bool{false, true} {
				_, err = Open("/a.ebb", Options{FS: fs, ReadOnly: readOnly})
				require.ErrorIs(t, err, ErrVersion)
				require.NotErrorIs(t, err, badfile.ErrCorrupt)
			}
			f, err = fs.Open("/a.ebb", 0)
			require.NoError(t, err)
			after := make([]byte, len(content))
			require.NoError(t, vfs.ReadFull(f, after, 0))
			require.Equal(t, content, after, "the file is not touched")
			require.NoError(t, f.Close())
		})
	}
}
