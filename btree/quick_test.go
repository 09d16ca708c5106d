package btree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// quick runs the quick proof of a leaf where page would.
func quick(b []byte) (proved bool, taken int) {
	c := pageChecker{b: b, n: count(b), h: pager.ReadHeader(b), lo: lo(b), seen: make([]uint64, len(b)/64)}
	if c.n == 0 || c.lo > len(b) || offLeafHeads+leafEntry*c.n > c.lo {
		return false, 0
	}
	proved = c.fastCheck(prefix(b))
	return proved, c.taken
}

// agree says whether the quick proof holds, and that the whole one holds then, too.
func agree(t *testing.T, b []byte) bool {
	t.Helper()
	proved, taken := quick(b)
	if proved {
		c := pageChecker{b: b, n: count(b), h: pager.ReadHeader(b), lo: lo(b), seen: make([]uint64, len(b)/64)}
		require.NoError(t, c.leaf(prefix(b)))
		require.Equal(t, c.taken, taken)
	}
	return proved
}

// quickLeaf is a leaf of as many rows as fit, put in random order or laid out, uniform or with a
// header for each.
func quickLeaf(shared, value int, tagged, laid, alike bool) []byte {
	rng := rand.New(rand.NewPCG(uint64(shared), uint64(value)))
	m := newMemory(4096)
	_, b, _ := m.New(pager.KindLeaf, 0)
	for i := int64(1); ; i++ {
		key := append(bytes.Repeat([]byte{7}, shared), make([]byte, 12)...)
		binary.BigEndian.PutUint64(key[shared:], rng.Uint64())
		tag := int64(0)
		if tagged {
			tag = i
		}
		var c cell
		c.set(key, make([]byte, value), tag)
		switch {
		case i == 1 && alike:
			initLeaf(b, &c)
		case i == 1:
			initLeaf(b, &cell{})
		}
		if !c.fits(b) {
			if laid {
				writeCells(b, appendCells(nil, bytes.Clone(b), 0, count(b)))
			}
			return b
		}
		at, _, same := leafSearch(b, count(b), key)
		leafInsert(b, at, &c, same)
	}
}

// TestQuickProofIsAProof flips each bit of leaves of all kinds that the quick proof is for: where
// it holds the whole one does.
func TestQuickProofIsAProof(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, shared := range []int{0, 7, 20} {
		for _, value := range []int{8, 100} {
			for kind := range 8 {
				tagged, laid, alike := kind&1 != 0, kind&2 != 0, kind&4 != 0
				t.Run(
					fmt.Sprintf(
						"%d shared, values of %d, tagged %v, laid out %v, uniform %v",
						shared,
						value,
						tagged,
						laid,
						alike,
					),
					func(t *testing.T) {
						b := quickLeaf(shared, value, tagged, laid, alike)
						require.Equal(t, alike, uniform(b))
						require.True(t, agree(t, b))
						require.NoError(t, CheckPage(b, 4096))
						held := 0
						for i := 8 * offCount; i < 8*len(b); i++ {
							b[i/8] ^= 1 << (i % 8)
							if agree(t, b) {
								held++
							}
							b[i/8] ^= 1 << (i % 8)
						}
						require.Positive(t, held, "a bit of a value is anyone's")
					},
				)
			}
		}
	}
}

// TestQuickProofOfCellsThatShareBytes: each cell is a good one, and they are in order.
func TestQuickProofOfCellsThatShareBytes(t *testing.T) {
	n := count(quickLeaf(0, 300, false, true, false))
	for _, i := range []int{1, n - 1} {
		b := quickLeaf(0, 300, false, true, false)
		require.True(t, agree(t, b))
		// Cell i moves into the value of the first one.
		off, first := slot(b, n, i), slot(b, n, 0)
		size := cellSize(b, off)
		small := slices.Concat(b[off:off+2], []byte{1, 0, 0, 0}, b[off+cellHeader:off+cellHeader+20], []byte{9})
		at := valueOffset(b, withHeader(first)) + 50
		copy(b[at:], small)
		setSlot(b, n, i, at)
		setGap(b, size-len(small))
		require.False(t, agree(t, b))
		require.ErrorContains(t, CheckPage(b, 4096), "overlaps")
	}
}

// TestQuickProofMindsTheLimits of keys and values.
func TestQuickProofMindsTheLimits(t *testing.T) {
	for name, c := range map[string]struct{ key, value int }{
		"key": {MaxKey(4096) + 1, 0}, "value": {16, MaxInline(4096) + 1},
	} {
		m := newMemory(4096)
		_, b, _ := m.New(pager.KindLeaf, 0)
		initLeaf(b, &cell{})
		for i := range byte(2) {
			var cell cell
			cell.set(bytes.Repeat([]byte{i}, c.key), make([]byte, c.value), 0)
			leafInsert(b, int(i), &cell, i == 0)
		}
		require.False(t, agree(t, b), name)
		require.ErrorContains(t, CheckPage(b, 4096), name)
	}
}

// TestQuickProofLeavesWhatIsUnusual to the whole one, after any number of cells.
func TestQuickProofLeavesWhatIsUnusual(t *testing.T) {
	require.False(t, agree(t, goldenLeaf(t)), "a value in an extent")
	for name, c := range map[string]struct {
		keys  []string
		quick bool
	}{
		"equal heads":       {[]string{"aaaa-0001", "bbbb-0001", "cccc-0001", "cccc-0002"}, true},
		"equal heads, back": {[]string{"aaaa-0001", "bbbb-0001", "cccc-0002", "cccc-0001"}, false},
		"the same key":      {[]string{"aaaa-0001", "bbbb-0001", "cccc-0001", "cccc-0001"}, false},
		"heads, back":       {[]string{"aaaa-0001", "cccc-0001", "bbbb-0001"}, false},
		"a key too short":   {[]string{"aaaa-0001", "bbbb-0001", "cccc"}, false},
		"a single key":      {[]string{"aaaa-0001"}, false},
	} {
		m := newMemory(4096)
		_, b, _ := m.New(pager.KindLeaf, 0)
		initLeaf(b, &cell{})
		for i, key := range c.keys {
			var c cell
			c.set([]byte(key), nil, 0)
			leafInsert(b, i, &c, i == 0)
		}
		require.Equal(t, c.quick, agree(t, b), name)
		if last := len(c.keys) - 1; last == 0 || c.keys[last-1] < c.keys[last] {
			require.NoError(t, CheckPage(b, 4096), name)
		} else {
			require.Error(t, CheckPage(b, 4096), name)
		}
	}
}
