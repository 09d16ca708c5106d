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

func leafChecker(b []byte) *pageChecker {
	return &pageChecker{b: b, n: count(b), h: pager.ReadHeader(b), lo: lo(b), seen: make([]uint64, len(b)/64)}
}

// quick runs fastCheck of a leaf as page does.
func quick(b []byte) (valid bool, taken int) {
	c := leafChecker(b)
	if c.n == 0 || c.lo > len(b) || offLeafHeads+leafEntry*c.n > c.lo {
		return false, 0
	}
	valid = c.fastCheck(prefix(b))
	return valid, c.taken
}

// agree returns the result of fastCheck. If it is true, the full check must succeed, too.
func agree(t *testing.T, b []byte) bool {
	t.Helper()
	valid, taken := quick(b)
	if valid {
		c := leafChecker(b)
		require.NoError(t, c.leaf(prefix(b)))
		require.Equal(t, c.taken, taken)
	}
	return valid
}

// quickLeaf is a leaf of as many rows as fit, in insert order or rewritten, uniform or with
// headers.
func quickLeaf(shared, value int, tagged, rewritten, uniformly bool) []byte {
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
		case i == 1 && uniformly:
			initLeaf(b, &c)
		case i == 1:
			initLeaf(b, &cell{})
		}
		if !c.fits(b) {
			if rewritten {
				writeCells(b, appendCells(nil, bytes.Clone(b), 0, count(b)))
			}
			return b
		}
		at, _, same := leafSearch(b, count(b), key)
		leafInsert(b, at, &c, same)
	}
}

// TestFastCheckAcceptsOnlyValidLeaves flips each bit of leaves of all kinds that fastCheck handles:
// if it accepts the leaf, so does the full check.
func TestFastCheckAcceptsOnlyValidLeaves(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, shared := range []int{0, 7, 20} {
		for _, value := range []int{8, 100} {
			for kind := range 8 {
				tagged, rewritten, uniformly := kind&1 != 0, kind&2 != 0, kind&4 != 0
				name := fmt.Sprintf("%d shared, values of %d, tagged %v, rewritten %v, uniform %v",
					shared, value, tagged, rewritten, uniformly)
				t.Run(name, func(t *testing.T) {
					b := quickLeaf(shared, value, tagged, rewritten, uniformly)
					require.Equal(t, uniformly, uniform(b))
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
					require.Positive(t, held, "a value may have any bits")
				})
			}
		}
	}
}

// TestFastCheckRejectsCellsThatShareBytes: each cell is valid by itself, and they are in order.
func TestFastCheckRejectsCellsThatShareBytes(t *testing.T) {
	n := count(quickLeaf(0, 300, false, true, false))
	for _, i := range []int{1, n - 1} {
		b := quickLeaf(0, 300, false, true, false)
		require.True(t, agree(t, b))
		// Cell i moves into the value of cell 0.
		off, first := slot(b, n, i), slot(b, n, 0)
		size := cellSize(b, off)
		key := b[off+cellHeader : off+cellHeader+20]
		small := slices.Concat(b[off:off+2], []byte{1, 0, 0, 0}, key, []byte{9})
		at := valueOffset(b, withHeader(first)) + 50
		copy(b[at:], small)
		setSlot(b, n, i, at)
		setGap(b, size-len(small))
		require.False(t, agree(t, b))
		require.ErrorContains(t, CheckPage(b, 4096), "overlaps")
	}
}

// TestFastCheckEnforcesLimits of keys and values.
func TestFastCheckEnforcesLimits(t *testing.T) {
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

// TestFastCheckLeavesUnusualCellsToTheFullCheck, after any number of cells.
func TestFastCheckLeavesUnusualCellsToTheFullCheck(t *testing.T) {
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
