package txn

import (
	"iter"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// all iterates over the entries, from the oldest.
func (q *deferredFrees) all() iter.Seq[deferredFree] {
	return func(yield func(deferredFree) bool) {
		gone := q.gone
		for _, p := range q.pieces {
			for _, f := range p[gone:] {
				if !yield(f) {
					return
				}
			}
			gone = 0
		}
	}
}

// TestDeferredFreesIsAQueue compares it with a slice.
func TestDeferredFreesIsAQueue(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	var q deferredFrees
	var want []deferredFree
	version := uint64(0)
	for _, likely := range []int{55, 45, 60, 20} { // more of them, and fewer
		for range 20_000 {
			switch {
			case rnd.Intn(100) < likely:
				version++
				q.push(deferredFree{afterVersion: version})
				want = append(want, deferredFree{afterVersion: version})
			case len(want) == 0:
				require.Nil(t, q.oldest())
			default:
				require.Equal(t, want[0], *q.oldest())
				require.Equal(t, want[0], q.shift())
				want = want[1:]
			}
			require.Equal(t, len(want), q.len())
		}
		require.True(t, slices.Equal(want, slices.Collect(q.all())))
	}
}

// TestMemoryOfDeferredFreesIsReused and bounded.
func TestMemoryOfDeferredFreesIsReused(t *testing.T) {
	var q deferredFrees
	round := func(n int) {
		for range n {
			q.push(deferredFree{n: 1})
		}
		for q.len() > 0 {
			q.shift()
		}
	}
	for range 3 {
		round(5000)
	}
	require.Less(t, testing.AllocsPerRun(10, func() { round(5000) }), 1.0)
	round(2 * mostSpare * mostPiece)
	require.Len(t, q.spare, mostSpare)
}

// BenchmarkDeferredFrees pushes a million entries, as a large load frees between two checkpoints,
// and reports the longest push: commits wait for that under the writer lock. A slice is the
// baseline.
func BenchmarkDeferredFrees(b *testing.B) {
	longest := func(b *testing.B, begin func() (push func(deferredFree))) {
		var sum time.Duration
		for b.Loop() {
			push, worst := begin(), time.Duration(0)
			for range 1_000_000 {
				began := time.Now()
				push(deferredFree{n: 1})
				worst = max(worst, time.Since(began))
			}
			sum += worst
		}
		b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "us/longest")
	}
	b.Run("pieces", func(b *testing.B) {
		longest(b, func() func(deferredFree) { return new(deferredFrees).push })
	})
	b.Run("slice", func(b *testing.B) {
		longest(b, func() func(deferredFree) {
			var s []deferredFree
			return func(f deferredFree) { s = append(s, f) }
		})
	})
}
