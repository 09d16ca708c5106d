package pager

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// leafPages makes n pages as a tree lays them, each with something of its own.
func leafPages(n int) []byte {
	b := make([]byte, n*MinPageSize)
	for i := range n {
		page := b[i*MinPageSize:][:MinPageSize]
		WriteHeader(page, Header{Kind: KindLeaf})
		page[3000] = byte(i + 1)
	}
	return b
}

func sumsOf(b []byte) (sums []byte) {
	for ; len(b) > 0; b = b[MinPageSize:] {
		sums = binary.LittleEndian.AppendUint64(sums, Checksum(b))
	}
	return sums
}

// TestLeafRunIsInTheFile: reads of its pages go to the file at once, and no checkpoint writes them.
func TestLeafRunIsInTheFile(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		newPage(t, p, 1)
		epoch := nextEpoch(p)
		leaves := leafPages(20)
		ref, err := p.WriteLeafRun(epoch, 7, leaves, AllocPolicy{})
		require.NoError(t, err)
		for i := range 20 {
			id := ref.Pgid + Pgid(i)
			require.EqualValues(t, 7, p.Pool.Owner(id))
			require.False(t, p.Pool.InFrame(id))
			require.True(t, p.Pool.Written(id))
			require.NoError(t, p.Commit(id, 1))
			got := mustPage(t, p, Ref{id, epoch}, epoch-1)
			require.Equal(t, leaves[i*MinPageSize:][:MinPageSize], got)
		}
		require.EqualValues(t, MinPageSize, p.Alloc.DirtyBytes())
		checkpoint(t, p)
		require.NoError(t, p.Close())
		p = b.open(t)
		for i := range 20 {
			got := mustPage(t, p, Ref{ref.Pgid + Pgid(i), epoch}, epoch)
			require.Equal(t, byte(i+1), got[3000])
		}
		require.NoError(t, p.Close())
	})
}

// TestVerifyLeafRun tells pages that are what they were from all others.
func TestVerifyLeafRun(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		epoch := nextEpoch(p)
		leaves := leafPages(200) // more than are looked at together
		ref, err := p.WriteLeafRun(epoch, 7, leaves, AllocPolicy{})
		require.NoError(t, err)
		m := p.LastMeta()
		sums := sumsOf(leaves)
		has := func(ref Ref, sums []byte) bool {
			t.Helper()
			ok, err := p.VerifyLeafRun(&m, ref, sums)
			require.NoError(t, err)
			return ok
		}
		require.True(t, has(ref, sums))
		require.True(t, has(Ref{ref.Pgid + 100, epoch}, sums[800:]))
		require.False(t, has(Ref{ref.Pgid, epoch + 1}, sums))
		require.False(t, has(Ref{ref.Pgid + 1, epoch}, sums[:80]))
		require.False(t, has(Ref{^Pgid(0) - 5, epoch}, sums))
		require.False(t, has(Ref{Pgid(p.Alloc.FileBytes() / MinPageSize), epoch}, sums[:8]),
			"behind the file")
		other := m
		other.StoreID[0]++
		ok, err := p.VerifyLeafRun(&other, ref, sums)
		require.NoError(t, err)
		require.False(t, ok)
		for _, page := range []int{0, 127, 128, 199} {
			at := int64(ref.Pgid+Pgid(page))*MinPageSize + 3500
			require.NoError(t, p.writeAt([]byte{1}, at))
			require.False(t, has(ref, sums), page)
			require.NoError(t, p.writeAt([]byte{0}, at))
		}
		sums[len(sums)-1]++
		require.False(t, has(ref, sums))
		require.NoError(t, p.Close())
	})
}

// TestReserveIncludesCopiesOfLoggedLeafRuns that a record names, from when they are written until a
// checkpoint that was captured after that is durable.
func TestReserveIncludesCopiesOfLoggedLeafRuns(t *testing.T) {
	p := memoryBed().newPager(t, MinPageSize)
	newPage(t, p, 1)
	slack := p.Alloc.reservePages(0)
	hole, err := p.WriteLeafRun(nextEpoch(p), 7, leafPages(30), AllocPolicy{})
	require.NoError(t, err)
	require.Equal(t, slack+30, p.Alloc.reservePages(0))
	require.GreaterOrEqual(t, p.Alloc.FileBytes(), int64(p.Alloc.Pages()+p.Alloc.reservePages(0))*MinPageSize)
	require.NoError(t, p.Unused(hole.Pgid, 30))

	p.Alloc.Growth.bound = int64(p.Alloc.Pages()+p.Alloc.reservePages(0)+25) * MinPageSize
	for err == nil {
		_, err = p.WriteLeafRun(nextEpoch(p), 7, leafPages(2), AllocPolicy{})
	}
	require.ErrorIs(t, err, ErrNoSpace, "there is a place for them, and none for their copies")
	kept := p.Alloc.reservePages(0)
	require.Equal(t, slack+30+30, kept, "the pages that were given back are room, too")

	_, err = p.CaptureState(nextEpoch(p))
	require.NoError(t, err)
	require.Equal(t, kept, p.Alloc.reservePages(0), "the checkpoint is not durable")
	p.Alloc.Growth.bound = 0
	_, err = p.WriteLeafRun(nextEpoch(p)+1, 7, leafPages(3), AllocPolicy{})
	require.NoError(t, err)
	p.Alloc.AcceptReusable()
	require.Equal(t, slack+3, p.Alloc.reservePages(0))
}
