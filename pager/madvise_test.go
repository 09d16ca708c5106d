package pager

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// evictionFile counts the bytes of views that are let go.
type evictionFile struct {
	vfs.File
	parts []int
}

func (f *evictionFile) DontNeed(part []byte) { f.parts = append(f.parts, len(part)) }

type unthrottled struct{}

func (unthrottled) Throttle(float64) bool { return false }
func (unthrottled) PagesWritten([]Pgid)   {}
func (unthrottled) Yield()                {}

// TestDeadRangesLeaveThePageCache: runs of pages that the state does not reach, and no shorter ones, by a
// checkpoint beside which others go on.
func TestDeadRangesLeaveThePageCache(t *testing.T) {
	b := bed{fs: vfs.OS, path: t.TempDir() + "/a.ebb"}
	p := b.newPager(t, MinPageSize)
	if !p.mapped {
		t.Skip("no maps here")
	}
	var refs []Ref
	for range 300 {
		refs = append(refs, newPage(t, p, 1))
	}
	checkpoint(t, p)
	for i, ref := range refs {
		if i >= 10 && i < 10+minDeadRange || i >= 100 && i < 100+minDeadRange-1 || i >= 200 && i < 290 {
			require.NoError(t, p.Alloc.Freed(ref.Pgid, 1))
		}
	}
	require.Equal(
		t,
		[]pageRange{{refs[10].Pgid, refs[10+minDeadRange].Pgid}, {refs[200].Pgid, refs[290].Pgid}},
		p.Alloc.space.deadRanges(),
	)
	f := &evictionFile{File: p.file}
	p.file = f
	c, err := p.CaptureState(nextEpoch(p))
	require.NoError(t, err)
	require.NoError(t, p.Write(c, unthrottled{}))
	require.Equal(t, []int{minDeadRange * MinPageSize, 90 * MinPageSize}, f.parts)
}
