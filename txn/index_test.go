package txn

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// TestBatchIsTheSameBesideAGoroutine that looks at operations while more are added: the order, and the names up to any commit, of one batch after the other in
// the same memory.
func TestBatchIsTheSameBesideAGoroutine(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	alone, beside := newBatch(1<<20, false), newBatch(1<<20, true) // less than there is: what was handed over stays where it was
	defer alone.free()
	defer beside.free()
	for round := range 3 {
		var names []place
		var before []int // bytes of the batch before each name
		for i, payload := range randomRedo(rnd, 3000) {
			ops := slices.Clone(payload[redoHead:])
			if i%7 == 0 {
				p := place{ref: pager.Ref{Pgid: pager.Pgid(i + 9), Epoch: 3}, size: 5000 + i}
				names, before = append(names, p), append(before, len(alone.ops)+len(ops))
				ops = appendNamed(ops, CatalogTree, 0, []byte{byte(i)}, p.ref, p.size)
			}
			alone.add(ops, wal.LSN(100+i))
			beside.add(ops, wal.LSN(100+i))
			if rnd.Intn(500) == 0 {
				n := rnd.Intn(len(names) + 1)
				at := len(alone.ops)
				if n < len(names) {
					at = before[n]
				}
				require.Equal(t, names[:n], append([]place{}, alone.named(at)...))
				require.Equal(t, names[:n], append([]place{}, beside.named(at)...))
			}
		}
		require.Greater(t, len(alone.ops), 8*pieceBytes)
		for _, b := range []*batch{alone, beside} {
			if round == 2 {
				b.add([]byte{200}, 7) // does not decode
				b.add(alone.ops[:2*pieceBytes], 8)
			}
		}
		want, wantSettled := alone.sort()
		got, settled := beside.sort()
		require.Equal(t, want, got)
		require.Equal(t, wantSettled, settled)
		require.Equal(t, alone.ops, beside.ops)
		alone.reset()
		beside.reset()
		require.Empty(t, beside.named(0))
	}
}
