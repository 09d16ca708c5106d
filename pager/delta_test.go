package pager

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBaseOfADeltaIsThatOfTheSnapshotsCheckpoint: a frame outlives the checkpoint that has
// written it for the sake of older snapshots, and may be another page's at any moment after that.
func TestBaseOfADeltaIsThatOfTheSnapshotsCheckpoint(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, 4096)
		old := newPage(t, p, 'o')
		before := p.LastMeta().Epoch
		c := makeDurable(t, p)
		frame, err := p.Frame(old, p.Reader.View(before, Newest))
		require.NoError(t, err)
		frame[HeaderSize] = 'f' // tells the frame from the file
		ref, err := p.NewDelta(old, nextEpoch(p), 8, []byte("changes"), AllocPolicy{})
		require.NoError(t, err)
		for durable, want := range map[Epoch]byte{before: 'f', c.Epoch: 'o'} {
			leaf, changes, err := p.Reader.Leaf(ref, durable)
			require.NoError(t, err)
			require.Equal(t, "changes", string(changes))
			require.Equal(t, want, leaf[HeaderSize], "checkpoint %d", durable)
			_, leaf, _, err = p.Reader.View(durable, Newest).DeltaBase(ref, ref.Epoch)
			require.NoError(t, err)
			require.Equal(t, want, leaf[HeaderSize], "checkpoint %d", durable)
		}
	})
}

// patched makes a page that lies on one of an earlier checkpoint, and has a patch.
func newDelta(t *testing.T, p *Pager) (ref Ref, durable Epoch) {
	p.o.ApplyDelta = func(b, changes []byte) error {
		copy(b[HeaderSize:], changes)
		return nil
	}
	base := newPage(t, p, 'o')
	durable = checkpoint(t, p).Epoch
	ref, err := p.NewDelta(base, nextEpoch(p), 8, []byte("changes"), AllocPolicy{})
	require.NoError(t, err)
	require.NoError(t, p.Commit(ref.Pgid, 1))
	return ref, durable
}

// TestWrittenDeltaIsRemoved: older snapshots read the page where it is, before its checkpoint is
// over.
func TestWrittenDeltaIsRemoved(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, 4096)
		ref, durable := newDelta(t, p)
		_, changes, err := p.Reader.Leaf(ref, durable)
		require.NoError(t, err)
		require.Equal(t, "changes", string(changes))
		c, err := p.CaptureState(nextEpoch(p))
		require.NoError(t, err)
		require.NoError(t, p.Write(c, nil))
		leaf, changes, err := p.Reader.Leaf(ref, durable)
		require.NoError(t, err)
		require.Nil(t, changes)
		require.Equal(t, "changeso", string(leaf[HeaderSize:][:8]))
	})
}

// TestReassignedPageHasTheSameContent but for its number; pages without a patch of this epoch stay.
func TestReassignedPageHasTheSameContent(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, 4096)
		ref, durable := newDelta(t, p)
		base, want, _, err := p.Reader.View(durable, Newest).DeltaBase(ref, ref.Epoch)
		require.NoError(t, err)
		want = append([]byte(nil), want...)
		fresh, done, err := p.Reassign(ref, ref.Epoch, 9, AllocPolicy{})
		require.NoError(t, err)
		require.True(t, done)
		require.Equal(t, ref.Epoch, fresh.Epoch)
		require.NotEqual(t, ref.Pgid, fresh.Pgid)
		require.EqualValues(t, 9, p.Pool.Owner(fresh.Pgid))
		below, leaf, changes, err := p.Reader.View(durable, Newest).DeltaBase(fresh, ref.Epoch)
		require.NoError(t, err)
		require.Equal(t, base, below)
		require.Equal(t, want, leaf)
		require.Equal(t, "changes", string(changes))
		_, changes, err = p.Reader.Leaf(ref, durable)
		require.NoError(t, err)
		require.Equal(t, "changes", string(changes), "as long as a reader may need it")

		for _, other := range []Ref{base, newPage(t, p, 'n'), {ref.Pgid, ref.Epoch - 1},
			{1 << 40, ref.Epoch}} {
			same, done, err := p.Reassign(other, ref.Epoch, 9, AllocPolicy{})
			require.NoError(t, err)
			require.False(t, done)
			require.Equal(t, other, same)
		}
		_, done, err = p.Reassign(fresh, ref.Epoch+1, 9, AllocPolicy{})
		require.NoError(t, err)
		require.False(t, done)
	})
}

// TestDeltaOfAnEarlierEpochReleasesNoMemory: its memory is freed with all deltas of that epoch.
func TestDeltaOfAnEarlierEpochReleasesNoMemory(t *testing.T) {
	p := memoryBed().newPager(t, 4096)
	ref, _ := newDelta(t, p)
	base := newPage(t, p, 'b')
	own, err := p.NewDelta(base, ref.Epoch+1, 9, []byte("changes"), AllocPolicy{})
	require.NoError(t, err)
	units := deltaUnits(len("changes"))
	require.NoError(t, p.Alloc.Freed(ref.Pgid, 1))
	require.NoError(t, p.Unused(ref.Pgid, 1))
	for _, free := range p.Pool.deltas.free {
		require.Empty(t, free)
	}
	require.NoError(t, p.Unused(own.Pgid, 1))
	require.Len(t, p.Pool.deltas.free[units], 1)
}
