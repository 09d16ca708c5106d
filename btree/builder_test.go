package btree

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

func TestBuilderMakesTheSameRowsAsPut(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, pageSize := range []int{4096, 65536} {
		for _, ks := range keySpaces {
			for _, n := range []int{0, 1, 2, 30, racetest.Sample(12, 3) * 1_000_000 / pageSize} {
				t.Run(fmt.Sprintf("%d/%s/%d", pageSize, ks.name, n), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(n), 7))
					want := newModel()
					for range n {
						want.put(string(ks.key(r, pageSize)), randomValue(r, pageSize), randomTag(r))
					}
					m := newMemory(pageSize)
					b := NewBuilder(m)
					for i, k := range want.keys {
						require.NoError(t, b.Add([]byte(k), want.rows[k].value, want.rows[k].tag))
						require.ErrorIs(t, b.Add([]byte(k), nil, 0), ErrOrder)
						if i > 0 {
							require.ErrorIs(t, b.Add([]byte(want.keys[i-1]), nil, 0), ErrOrder)
						}
					}
					tree, err := b.Finish()
					require.NoError(t, err)
					require.Error(t, b.Add([]byte("late"), nil, 0))
					pick := func() []byte { return ks.key(r, pageSize) }
					requireSame(t, m, tree, want, r, pick)
					m.commit(t)
					for range 200 { // puts work as in any tree
						k, v := pick(), randomValue(r, pageSize)
						_, err := Put(m, &tree, k, v, 0)
						require.NoError(t, err)
						want.put(string(k), v, 0)
					}
					requireSame(t, m, tree, want, r, pick)
					require.NoError(t, Walk(m, tree, func(ref pager.Ref, level uint8) (bool, error) {
						b, err := m.Page(ref)
						require.True(t, level == 0 || count(b) > 1)
						return true, err
					}))
				})
			}
		}
	}
}

func TestBuilderFillsPages(t *testing.T) {
	m := newMemory(4096)
	b := NewBuilder(m)
	for i := range 50_000 {
		require.NoError(t, b.Add(number(i), make([]byte, 20), 0))
	}
	tree, err := b.Finish()
	require.NoError(t, err)
	share, _ := fill(t, m, tree)
	require.Greater(t, share, 0.98)
	m.requireSound(t, tree)
}

// TestBuilderOmitsHeadersOfUniformLeaves: as many rows fit as the format allows, also with one row
// of another shape at any place.
func TestBuilderOmitsHeadersOfUniformLeaves(t *testing.T) {
	const rows = 400
	for _, other := range []int{-1, 0, 1, 7, 31, 32, 33, 60} {
		m := newMemory(pager.MinPageSize)
		b := NewBuilder(m)
		value := func(i int) []byte {
			if i == other {
				return []byte("other")
			}
			return fmt.Appendf(nil, "%0100d", i)
		}
		for i := range rows {
			require.NoError(t, b.Add(fmt.Appendf(nil, "%016d", i), value(i), 0))
		}
		tree, err := b.Finish()
		require.NoError(t, err)
		m.requireSound(t, tree)
		var c Cursor
		c.Reset(m, tree)
		for i := range rows {
			require.True(t, c.Next())
			require.Equal(t, fmt.Sprintf("%016d", i), string(c.Key()))
			require.Equal(t, value(i), c.Value())
		}
		require.False(t, c.Next())
		for k, ref := range leaves(t, m, tree) {
			page, err := m.Page(ref)
			require.NoError(t, err)
			n := count(page)
			if other < 0 && k == 0 {
				require.Equal(t, 33, n, "31 with headers")
			}
			var has bool
			for i := range n {
				has = has || string(leafKey(page, n, i)) == fmt.Sprintf("%016d", other)
			}
			require.Equal(t, has, !uniform(page) || n == 1)
		}
	}
}
