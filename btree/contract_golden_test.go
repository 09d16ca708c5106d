package btree

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/golden"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

var headerFields = []golden.Field{
	{0, 8, "checksum, set when the page is written to the file"},
	{8, 8, "pgid"},
	{16, 4, "epoch"},
	{20, 1, "kind"},
	{21, 1, "level"},
	{22, 2, "count"},
}

// goldenLeaf has a cell without a tag, one with a tag, one with a tag and an overflow value, and
// the gap of a deleted cell.
func goldenLeaf(t testing.TB) []byte {
	t.Helper()
	b := make([]byte, 4096)
	pager.WriteHeader(b, pager.Header{Pgid: 17, Epoch: 5, Kind: pager.KindLeaf})
	initLeaf(b, &cell{})
	for i, c := range []cell{
		{key: []byte("key/a"), val: []byte("one"), info: 3},
		{key: []byte("key/aa"), info: infoTag, tag: 0x0102030405060708},
		{key: []byte("key/b"), val: []byte("gone"), info: 4},
		{
			key: []byte("key/zzzzzz"), info: 5000 | infoOverflow | infoTag, tag: -2,
			ref: pager.Ref{Pgid: 99, Epoch: 4},
		},
	} {
		_, _, shared := leafSearch(b, i, c.key)
		leafInsert(b, i, &c, shared)
	}
	leafRemove(b, 2)
	return b
}

func TestLeafGolden(t *testing.T) {
	b := goldenLeaf(t)
	require.NoError(t, CheckPage(b, 4096))
	const title = "leaf of three cells, one of which is in an overflow extent"
	golden.Require(t, "leaf-three-cells.hex", title, append(
		headerFields[:6:6],
		golden.Field{24, 4, "lo"},
		golden.Field{28, 2, "gap: 15 bytes of a removed cell"},
		golden.Field{30, 2, "prefix: key/"},
		golden.Field{32, 8, "no shape"},
		golden.Field{40, 4, "head 0: a"},
		golden.Field{44, 4, "head 1: aa"},
		golden.Field{48, 4, "head 2: zzzz"},
		golden.Field{52, 2, "slot 0"},
		golden.Field{54, 2, "slot 1"},
		golden.Field{56, 2, "slot 2"},
		golden.Field{4011, 36, "cell 2: klen 10, vinfo tag and overflow of 5000 bytes, " +
			"key, tag -2, pgid 99, epoch 4"},
		golden.Field{4047, 15, "gap"},
		golden.Field{4062, 20, "cell 1: klen 6, vinfo tag, key/aa, tag, empty value"},
		golden.Field{4082, 14, "cell 0: klen 5, vinfo 3 bytes, key/a, one"},
	), b)
}

// goldenUniform has tagged cells with equal headers.
func goldenUniform(t testing.TB) []byte {
	t.Helper()
	b := make([]byte, 4096)
	pager.WriteHeader(b, pager.Header{Pgid: 17, Epoch: 5, Kind: pager.KindLeaf})
	for i, key := range []string{"key/aaaaa", "key/aaaab", "key/bbbbb"} {
		var c cell
		c.set([]byte(key), []byte("one"), int64(7+i))
		if i == 0 {
			initLeaf(b, &c)
		}
		require.True(t, c.fits(b))
		leafInsert(b, i, &c, i < 2)
	}
	return b
}

func TestUniformLeafGolden(t *testing.T) {
	b := goldenUniform(t)
	require.NoError(t, CheckPage(b, 4096))
	golden.Require(t, "leaf-uniform.hex", "leaf of three cells that are alike", append(
		headerFields[:6:6],
		golden.Field{24, 4, "lo"},
		golden.Field{28, 2, "gap"},
		golden.Field{30, 2, "prefix: key/"},
		golden.Field{32, 6, "shape: klen 9, vinfo 3 bytes and a tag"},
		golden.Field{38, 2, "zeros"},
		golden.Field{40, 4, "head 0: aaaa"},
		golden.Field{44, 4, "head 1: aaaa"},
		golden.Field{48, 4, "head 2: bbbb"},
		golden.Field{52, 2, "slot 0"},
		golden.Field{54, 2, "slot 1"},
		golden.Field{56, 2, "slot 2"},
		golden.Field{4036, 20, "cell 2: key/bbbbb, tag 9, one"},
		golden.Field{4056, 20, "cell 1: key/aaaab, tag 8, one"},
		golden.Field{4076, 20, "cell 0: key/aaaaa, tag 7, one"},
	), b)
}

// TestInvalidShapesAreDamage: a header without a key, of cells in extents, of small cells, and
// above the limits.
func TestInvalidShapesAreDamage(t *testing.T) {
	for name, c := range map[string]struct {
		klen   int
		info   uint32
		detail string
	}{
		"no key":      {0, 3 | infoTag, "a shape without a key"},
		"extent":      {9, 3 | infoTag | infoOverflow, "no shape has"},
		"small":       {4, 3 | infoTag, "no shape has"},
		"large key":   {MaxKey(4096) + 1, 3, "the limit is"},
		"large value": {9, uint32(MaxInline(4096, 9) + 1), "the limit is"},
	} {
		b := goldenUniform(t)
		setShape(b, c.klen, c.info)
		require.ErrorContains(t, CheckPage(b, 4096), c.detail, name)
	}
	b := goldenUniform(t)
	b[offShapeZero+1] = 1
	require.ErrorContains(t, CheckPage(b, 4096), "not zero")
}

func goldenBranch(t testing.TB) []byte {
	t.Helper()
	b := make([]byte, 4096)
	pager.WriteHeader(b, pager.Header{Pgid: 18, Epoch: 5, Kind: pager.KindBranch, Level: 1})
	writeBranch(b, []item{
		{nil, pager.Ref{Pgid: 17, Epoch: 5}, 3 | rowsOverflow},
		{[]byte("keys/with/long/separators/1"), pager.Ref{Pgid: 20, Epoch: 4}, 250},
	})
	last := item{[]byte("keys/with/long/separators/2"), pager.Ref{Pgid: 21, Epoch: 3}, 40}
	require.True(t, branchInsert(b, 2, last))
	return b
}

func TestBranchGolden(t *testing.T) {
	b := goldenBranch(t)
	require.NoError(t, CheckPage(b, 4096))
	golden.Require(t, "branch-three-children.hex", "branch of three children", append(
		headerFields[:6:6],
		golden.Field{24, 4, "lo"},
		golden.Field{28, 2, "gap"},
		golden.Field{30, 2, "prefix: keys/with/long/separators/"},
		golden.Field{32, 8, "head 0"},
		golden.Field{40, 8, "head 1: 1"},
		golden.Field{48, 8, "head 2: 2"},
		golden.Field{56, 24, "child 0: pgid 17, rows 3 with overflow, epoch 5, no separator"},
		golden.Field{80, 24, "child 1: pgid 20, rows 250, epoch 4, sepOff, sepLen 27"},
		golden.Field{104, 24, "child 2: pgid 21, rows 40, epoch 3, sepOff, sepLen 27"},
		golden.Field{4042, 27, "separator 2"},
		golden.Field{4069, 27, "separator 1"},
	), b)
}

// TestCheckPageFindsEveryFlippedBit flips each bit of two leaves and a branch. If CheckPage accepts
// the page, the flipped byte may have any value.
func TestCheckPageFindsEveryFlippedBit(t *testing.T) {
	racetest.OneGoroutine(t)
	leaf, uniform, branch := goldenLeaf(t), goldenUniform(t), goldenBranch(t)
	for name, c := range map[string]struct {
		page []byte
		free [][2]int
	}{
		"leaf": {leaf, [][2]int{
			{0, 20},                                 // fields of the pager
			{4011 + 2, 4011 + 6}, {4011 + 16, 4047}, // size, tag and reference of the overflow
			{4047, 4062},           // gap
			{4062 + 12, 4082},      // tag
			{4093, 4096},           // value
			{4011 + 14, 4011 + 16}, // key after the head
		}},
		"uniform leaf": {uniform, [][2]int{
			{0, 20},          // fields of the pager
			{4036 + 8, 4056}, // key after the head, tag, value
			{4056 + 8, 4076}, // likewise
			{4076 + 8, 4096}, // likewise
		}},
		"branch": {branch, [][2]int{
			{0, 20}, {21, 22}, // level: the descent verifies it
			{56, 76}, {80, 100}, {104, 124}, // references and rows
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range 8 * len(c.page) {
				p := bytes.Clone(c.page)
				p[i/8] ^= 1 << (i % 8)
				if CheckPage(p, 4096) != nil {
					continue
				}
				ok := false
				for _, f := range c.free {
					ok = ok || i/8 >= f[0] && i/8 < f[1]
				}
				require.True(t, ok, "bit %d of byte %d", i%8, i/8)
			}
		})
	}
}

// TestReferencesOfLaterEpochsAreDamage: the pager would look for them among the pages that only
// memory has.
func TestReferencesOfLaterEpochsAreDamage(t *testing.T) {
	for name, c := range map[string]struct {
		page  []byte
		least byte // epoch that the page has to have for what it refers to
	}{"leaf": {goldenLeaf(t), 4}, "branch": {goldenBranch(t), 5}} {
		c.page[16] = c.least
		require.NoError(t, CheckPage(c.page, 4096), name)
		c.page[16]--
		require.ErrorContains(t, CheckPage(c.page, 4096), "epoch", name)
	}
}
