package btree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

// TestBoundedWalkPrefetchesNoLeafBeyond: each prefetched leaf has rows within bounds, or begins or
// ends at the bound. The walk prefetches each leaf that it reaches, except the first of another
// branch. A scan yields the rows within bounds, of all leaves.
func TestBoundedWalkPrefetchesNoLeafBeyond(t *testing.T) {
	racetest.OneGoroutine(t)
	rng := rand.New(rand.NewPCG(3, 4))
	r := &nearReader{memory: newMemory(1024)}
	var tree Tree
	key := func(i int) []byte { return fmt.Appendf(nil, "%08d", i) }
	const rows = 120_000 // more than are likely cached
	for _, i := range rng.Perm(rows) {
		_, err := Put(r.memory, &tree, key(2*i), make([]byte, rng.IntN(60)), 0)
		require.NoError(t, err)
	}
	require.Greater(t, tree.Depth, uint8(2), "some leaves are the last of their branch")
	unprefetched, prefetched := 0, 0
	for range racetest.Sample(3000, 600) {
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
		var c, unbounded Cursor
		c.Reset(r, tree)
		c.Bound(lo, hi)
		unbounded.Reset(r.memory, tree)
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
		inside := func(k []byte) bool { return inBounds(k, lo, hi) }
		r.requested = nil
		ok := at(&c)
		require.Equal(t, at(&unbounded), ok)
		if edge := c.edge(forward); ok && edge != nil {
			c.Bound(edge, edge)
			require.Zero(t, c.compareEdge(forward), "the bound is where the leaf ends")
			c.Bound(lo, hi)
		}
		for steps := 0; ok && inside(c.Key()) && steps < 400; steps++ {
			require.Equal(t, unbounded.Key(), c.Key(), "a bound moves no cursor")
			if rng.IntN(8) == 0 {
				requireScanInBounds(t, r, &c, forward, lo, hi)
			}
			leaf := &c.b[0]
			ok = move(&c)
			require.Equal(t, move(&unbounded), ok)
			if s := &c.path[1]; ok && &c.b[0] != leaf && steps >= seekPrefetchSteps && inside(c.Key()) &&
				(forward && s.i > 0 || !forward && s.i+1 < s.n) {
				require.Contains(t, r.requested, childRef(s.b, s.n, s.i), "no prefetch")
				prefetched++
			}
		}
		require.NoError(t, c.Err())
		requirePrefetchesInBounds(t, r, forward, lo, hi)
		if ok && !inside(c.Key()) && len(r.requested) == 0 {
			unprefetched++
		}
	}
	require.Greater(t, unprefetched, racetest.Sample(100, 10))
	require.Greater(t, prefetched, racetest.Sample(1000, 200))
}

func inBounds(k, lo, hi []byte) bool {
	return (lo == nil || bytes.Compare(k, lo) >= 0) && (hi == nil || bytes.Compare(k, hi) < 0)
}

// requireScanInBounds holds the rows of a scan from c on against those of a walk, which ends out of
// bounds, and against the move after the scan.
func requireScanInBounds(t *testing.T, r *nearReader, c *Cursor, forward bool, lo, hi []byte) {
	t.Helper()
	scan, walk := *c, *c
	scan.r, walk.r = r.memory, r.memory // Their prefetches do not count.
	move := (*Cursor).Next
	if !forward {
		move = (*Cursor).Prev
	}
	require.True(t, scan.BeginScan(forward, 0))
	ok := move(&walk)
	for range 30 {
		k, v, more := scan.ScanRow()
		if !more {
			break
		}
		require.True(t, ok)
		require.Equal(t, walk.Key(), k)
		require.Equal(t, walk.Value(), v)
		require.True(t, inBounds(k, lo, hi), "scan within [%s, %s) has %s", lo, hi, k)
		ok = move(&walk)
	}
	if _, _, more := scan.ScanRow(); !more {
		require.False(t, ok && inBounds(walk.Key(), lo, hi), "rows [%s, %s) end before %s", lo, hi,
			walk.Key())
		ok = move(&scan)
		require.False(t, ok && inBounds(scan.Key(), lo, hi), "rows [%s, %s), then %s", lo, hi, scan.Key())
	}
}

// requirePrefetchesInBounds requires that each prefetched leaf may have rows within bounds.
func requirePrefetchesInBounds(t *testing.T, r *nearReader, forward bool, lo, hi []byte) {
	t.Helper()
	for _, ref := range r.requested {
		b, err := r.Page(ref)
		require.NoError(t, err)
		n := count(b)
		first, last := leafKey(b, n, 0), leafKey(b, n, n-1)
		switch {
		case forward && hi != nil:
			next := append(bytes.Clone(hi), 0xff)
			require.Negative(t, bytes.Compare(first, next), "leaf [%s, %s], bound %s", first, last, hi)
		case !forward && lo != nil:
			before := lo[:len(lo)-1]
			require.Positive(t, bytes.Compare(last, before), "leaf [%s, %s], bound %s", first, last, lo)
		}
	}
}
