package btree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ebbkv/ebb/pager"
)

// A model is a sorted map, the reference for the tree.
type model struct {
	keys []string // sorted
	rows map[string]modelRow
}

type modelRow struct {
	value []byte
	tag   int64
}

func newModel() *model { return &model{rows: map[string]modelRow{}} }

func (m *model) info(key string) Info {
	row, ok := m.rows[key]
	return Info{len(row.value), row.tag, ok}
}

func (m *model) put(key string, value []byte, tag int64) (was Info) {
	was = m.info(key)
	if i, existed := slices.BinarySearch(m.keys, key); !existed {
		m.keys = slices.Insert(m.keys, i, key)
	}
	m.rows[key] = modelRow{bytes.Clone(value), tag}
	return was
}

func (m *model) delete(key string) (was Info) {
	was = m.info(key)
	if i, existed := slices.BinarySearch(m.keys, key); existed {
		m.keys = slices.Delete(m.keys, i, i+1)
		delete(m.rows, key)
	}
	return was
}

// randomTag is 0 in half of the cases.
func randomTag(r *rand.Rand) int64 {
	return [...]int64{0, 0, 0, 1, -1, int64(r.Uint64()) | 1}[r.IntN(6)]
}

// indexRange returns the indexes of the keys in [lo, hi); a nil bound is no bound.
func (m *model) indexRange(lo, hi []byte) (i, j int) {
	j = len(m.keys)
	if lo != nil {
		i, _ = slices.BinarySearch(m.keys, string(lo))
	}
	if hi != nil {
		j, _ = slices.BinarySearch(m.keys, string(hi))
	}
	return i, max(i, j)
}

func (m *model) deleteRange(lo, hi []byte) int {
	i, j := m.indexRange(lo, hi)
	for _, k := range m.keys[i:j] {
		delete(m.rows, k)
	}
	m.keys = slices.Delete(m.keys, i, j)
	return j - i
}

// A keySpace makes keys that stress one property of the page layout.
type keySpace struct {
	name string
	key  func(r *rand.Rand, pageSize int) []byte
	// sameShape, if not nil, is the value of most rows, and tagged says that these have a tag: with
	// keys of one size their leaves are uniform.
	sameShape []byte
	tagged    bool
}

// row makes the value and the tag of a row.
func (ks *keySpace) row(r *rand.Rand, pageSize int) (value []byte, tag int64) {
	if ks.sameShape == nil || r.IntN(60*pageSize/pager.MinPageSize) == 0 { // one in some leaves
		if r.IntN(4) == 0 {
			return make([]byte, MaxInline(pageSize, r.IntN(MaxKey(pageSize)))), 1
		}
		return randomValue(r, pageSize), randomTag(r)
	}
	if ks.tagged {
		tag = int64(r.Uint64()) | 1
	}
	return ks.sameShape, tag
}

var keySpaces = []keySpace{
	{name: "few_small", key: func(r *rand.Rand, _ int) []byte {
		return fmt.Appendf(nil, "%d", r.IntN(3000))
	}},
	{name: "same_shape", sameShape: make([]byte, 100), key: func(r *rand.Rand, _ int) []byte {
		return fmt.Appendf(nil, "%016x", r.Uint64()>>44<<20)
	}},
	{name: "same_shape_small_tagged", sameShape: []byte{}, tagged: true,
		key: func(r *rand.Rand, _ int) []byte {
			return fmt.Appendf(nil, "%08d", r.IntN(6000)) // with the tag the smallest cells of a uniform leaf
		}},
	{name: "same_shape_and_limit", sameShape: make([]byte, 8), key: func(r *rand.Rand, pageSize int) []byte {
		key := fmt.Appendf(nil, "%08d", r.IntN(6000))
		if r.IntN(100) == 0 {
			key = append(key, make([]byte, MaxKey(pageSize)-len(key))...)
		}
		return key
	}},
	{name: "same_shape_but_for_some_keys", sameShape: make([]byte, 40),
		key: func(r *rand.Rand, _ int) []byte {
			if r.IntN(40) == 0 {
				return fmt.Appendf(nil, "%d/%d", r.IntN(3000), r.IntN(5))
			}
			return fmt.Appendf(nil, "%08d", r.IntN(3000))
		}},
	{name: "random_16", key: func(r *rand.Rand, _ int) []byte {
		return fmt.Appendf(nil, "%016x", r.Uint64()>>44<<20)
	}},
	{name: "shared_prefix", key: func(r *rand.Rand, _ int) []byte {
		return fmt.Appendf(nil, "tenant/%03d/table/%02d/row/%08d", r.IntN(4), r.IntN(3), r.IntN(2000))
	}},
	{name: "limit", key: func(r *rand.Rand, pageSize int) []byte {
		n := MaxKey(pageSize)
		b := bytes.Repeat([]byte{byte('a' + r.IntN(2))}, n-r.IntN(3))
		b[r.IntN(len(b))] = byte(r.IntN(5))
		return b
	}},
	{name: "zeros_and_empty", key: func(r *rand.Rand, _ int) []byte {
		b := make([]byte, r.IntN(14))
		for i := range b {
			if r.IntN(4) == 0 {
				b[i] = byte(r.IntN(3)) * 127
			}
		}
		return b
	}},
	{name: "equal_heads", key: func(r *rand.Rand, _ int) []byte {
		return fmt.Appendf(nil, "%c%s%04d", 'a'+rune(r.IntN(2)), strings.Repeat("x", 20), r.IntN(3000))
	}},
	{name: "any_length", key: func(r *rand.Rand, pageSize int) []byte {
		b := make([]byte, r.IntN(MaxKey(pageSize)+1))
		for i := range b {
			b[i] = byte(r.IntN(2))
		}
		if len(b) > 3 && r.IntN(2) == 0 {
			b = b[:3+r.IntN(len(b)-3)]
		}
		return b
	}},
}

func randomValue(r *rand.Rand, pageSize int) []byte {
	var n int
	switch r.IntN(20) {
	case 0:
		n = MaxInline(pageSize, r.IntN(40)) + r.IntN(3) - 1
	case 1:
		n = r.IntN(3 * pageSize)
	case 2:
		n = r.IntN(MaxInline(pageSize, 0))
	case 3, 4:
		n = r.IntN(pageSize / 4)
	default:
		n = r.IntN(60)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
