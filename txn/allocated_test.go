package txn

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/pager"
)

// TestTakenPagesAgreeWithANaiveList of the same runs, whatever is added, cut off and taken out.
func TestTakenPagesAgreeWithANaiveList(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	var list allocatedPages
	var want []pageRun
	next := pager.Pgid(10)
	for range 20_000 {
		switch rnd.Intn(12) {
		case 0:
			next = pager.Pgid(10 + rnd.Intn(1000))
		case 1:
			r := pageRun{next, uint32(1 + rnd.Intn(3))}
			list.push(r)
			want = append(want, r)
			next += pager.Pgid(r.n)
		case 2:
			if len(want) > 0 && rnd.Intn(4) == 0 {
				n := rnd.Intn(len(want) + 1)
				list.cut(n)
				want = want[:n]
			}
		case 3:
			if len(want) > 0 {
				i := rnd.Intn(len(want))
				last := len(want) - 1 - slices.Index(reversed(want), want[i])
				require.True(t, list.remove(want[i], len(want)))
				want = slices.Delete(want, last, last+1)
			}
			require.False(t, list.remove(pageRun{5, 1}, len(want)))
		case 4:
			if rnd.Intn(20) == 0 {
				gone := map[pager.Pgid]bool{}
				for range 30 {
					gone[pager.Pgid(10+rnd.Intn(1000))] = true
				}
				list.drop(gone)
				want = slices.DeleteFunc(want, func(r pageRun) bool { return r.n == 1 && gone[r.id] })
			}
		case 5:
			if rnd.Intn(200) == 0 {
				list.reset()
				want = want[:0]
			}
		default:
			list.push(pageRun{next, 1})
			want = append(want, pageRun{next, 1})
			next++
		}
		require.Equal(t, len(want), list.len())
		from := rnd.Intn(len(want) + 1)
		got := make([]pageRun, 0, len(want))
		list.each(from, func(r pageRun) bool {
			got = append(got, r)
			return true
		})
		require.True(t, slices.Equal(want[from:], got), "%v, not %v", got, want[from:])
		if len(want) > 400 {
			list.cut(50)
			want = want[:50]
		}
	}
}

func reversed(runs []pageRun) []pageRun {
	runs = slices.Clone(runs)
	slices.Reverse(runs)
	return runs
}

// TestPagesThatFollowEachOtherAreOneEntry: a transaction of 4 GiB takes a million of them.
func TestPagesThatFollowEachOtherAreOneEntry(t *testing.T) {
	var list allocatedPages
	for i := range 1_000_000 {
		list.push(pageRun{pager.Pgid(100 + i), 1})
	}
	require.Equal(t, 1_000_000, list.len())
	require.Len(t, list.entries, 1)
}

// TestAlternatelyChangedTreesAreRecordedOnce: rows with expiries change three trees in turn, and the
// number of each was recorded each time, 24 bytes a row as long as the transaction lasted.
func TestAlternatelyChangedTreesAreRecordedOnce(t *testing.T) {
	var w writer
	w.mostChanged = leastChanged
	for i := range 100_000 {
		w.noteChanged(TreeID(4 + i%3))
	}
	require.LessOrEqual(t, len(w.changed), leastChanged)
	require.Equal(t, []TreeID{4, 5, 6}, slices.Compact(slices.Sorted(slices.Values(w.changed))))
	for i := range TreeID(1000) {
		w.noteChanged(i)
		w.noteChanged(4)
	}
	require.LessOrEqual(t, len(w.changed), 2*1000+leastChanged)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(w.changed))), 1000)
}
