package workload

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cmd/bench/engine"
)

func TestKeysAreDistinctAndInTheOrderThatTheyClaim(t *testing.T) {
	const n = 1000
	for _, o := range []order{hashed, ascending, grouped} {
		var keys [][]byte
		for i := range n {
			keys = append(keys, o.key(make([]byte, keySize), i))
		}
		require.Equal(t, o == ascending, slices.IsSortedFunc(keys, bytes.Compare))
		if o == grouped {
			require.Equal(t, keys[100][:8], keys[199][:8])
			require.NotEqual(t, keys[99][:8], keys[100][:8])
		}
		slices.SortFunc(keys, bytes.Compare)
		require.Len(t, slices.CompactFunc(keys, bytes.Equal), n)
	}
}

func TestValuesTellTheirKeyAndVersion(t *testing.T) {
	k, other := hashed.key(make([]byte, keySize), 1), hashed.key(make([]byte, keySize), 2)
	v := fill(make([]byte, valueSize), k, 7)
	require.True(t, rightValue(v, k, valueSize))
	require.False(t, rightValue(v, other, valueSize))
	require.False(t, rightValue(v[:99], k, valueSize))
	require.NotEqual(t, v, fill(make([]byte, valueSize), k, 8))
	require.Equal(t, lastByte(k, largeValue), fill(make([]byte, largeValue), k, 0)[largeValue-1])
}

// TestTallyDependsOnOrderAndVersions: the sum of a scan would show rows in another order, or with
// an old value.
func TestTallyDependsOnOrderAndVersions(t *testing.T) {
	f := Fixture{}
	var scanned engine.Tally
	var rows [][]byte
	for i := range 100 {
		rows = append(rows, hashed.key(make([]byte, keySize), i))
	}
	slices.SortFunc(rows, bytes.Compare)
	for _, k := range rows {
		scanned.Add(k, fill(make([]byte, valueSize), k, 3))
	}
	version := func(v uint64) func(int) uint64 { return func(int) uint64 { return v } }
	require.NoError(t, same(scanned, f.tally(100, false, nil, version(3))))
	require.ErrorContains(t, same(scanned, f.tally(100, true, nil, version(3))), "wrong answer")
	require.ErrorContains(t, same(scanned, f.tally(100, false, nil, version(4))), "wrong answer")
	require.ErrorContains(t, same(scanned, f.tally(101, false, nil, version(3))), "wrong answer")
	require.Equal(t, 50, f.tally(100, false, func(i int) bool { return i%2 == 0 }, nil).Rows)
}

func TestArenaKeepsTheRowsOfABatch(t *testing.T) {
	a := newArena(3, valueSize)
	var keys, values [][]byte
	for i := range 3 {
		k, v := a.row(hashed, i, valueSize, 0)
		keys, values = append(keys, k), append(values, v)
	}
	for i := range keys {
		require.Equal(t, hashed.key(make([]byte, keySize), i), keys[i])
		require.True(t, rightValue(values[i], keys[i], valueSize))
	}
	k, _ := a.row(hashed, 9, valueSize, 0)
	require.Same(t, &keys[0][0], &k[0], "after the last place comes the first")
}

// TestZipfianIsSkewed: with YCSB's constant, the most popular of a thousand rows is drawn about
// once in seven or eight.
func TestZipfianIsSkewed(t *testing.T) {
	const n, draws = 1000, 100_000
	z, rng, counts := newZipfian(n), rand.New(rand.NewPCG(1, 1)), make([]int, n)
	for range draws {
		counts[z.next(rng)]++
	}
	require.InDelta(t, draws/z.zetan, counts[0], 0.05*draws/z.zetan)
	require.Greater(t, counts[0], counts[10])
	require.Greater(t, counts[10], counts[500])
	require.Positive(t, counts[n-1]+counts[n-2]+counts[n-3])
}

func TestPercentilesAreWithinOnePercent(t *testing.T) {
	var l, half latencies
	for i := range 10_000 {
		h := &l
		if i%2 == 0 {
			h = &half
		}
		h.add(time.Duration(i+1) * time.Microsecond)
	}
	l.merge(&half)
	for _, p := range []float64{50, 90, 99} {
		require.InEpsilon(t, p*100, l.percentile(p).Microseconds(), 0.01)
	}
	require.InEpsilon(t, 10_000, l.percentile(100).Microseconds(), 0.01)
	require.Zero(t, new(latencies).percentile(99))
}

func TestBucketsCoverEveryDuration(t *testing.T) {
	last := -1
	for _, ns := range []uint64{0, 1, 127, 128, 255, 256, 257, 511, 512, 1 << 20, 1<<20 + 1<<13,
		1 << 40, 1<<63 - 1} {
		i := latencyBucket(ns)
		require.GreaterOrEqual(t, i, last)
		require.Less(t, i, len(latencies{}.buckets))
		if ns > 0 {
			require.InEpsilon(t, ns, uint64(latencyValue(i)), 0.01)
		}
		last = i
	}
}

func TestSelect(t *testing.T) {
	names := func(list string) (names []string) {
		chosen, err := Select(list)
		require.NoError(t, err)
		for _, w := range chosen {
			names = append(names, w.Name)
		}
		return names
	}
	all := []string{"get", "scan-back", "scan-prefix", "scan-view", "scan-first"}
	require.Equal(t, all, names("get,scan-*"))
	require.Equal(t, []string{"scan-back", "get", "scan-first"}, names("scan-back, get,scan-f* ,get"))
	require.NotContains(t, names(""), "big-get")
	require.Contains(t, names("all"), "big-get")
	_, err := Select("get,scam*")
	require.ErrorContains(t, err, `no workload "scam*"`)
}

func TestNamesOfWorkloadsAreDistinctAndSoAreFixtures(t *testing.T) {
	names, fixtures := map[string]bool{}, map[string]Fixture{}
	for _, w := range All() {
		require.False(t, names[w.Name], w.Name)
		names[w.Name] = true
		if other, ok := fixtures[w.Fixture.Name()]; ok && w.Fixture.Loaded {
			require.Equal(t, other, w.Fixture)
		}
		if w.Fixture.Loaded {
			fixtures[w.Fixture.Name()] = w.Fixture
		}
		require.NotEmpty(t, w.About)
		require.NotNil(t, w.Run)
	}
}
