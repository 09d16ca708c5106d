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

// soundLeaf checks a leaf of inline values by its definition: cells within the page that share no
// byte, keys in order with the prefix and the heads that the page claims, tags that are not 0.
func soundLeaf(b []byte) bool {
	n, taken, prev := count(b), make([]bool, len(b)), []byte(nil)
	for i := range n {
		off, s := slot(b, n, i), cellPosOf(b, n, i)
		info := infoAt(b, s)
		klen := len(keyAt(b, s))
		if off < lo(b) || klen > MaxKey(len(b)) || stored(info) > MaxInline(len(b), klen) {
			return false
		}
		for at := off; at < off+cellSize(b, off); at++ {
			if taken[at] {
				return false
			}
			taken[at] = true
		}
		key, p := keyAt(b, s), prefix(b)
		if !hasPrefix(key, leafKey(b, n, 0), p) || ld32(b, offLeafHeads+4*i) != keyHead32(key, p) ||
			i > 0 && bytes.Compare(prev, key) >= 0 || info&infoTag != 0 && tagAt(b, s) == 0 {
			return false
		}
		prev = key
	}
	return gap(b) == len(b)-lo(b)-len(slices.DeleteFunc(taken, func(used bool) bool { return !used }))
}

// fullLeaf is a leaf of as many rows as fit, in insert order or rewritten, uniform or with
// headers.
func fullLeaf(shared, value int, tagged, rewritten, uniformly bool) []byte {
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

// TestCheckPageAcceptsOnlyValidLeaves flips each bit of leaves of all kinds: those that CheckPage
// accepts are sound.
func TestCheckPageAcceptsOnlyValidLeaves(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, shared := range []int{0, 7, 20} {
		for _, value := range []int{8, 100} {
			for kind := range 8 {
				tagged, rewritten, uniformly := kind&1 != 0, kind&2 != 0, kind&4 != 0
				name := fmt.Sprintf("%d shared, values of %d, tagged %v, rewritten %v, uniform %v",
					shared, value, tagged, rewritten, uniformly)
				t.Run(name, func(t *testing.T) {
					b := fullLeaf(shared, value, tagged, rewritten, uniformly)
					require.Equal(t, uniformly, uniform(b))
					require.NoError(t, CheckPage(b, 4096))
					require.True(t, soundLeaf(b))
					held := 0
					// Each bit is turned in a third of the kinds.
					for i := 8*offCount + (kind+shared)%3; i < 8*len(b); i += 3 {
						b[i/8] ^= 1 << (i % 8)
						if CheckPage(b, 4096) == nil {
							require.True(t, soundLeaf(b), "bit %d", i)
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

// TestCheckPageRejectsCellsThatShareBytes: each cell is valid by itself, and they are in order.
func TestCheckPageRejectsCellsThatShareBytes(t *testing.T) {
	n := count(fullLeaf(0, 300, false, true, false))
	for _, i := range []int{1, n - 1} {
		b := fullLeaf(0, 300, false, true, false)
		require.NoError(t, CheckPage(b, 4096))
		// Cell i moves into the value of cell 0.
		off, first := slot(b, n, i), slot(b, n, 0)
		size := cellSize(b, off)
		key := b[off+cellHeader : off+cellHeader+20]
		small := slices.Concat(b[off:off+2], []byte{1, 0, 0, 0}, key, []byte{9})
		at := valueOffset(b, withHeader(first)) + 50
		copy(b[at:], small)
		setSlot(b, n, i, at)
		setGap(b, size-len(small))
		require.ErrorContains(t, CheckPage(b, 4096), "overlaps")
	}
}

// TestCheckPageEnforcesLimits of keys and values.
func TestCheckPageEnforcesLimits(t *testing.T) {
	for name, c := range map[string]struct{ key, value int }{
		"key": {MaxKey(4096) + 1, 0}, "value": {16, MaxInline(4096, 16) + 1},
	} {
		m := newMemory(4096)
		_, b, _ := m.New(pager.KindLeaf, 0)
		initLeaf(b, &cell{})
		for i := range byte(2) {
			var cell cell
			cell.set(bytes.Repeat([]byte{i}, c.key), make([]byte, c.value), 0)
			leafInsert(b, int(i), &cell, i == 0)
		}
		require.ErrorContains(t, CheckPage(b, 4096), name)
	}
}

// TestCheckPageComparesKeysOfEqualHeads and keys of different ones.
func TestCheckPageComparesKeysOfEqualHeads(t *testing.T) {
	for name, c := range map[string]struct {
		keys  []string
		valid bool
	}{
		"equal heads":       {[]string{"aaaa-0001", "bbbb-0001", "cccc-0001", "cccc-0002"}, true},
		"equal heads, back": {[]string{"aaaa-0001", "bbbb-0001", "cccc-0002", "cccc-0001"}, false},
		"the same key":      {[]string{"aaaa-0001", "bbbb-0001", "cccc-0001", "cccc-0001"}, false},
		"heads, back":       {[]string{"aaaa-0001", "cccc-0001", "bbbb-0001"}, false},
		"a short key":       {[]string{"aaaa-0001", "bbbb-0001", "cccc"}, true},
		"a single key":      {[]string{"aaaa-0001"}, true},
	} {
		m := newMemory(4096)
		_, b, _ := m.New(pager.KindLeaf, 0)
		initLeaf(b, &cell{})
		for i, key := range c.keys {
			var c cell
			c.set([]byte(key), nil, 0)
			leafInsert(b, i, &c, i == 0)
		}
		if c.valid {
			require.NoError(t, CheckPage(b, 4096), name)
		} else {
			require.Error(t, CheckPage(b, 4096), name)
		}
	}
}
