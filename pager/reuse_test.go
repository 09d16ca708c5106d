package pager

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// startCheckpoint is a pager whose last durable state has n pages that the one which is being written
// has not, and the end of that checkpoint.
func startCheckpoint(t *testing.T, n int) (p *Pager, freed []Ref, end func()) {
	p = memoryBed().newPager(t, MinPageSize)
	newPage(t, p, 1) // the file is not empty
	for range n {
		freed = append(freed, newPage(t, p, 2))
	}
	checkpoint(t, p)
	for _, ref := range freed {
		require.NoError(t, p.Alloc.Freed(ref.Pgid, 1))
	}
	c, err := p.CaptureState(nextEpoch(p))
	require.NoError(t, err)
	return p, freed, func() {
		require.NoError(t, p.Write(c, nil))
		m := p.LastMeta()
		m.Epoch, m.Pages, m.FreeDir = c.Epoch, c.Pages, c.FreeDir
		require.NoError(t, p.WriteMeta(m))
		p.Alloc.AcceptReusable()
	}
}

// overlaps reports whether pages [id, id+n) include one of these pages.
func overlaps(refs []Ref, id Pgid, n int) bool {
	for _, ref := range refs {
		if ref.Pgid >= id && ref.Pgid < id+Pgid(n) {
			return true
		}
	}
	return false
}

func TestReusablePagesAreForMemoryOnly(t *testing.T) {
	p, freed, end := startCheckpoint(t, 64)
	before := p.Alloc.Pages()
	for _, ref := range freed {
		require.False(t, p.Alloc.IsReusable(ref.Pgid))
		require.NoError(t, p.OfferReusable(ref.Pgid, 1))
		require.True(t, p.Alloc.IsReusable(ref.Pgid))
	}
	how := AllocPolicy{MostReusable: 20}
	elsewhere := func() {
		t.Helper()
		for _, size := range []int{100, 3000, 20_000} {
			ref, n, err := p.NewExtent(nextEpoch(p), 9, make([]byte, size), false, AllocPolicy{})
			require.NoError(t, err)
			require.False(t, overlaps(freed, ref.Pgid, int(n)), "%v", ref)
		}
		for _, n := range []int{1, 4} {
			ref, err := p.WriteLeafRun(nextEpoch(p), 9, make([]byte, n*p.PageSize()), AllocPolicy{})
			require.NoError(t, err)
			require.False(t, overlaps(freed, ref.Pgid, n), "%v", ref)
		}
		id, _, err := p.NewBulkWriter().New(9, AllocPolicy{})
		require.NoError(t, err)
		require.False(t, overlaps(freed, id, 1))
	}
	elsewhere()
	without := p.Alloc.space.inCurrentRun(100, AllocPolicy{})
	require.Equal(t, without+20, p.Alloc.space.inCurrentRun(100, how))
	var got []Pgid
	for range 19 {
		id, _, err := p.New(9, how)
		require.NoError(t, err)
		require.True(t, overlaps(freed, id, 1))
		require.True(t, p.Alloc.IsReusable(id))
		got = append(got, id)
	}
	// A rollback releases a page with a frame and one without.
	require.NoError(t, p.Unused(got[0], 1))
	newDelta, err := p.NewDelta(freed[0], nextEpoch(p), 9, []byte("changes"), how)
	require.NoError(t, err)
	require.Equal(t, got[0], newDelta.Pgid, "a patch is in memory, too")
	require.NoError(t, p.Unused(newDelta.Pgid, 1))
	require.NoError(t, p.Unused(got[1], 1))
	elsewhere()
	for _, want := range []Pgid{got[1], got[0]} {
		id, _, err := p.New(9, how)
		require.NoError(t, err)
		require.Equal(t, want, id)
	}
	id, _, err := p.New(9, how)
	require.NoError(t, err)
	require.True(t, overlaps(freed, id, 1), "the last one of the transaction's share")
	id, _, err = p.New(9, how)
	require.NoError(t, err)
	require.False(t, overlaps(freed, id, 1))
	require.Greater(t, p.Alloc.Pages(), before)

	end()
	require.False(t, p.Alloc.IsReusable(got[0]))
	ref, _, err := p.NewExtent(nextEpoch(p), 9, make([]byte, 20*p.PageSize()), false, AllocPolicy{})
	require.NoError(t, err)
	require.True(t, overlaps(freed, ref.Pgid, 1), "they are free pages like all others")
}

// TestReleasedReusablePagesStayReusable until the checkpoint is durable, also those of an extent.
func TestReleasedReusablePagesStayReusable(t *testing.T) {
	p, freed, end := startCheckpoint(t, 32)
	for _, ref := range freed {
		require.NoError(t, p.OfferReusable(ref.Pgid, 1))
	}
	require.Error(t, p.OfferReusable(freed[3].Pgid, 1), "twice")
	id, _, err := p.New(9, AllocPolicy{MostReusable: 1})
	require.NoError(t, err)
	require.NoError(t, p.Unused(id, 1))
	require.NoError(t, p.Alloc.flushFreeLists())
	require.EqualValues(t, 32, p.Alloc.space.reusable.n)
	ref, n, err := p.NewExtent(nextEpoch(p), 9, make([]byte, 10*p.PageSize()), false, AllocPolicy{})
	require.NoError(t, err)
	require.False(t, overlaps(freed, ref.Pgid, int(n)))
	require.NoError(t, p.Unused(ref.Pgid, n))
	require.EqualValues(t, 32, p.Alloc.space.reusable.n, "these are not early")
	free := p.Alloc.space.avail.n
	end()
	require.Equal(t, free+32, p.Alloc.space.avail.n)
	require.Zero(t, p.Alloc.space.reusable.n)
}
