package txn

import (
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReclaimQueueIsAQueueAndAStack compares two of them with slices; from time to time one takes all
// runs of the other.
func TestReclaimQueueIsAQueueAndAStack(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	var q, other deferredFrees
	var want, wantOther []deferredFree
	serial := uint64(0)
	next := func() deferredFree { serial++; return deferredFree{serial: serial} }
	for _, likely := range []int{55, 45, 60, 20} { // more of them, and fewer
		for range 20_000 {
			r := rnd.Intn(1000)
			switch {
			case r == 0:
				q.takeAll(&other)
				want, wantOther = append(want, wantOther...), nil
			case r < 200:
				r := next()
				other.push(r)
				wantOther = append(wantOther, r)
			case r < 300 && len(wantOther) > 0:
				require.Equal(t, wantOther[len(wantOther)-1], other.pop())
				wantOther = wantOther[:len(wantOther)-1]
			case r%100 < likely:
				r := next()
				q.push(r)
				want = append(want, r)
			case len(want) == 0:
				require.Nil(t, q.oldest())
			case r < 600:
				require.Equal(t, want[0], *q.oldest())
				require.Equal(t, want[0], q.shift())
				want = want[1:]
			default:
				require.Equal(t, want[len(want)-1], q.pop())
				want = want[:len(want)-1]
			}
			require.Equal(t, len(want), q.len())
			require.Equal(t, len(wantOther), other.len())
		}
		require.True(t, slices.Equal(want, slices.Collect(q.all())))
		require.True(t, slices.Equal(wantOther, slices.Collect(other.all())))
	}
	for range q.all() {
		break // the iterator stops after break
	}
}

// TestMemoryOfTheReclaimQueueIsReused, by a queue that receives all runs as by the queue itself, and
// is bounded.
func TestMemoryOfTheReclaimQueueIsReused(t *testing.T) {
	var from, to deferredFrees
	round := func(n int) {
		for range n {
			from.push(deferredFree{n: 1})
		}
		to.takeAll(&from)
		for to.len() > 1 {
			to.pop()
		}
		to.shift()
	}
	for range 3 {
		round(5000)
	}
	require.Less(t, testing.AllocsPerRun(10, func() { round(5000) }), 1.0)
	round(2 * mostSpare * mostPiece)
	require.Len(t, to.spare, mostSpare)
}

// BenchmarkReclaimQueue pushes a million runs, as a large load frees between two checkpoints, and
// reports the longest push: commits wait for that under the writer lock. A slice is the baseline.
func BenchmarkReclaimQueue(b *testing.B) {
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
			return func(r deferredFree) { s = append(s, r) }
		})
	})
}
