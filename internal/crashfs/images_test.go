package crashfs_test

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
)

func TestBoundsAreThoseJustBeforeTheNextEntry(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0) // Entry 0.
	d.Begun(1)
	put(t, f, "x", 0) // Entry 1.
	d.AckedRelaxed(1)
	d.Begun(2)
	put(t, f, "y", 0) // Entry 2.
	require.NoError(t, f.Sync())
	d.Acked(2)
	type bounds struct{ acked, begun uint64 }
	got := map[crashfs.Profile]map[int]bounds{crashfs.Kill: {}, crashfs.None: {}}
	for p := range got {
		for at := range d.Len() + 1 {
			for im := range d.Images(crashfs.ImageOptions{Profiles: p, From: at, To: at + 1}) {
				got[p][at] = bounds{im.Acked, im.Begun}
			}
		}
	}
	require.Equal(t, map[int]bounds{0: {0, 0}, 1: {0, 1}, 2: {1, 2}, 3: {1, 2}, 4: {2, 2}}, got[crashfs.Kill])
	require.Equal(t, map[int]bounds{0: {0, 0}, 1: {0, 1}, 2: {0, 2}, 3: {0, 2}, 4: {2, 2}}, got[crashfs.None])
}

// An image whose bytes were judged already must be judged again once more is expected of them.
func TestSameBytesWithHigherBoundAreNotSkipped(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	create(t, d, "a", 0)
	d.Begun(1)
	d.Acked(1) // Without a write.
	require.NoError(t, d.SyncDir("elsewhere"))
	var acked []uint64
	for im := range d.Images(crashfs.ImageOptions{Profiles: crashfs.None}) {
		acked = append(acked, im.Acked)
	}
	require.Equal(t, []uint64{0, 1}, acked)
}

func TestImagesAreDifferentAndRebuildable(t *testing.T) {
	for name, opts := range map[string]crashfs.Options{"buffered": {}, "direct": {Direct: true}} {
		t.Run(name, func(t *testing.T) {
			d := crashfs.New(opts)
			require.NoError(t, runToy(d, flawless, opts.Direct, 4))
			type key struct {
				hash, acked uint64
			}
			seen := map[key]bool{}
			byHash := map[uint64]string{}
			n := 0
			for im := range d.Images(crashfs.ImageOptions{Seed: 7}) {
				k := key{im.Hash(), im.Acked}
				require.False(t, seen[k])
				seen[k] = true
				again, err := d.Rebuild(im.Point, im.Desc())
				require.NoError(t, err, im.Desc())
				require.Equal(t, im.Desc(), again.Desc())
				require.Equal(t, im.Hash(), again.Hash(), im.Desc())
				require.Equal(t, im.Acked, again.Acked)
				if n++; n%7 == 0 {
					files := im.Files()
					require.Equal(t, files, again.Files())
					require.Equal(t, files, im.Disk(crashfs.Options{}).Files())
					text := show(files)
					if same, ok := byHash[im.Hash()]; ok {
						require.Equal(t, same, text)
					}
					byHash[im.Hash()] = text
				}
			}
			require.Greater(t, n, 100)
		})
	}
}

// TestOneOfManyIsTaken: a part of the images of one profile, all of another; which part, the seed
// says, and over many seeds each is taken.
func TestOneOfManyIsTaken(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	require.NoError(t, runToy(d, flawless, false, 4))
	const profiles = crashfs.Kill | crashfs.Shorn
	taken := func(o crashfs.ImageOptions) map[string]bool {
		o.Profiles = profiles
		all := map[string]bool{}
		for im := range d.Images(o) {
			all[im.String()] = true
		}
		return all
	}
	one := func(p crashfs.Profile) int {
		if p == crashfs.Kill {
			return 1
		}
		return 8
	}
	all, union := taken(crashfs.ImageOptions{}), map[string]bool{}
	kills := func(m map[string]bool) (n int) {
		for s := range m {
			if strings.Contains(s, "kill") {
				n++
			}
		}
		return n
	}
	for seed := range uint64(100) {
		part := taken(crashfs.ImageOptions{Seed: seed, OneOf: one})
		require.Equal(t, part, taken(crashfs.ImageOptions{Seed: seed, OneOf: one}))
		require.Equal(t, kills(all), kills(part))
		require.Less(t, len(part)-kills(part), (len(all)-kills(all))/3)
		maps.Copy(union, part)
	}
	for s := range all {
		require.True(t, union[s], s)
	}
}

func TestRebuildRefusesWhatDoesNotFit(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	put(t, create(t, d, "a", 0), "x", 0)
	for _, desc := range []string{
		"", "nothing keep=", "none keep=9", "none keep=2-1", "none keep=x", "torn512 keep=0 torn=7",
		"torn512 lost=0",
		"torn512 torn=1 lost=5", "none what", "stale stale=x",
	} {
		_, err := d.Rebuild(2, desc)
		require.Error(t, err, desc)
	}
	_, err := d.Rebuild(3, "none")
	require.Error(t, err)
	_, err = d.Rebuild(-1, "none")
	require.Error(t, err)
}

func TestImagesDoNotChangeWhileTheDiskGoesOn(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	require.NoError(t, runToy(d, flawless, false, 4))
	var list []*crashfs.Image
	var texts []string
	for im := range d.Images(crashfs.ImageOptions{}) {
		list, texts = append(list, im), append(texts, show(im.Files()))
		if _, _, err := judgeToy(im, flawless, crashfs.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	for i, im := range list {
		require.Equal(t, texts[i], show(im.Files()), im.String())
	}
}

// TestRecoveryThatCrashesGivesTheSameState is depth two: each image is opened on a traced disk, and
// each crash of that opening ends in the same state.
func TestRecoveryThatCrashesGivesTheSameState(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	require.NoError(t, runToy(d, flawless, false, 5))
	seen, n := crashfs.NewSeen(), 0
	for im := range d.Images(crashfs.ImageOptions{Every: 3, Random: 4, Seen: seen}) {
		disk, k, err := judgeToy(im, flawless, crashfs.Options{})
		require.NoError(t, err, im.String())
		for im2 := range disk.Images(crashfs.ImageOptions{
			Profiles: crashfs.None | crashfs.Kill | crashfs.Prefix | crashfs.Dirs | crashfs.Shorn |
				crashfs.Reorder,
			Random: 8, Seen: seen, Salt: uint64(k) + 1,
		}) {
			im2.Begun = uint64(k)
			im2.Acked = uint64(k)
			_, _, err := judgeToy(im2, flawless, crashfs.Options{Untraced: true})
			require.NoError(t, err, "%s\nthen %s", im, im2)
			n++
		}
	}
	require.Greater(t, n, 500)
}

func TestSeenIsSharedBetweenRuns(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	require.NoError(t, runToy(d, flawless, false, 3))
	seen := crashfs.NewSeen()
	count := func(salt uint64) (n int) {
		for range d.Images(crashfs.ImageOptions{Seen: seen, Salt: salt}) {
			n++
		}
		return n
	}
	first := count(0)
	require.Equal(t, first, seen.Len())
	require.Zero(t, count(0))
	require.Equal(t, first, count(1))
}

// TestSameBytesComeAgainWhenMoreIsExpected changes what is expected in the middle of a trace: the
// bytes of the moment before come once more.
func TestSameBytesComeAgainWhenMoreIsExpected(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	require.NoError(t, runToy(d, flawless, false, 3))
	changes := -1
	none := func() (points []int) {
		expects := func(point int) uint64 {
			if changes >= 0 && point >= changes {
				return 1
			}
			return 0
		}
		for im := range d.Images(crashfs.ImageOptions{Profiles: crashfs.None, Expects: expects}) {
			points = append(points, im.Point)
		}
		return points
	}
	before := none()
	for changes = range d.Len() + 1 {
		if !slices.Contains(before, changes) {
			break
		}
	}
	require.Contains(t, none(), changes)
}

func TestShrinkLosesNoMoreThanNeeded(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0)
	put(t, f, fill("x", 5*4096), 0)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir("."))
	for i := range 5 {
		put(t, f, fill("y", 4096), int64(i)*4096)
	}
	im, err := d.Rebuild(d.Len(), "reorder keep=1")
	require.NoError(t, err)
	require.Equal(t, "a:xyx", show(im.Files()))
	small := d.Shrink(im, func(im *crashfs.Image) bool { return im.Files()["a"][3*4096] == 'x' })
	require.Equal(t, "a:yxy", show(small.Files()))
	require.Equal(t, "reorder keep=0-2,4", small.Desc())
	im, err = d.Rebuild(d.Len(), "torn512 keep=0-4 torn=8 lost=0-7")
	require.NoError(t, err)
	small = d.Shrink(im, func(im *crashfs.Image) bool { return im.Files()["a"][4*4096+512] == 'x' })
	require.Equal(t, "torn512 keep=0-4 torn=8 lost=1", small.Desc())
}

func TestImagesMayRunAtOnce(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	require.NoError(t, runToy(d, flawless, false, 3))
	im, err := d.Rebuild(d.Len(), "none")
	require.NoError(t, err)
	again := im.Disk(crashfs.Options{})
	require.NoError(t, runToy(again, flawless, false, 1))
	seen := crashfs.NewSeen()
	var counts [3]int
	var wg sync.WaitGroup
	for i := range counts {
		wg.Go(func() {
			for range again.Images(crashfs.ImageOptions{Seen: seen}) {
				counts[i]++
			}
		})
	}
	wg.Wait()
	require.Equal(t, seen.Len(), counts[0]+counts[1]+counts[2])
}

// BenchmarkImages makes the images of a store of 100 KiB with many pending blocks; the metric is
// per image.
func BenchmarkImages(b *testing.B) {
	d := crashfs.New(crashfs.Options{})
	f, err := d.Open("a", vfs.Write|vfs.Create)
	if err != nil {
		b.Fatal(err)
	}
	page := make([]byte, 4096)
	for i := range 25 {
		page[0] = byte(i + 1)
		_ = vfs.WriteFull(f, page, int64(i)*4096)
	}
	_ = f.Sync()
	_ = d.SyncDir(".")
	for i := range 40 {
		page[1] = byte(i + 1)
		_ = vfs.WriteFull(f, page, int64(i*7%30)*4096)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for range d.Images(crashfs.ImageOptions{}) {
			n++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/image")
	b.ReportMetric(float64(n)/float64(b.N), "images")
}
