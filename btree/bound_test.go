package btree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/stretchr/testify/require"
)

// TestBoundedWalkAsksForNoLeafBeyond: of the leaves that a walk asks for ahead, each has rows
// within bounds, or begins or ends where the bound is; it asks for all that it comes to, but the
// first of another branch; and a span says that it is within bounds only if it is, and always if
// rows of the next leaf are.
func TestBoundedWalkAsksForNoLeafBeyond(t *testing.T) {
	racetest.OneGoroutine(t)
	rng := rand.New(rand.NewPCG(3, 4))
	r := &nearReader{memory: newMemory(1024)}
	var tree Tree
	key := func(i int) []byte { return fmt.Appendf(nil, "%08d", i) }
	const rows = 3000
	for _, i := range rng.Perm(rows) {
		_, err := Put(r.memory, &tree, key(2*i), make([]byte, rng.IntN(60)), 0)
		require.NoError(t, err)
	}
	require.Greater(t, tree.Depth, uint8(2), "some leaves are the last of their branch")
	spared, went := 0, 0
	for range 3000 {
		from := rng.IntN(2 * rows)
		lo, hi := key(from), key(from+rng.IntN(300))
		switch rng.IntN(6) {
		case 0:
			lo = nil
		case 1:
			hi = nil
		}
		forward, move := true, (*Cursor).Next
		if rng.IntN(2) == 0 {
			forward, move = false, (*Cursor).Prev
		}
		var c, free Cursor
		c.Reset(r, tree)
		c.Bound(lo, hi)
		free.Reset(r.memory, tree)
		at := func(c *Cursor) bool {
			switch {
			case forward && lo == nil:
				return c.First()
			case forward:
				return c.Seek(lo)
			case hi == nil:
				return c.Last()
			}
			return c.SeekBefore(hi)
		}
		inside := func(k []byte) bool {
			return (lo == nil || bytes.Compare(k, lo) >= 0) && (hi == nil || bytes.Compare(k, hi) < 0)
		}
		r.asked = nil
		ok := at(&c)
		require.Equal(t, at(&free), ok)
		if edge := c.edge(forward); ok && edge != nil {
			c.Bound(edge, edge)
			require.Zero(t, c.compareEdge(forward), "the bound is where the leaf ends")
			c.Bound(lo, hi)
		}
		for steps := 0; ok && inside(c.Key()) && steps < 400; steps++ {
			require.Equal(t, free.Key(), c.Key(), "a bound moves no cursor")
			if rng.IntN(8) == 0 {
				s := c.LeafScan(forward)
				within := s.Within()
				for s.Next() {
					k, _, _, _ := s.Row()
					require.True(t, !within || inside(k), "span within [%s, %s) has %s", lo, hi, k)
				}
				behind := c
				behind.r = r.memory // What this one asks for does not count.
				behind.EndScan(s)
				if move(&behind) && inside(behind.Key()) {
					require.True(t, within, "span of [%s, %s), where %s comes behind it", lo, hi, behind.Key())
				}
			}
			leaf := &c.b[0]
			ok = move(&c)
			require.Equal(t, move(&free), ok)
			if s := &c.path[1]; ok && &c.b[0] != leaf && steps >= seekPrefetchSteps && inside(c.Key()) &&
				(forward && s.i > 0 || !forward && s.i+1 < s.n) {
				require.Contains(t, r.asked, childRef(s.b, s.n, s.i), "a leaf within bounds that nobody has asked for")
				went++
			}
		}
		require.NoError(t, c.Err())
		for _, ref := range r.asked {
			b, err := r.Page(ref)
			require.NoError(t, err)
			n := count(b)
			first, last := leafKey(b, n, 0), leafKey(b, n, n-1)
			switch {
			case forward && hi != nil:
				require.Negative(
					t,
					bytes.Compare(first, append(bytes.Clone(hi), 0xff)),
					"leaf of [%s, %s] for rows below %s",
					first,
					last,
					hi,
				)
			case !forward && lo != nil:
				require.Positive(
					t,
					bytes.Compare(last, lo[:len(lo)-1]),
					"leaf of [%s, %s] for rows from %s on",
					first,
					last,
					lo,
				)
			}
		}
		if ok && !inside(c.Key()) && len(r.asked) == 0 {
			spared++
		}
	}
	require.Greater(t, spared, 100)
	require.Greater(t, went, 1000)
}
