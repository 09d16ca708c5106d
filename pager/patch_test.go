package pager

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBaseOfAPatchComesFromTheCheckpointOfTheSnapshot: a frame outlives the checkpoint that has written it for the sake of older
// snapshots, and may be another page's at any moment after that.
func TestBaseOfAPatchComesFromTheCheckpointOfTheSnapshot(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, 4096)
		old := newPage(t, p, 'o')
		before := p.LastMeta().Epoch
		c, err := p.CaptureState(nextEpoch(p))
		require.NoError(t, err)
		require.NoError(t, p.Write(c, nil))
		m := p.LastMeta()
		m.Epoch, m.Pages, m.FreeDir = c.Epoch, c.Pages, c.FreeDir
		require.NoError(t, p.WriteMeta(m))

		frame, err := p.Frame(old, before)
		require.NoError(t, err)
		frame[HeaderSize] = 'f' // so that one knows who reads it
		ref, err := p.PatchBeside(old, nextEpoch(p), 8, []byte("changes"))
		require.NoError(t, err)
		for durable, want := range map[Epoch]byte{before: 'f', c.Epoch: 'o'} {
			leaf, changes, err := p.Leaf(ref, durable)
			require.NoError(t, err)
			require.Equal(t, "changes", string(changes))
			require.Equal(t, want, leaf[HeaderSize], "checkpoint %d", durable)
			_, leaf, _, err = p.Base(ref, durable, ref.Epoch)
			require.NoError(t, err)
			require.Equal(t, want, leaf[HeaderSize], "checkpoint %d", durable)
		}
	})
}
