package txn

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/wal"
)

// TestBatchIsTheSameBesideAGoroutine that looks at operations while more are added: the order of
// one batch after the other in the same memory.
func TestBatchIsTheSameBesideAGoroutine(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	// less than there is: what was handed over stays where it was
	alone, beside := newReplayBuffer(1<<20, false), newReplayBuffer(1<<20, true)
	defer alone.free()
	defer beside.free()
	for round := range 3 {
		for i, payload := range randomRedo(rnd, 3000) {
			ops := slices.Clone(payload[redoHead:])
			alone.add(ops, wal.LSN(100+i))
			beside.add(ops, wal.LSN(100+i))
		}
		require.Greater(t, len(alone.ops), 8*opChunkBytes)
		for _, b := range []*replayBuffer{alone, beside} {
			if round == 2 {
				b.add([]byte{200}, 7) // does not decode
				b.add(alone.ops[:2*opChunkBytes], 8)
			}
		}
		want, wantSettled := alone.sort()
		got, settled := beside.sort()
		require.Equal(t, want, got)
		require.Equal(t, wantSettled, settled)
		require.Equal(t, alone.ops, beside.ops)
		alone.reset()
		beside.reset()
	}
}
