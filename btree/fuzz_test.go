package btree

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/pager"
)

// fuzzPage makes a page with a valid header of fuzzer data: head is the start of the payload, tail
// the end of the page, with zeros in between.
func fuzzPage(kind pager.Kind, level uint8, n uint16, head, tail []byte) []byte {
	b := make([]byte, 4096)
	pager.WriteHeader(b, pager.Header{Pgid: 2, Epoch: 1, Kind: kind, Level: level, Count: n})
	copy(b[24:], head)
	if len(tail) < 4096-24 {
		copy(b[4096-len(tail):], tail)
	}
	return b
}

// drive runs each operation on a tree whose root is page b, which CheckPage accepted. It ignores
// errors; a panic fails the test.
func drive(t *testing.T, b []byte, key []byte) {
	depth := b[21] + 1
	fresh := func() (*memory, Tree) {
		m := newMemory(4096)
		m.pages = append(m.pages, memPage{b: bytes.Clone(b), epoch: 1, pages: 1, owned: true})
		return m, Tree{Root: pager.Ref{Pgid: 2, Epoch: 1}, Depth: depth, Rows: 5}
	}
	m, tree := fresh()
	_, _, _ = Get(m, tree, key)
	_, _ = GetInfo(m, tree, key)
	var c Cursor
	c.Reset(m, tree)
	steps := 0
	for ok := c.First(); ok && steps < 5000; ok = c.Next() {
		steps++
		if v, found, err := Get(m, tree, c.Key()); err == nil && (!found || len(v.Bytes) != c.Size()) {
			t.Fatalf("row %d of the scan is not found", steps)
		}
		c.Value()
	}
	c.Reset(m, tree)
	for ok := c.Last(); ok && steps > -5000; ok = c.Prev() {
		steps--
	}
	c.Reset(m, tree)
	c.Seek(key)
	c.SeekBefore(key)
	_ = Check(m, tree, func(pager.Ref, int) error { return nil }, func(pager.Ref, string) {})
	for _, size := range []int{0, 100, MaxInline(4096, len(key)), 5000} {
		m, tree := fresh()
		_, _ = Put(m, &tree, key, make([]byte, size), 1)
		for i := range byte(8) {
			_, _ = Put(m, &tree, append(bytes.Clone(key[:min(len(key), 100)]), i), make([]byte, size), 0)
		}
		_, _ = Delete(m, &tree, key)
	}
	if len(key) > 0 {
		m, tree = fresh()
		_, _ = DeleteRange(m, &tree, key[:len(key)/2], key)
		_, _ = DeleteRange(m, &tree, key, nil)
		_, _ = DeleteRange(m, &tree, nil, key)
	}
	m, tree = fresh()
	var cursor InsertCursor
	for i := range byte(3) {
		_, _ = cursor.Put(m, &tree, append(bytes.Clone(key), 0xff, i), nil, 0)
	}
	cursor.Append(&tree, []Change{
		{Key: append(bytes.Clone(key), 0xff, 8), Value: make([]byte, 50), Tag: 1},
		{Key: append(bytes.Clone(key), 0xff, 9)},
		{Key: append(bytes.Clone(key), 0xff, 0xff), Value: make([]byte, 500)},
	})
	m, tree = fresh()
	_, _ = SetTag(m, &tree, key, 1)
	_, _ = Delete(m, &tree, key)
	_, _ = Relocate(m, &tree, Move{Most: 5})
	m, tree = fresh()
	_, _ = FreeTree(m, &tree, 3)
}

func FuzzLeaf(f *testing.F) {
	g := goldenLeaf(f)
	f.Add(uint16(3), g[24:60], g[4000:], []byte("key/aa"))
	head := []byte{250, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 250, 15}
	f.Add(uint16(1), head, []byte{0, 0, 0, 0, 0, 0}, []byte{})
	f.Fuzz(func(t *testing.T, n uint16, head, tail, key []byte) {
		defer bound.Hold(t, 16<<20)()
		b := fuzzPage(pager.KindLeaf, 0, n, head, tail)
		if len(key) > MaxKey(4096) || CheckPage(b, 4096) != nil {
			return
		}
		require.True(t, leafHasOverflow(b, count(b)) || soundLeaf(b))
		drive(t, b, key)
	})
}

// FuzzBranch fuzzes a branch at level 1, first with missing children, then with a leaf below each.
func FuzzBranch(f *testing.F) {
	g := goldenBranch(f)
	f.Add(uint16(3), g[24:140], g[4000:], []byte("keys/with/long/separators/2"))
	f.Fuzz(func(t *testing.T, n uint16, head, tail, key []byte) {
		defer bound.Hold(t, 16<<20)()
		b := fuzzPage(pager.KindBranch, 1, n, head, tail)
		if len(key) > MaxKey(4096) || CheckPage(b, 4096) != nil {
			return
		}
		drive(t, b, key)
		driveLeaves(t, b, key)
	})
}

// driveLeaves gives each child of the branch its own leaf, all with the same keys, so that each
// separator is wrong for some of them, and changes the tree.
func driveLeaves(t *testing.T, b []byte, key []byte) {
	for shape := range 12 {
		m := newMemory(4096)
		m.deltas = shape%6 >= 3
		m.pages = append(m.pages, memPage{b: bytes.Clone(b), epoch: 1, pages: 1, owned: true})
		tree := Tree{Root: pager.Ref{Pgid: 2, Epoch: 1}, Depth: 2, Rows: 1000}
		root := m.pages[2].b
		for i := range count(root) {
			ref, leaf, err := m.New(pager.KindLeaf, 0)
			require.NoError(t, err)
			for k := range []int{1, 20, 36}[shape%3] {
				var c cell
				c.set(append(bytes.Clone(key[:min(len(key), 20)]), byte(k)), make([]byte, 60), 0)
				if k == 0 && shape < 6 {
					initLeaf(leaf, &cell{})
				} else if k == 0 {
					initLeaf(leaf, &c)
				}
				at, found, shared := leafSearch(leaf, count(leaf), c.key)
				if !found {
					leafInsert(leaf, at, &c, shared)
				}
			}
			setChildRef(root, count(root), i, ref)
			m.pages[ref.Pgid].owned = !m.deltas
		}
		for i := range byte(40) {
			_, _ = Put(m, &tree, append(bytes.Clone(key[:min(len(key), 20)]), i, 1), make([]byte, 600), 0)
			_, _ = Delete(m, &tree, append(bytes.Clone(key[:min(len(key), 20)]), i))
		}
		_, _ = DeleteRange(m, &tree, key, nil)
		_, _ = DeleteRange(m, &tree, nil, key)
		_ = Check(m, tree, func(pager.Ref, int) error { return nil }, func(pager.Ref, string) {})
		for id, p := range m.pages { // no page made of damaged ones fails CheckPage
			if p.b == nil || p.gone || count(p.b) == 0 {
				continue
			}
			b, err := m.Page(pager.Ref{Pgid: pager.Pgid(id), Epoch: p.epoch})
			require.NoError(t, err)
			require.NoError(t, CheckPage(b, 4096), "page %d", id)
		}
		_, _ = FreeTree(m, &tree, 3)
	}
}

// FuzzOps runs the input as a list of operations and compares with the model.
func FuzzOps(f *testing.F) {
	f.Add([]byte("abcabcabcabcabcabcabcabcabc"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		defer bound.Hold(t, uint64(16<<20+4096*len(ops)))()
		m, want := newMemory(4096), newModel()
		var tree Tree
		var cursor InsertCursor
		for ; len(ops) >= 4; ops = ops[4:] {
			w := binary.LittleEndian.Uint32(ops)
			if m.deltas = w&0x100 != 0; w&7 == 6 {
				m.commit(t)
				cursor = InsertCursor{}
			}
			key := bytes.Repeat([]byte{byte(w >> 8)}, int(w>>16&0x3f)*16)
			key = append(key, byte(w>>24))
			if w&7 < 5 {
				v := make([]byte, int(w>>3&31)*40)
				tag := int64(w & 8)
				if w&0x200 != 0 && cursor.Append(&tree, []Change{{Key: key, Value: v, Tag: tag}}) == 1 {
					require.Equal(t, Info{}, want.put(string(key), v, tag))
					continue
				}
				was, err := cursor.Put(m, &tree, key, v, tag)
				require.NoError(t, err)
				require.Equal(t, want.put(string(key), v, tag), was)
			} else {
				cursor = InsertCursor{}
				was, err := Delete(m, &tree, key)
				require.NoError(t, err)
				require.Equal(t, want.delete(string(key)), was)
			}
		}
		m.requireSound(t, tree)
		require.Equal(t, len(want.keys), int(tree.Rows))
	})
}
