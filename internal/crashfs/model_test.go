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

// show spells an image for comparison: runs of equal bytes by their first, with lengths.
func show(files map[string][]byte) string {
	var s []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		var b strings.Builder
		b.WriteString(name + ":")
		data := files[name]
		for i := 0; i < len(data); {
			j := i
			for j < len(data) && data[j] == data[i] {
				j++
			}
			c := string(data[i : i+1])
			if data[i] == 0 {
				c = "0"
			}
			b.WriteString(c)
			i = j
		}
		s = append(s, b.String())
	}
	return strings.Join(s, " ")
}

// images lists what profiles leave at the last crash point, sorted.
func images(d *crashfs.Disk, profiles crashfs.Profile) []string {
	var list []string
	for im := range d.Images(crashfs.ImageOptions{Profiles: profiles, From: d.Len()}) {
		list = append(list, show(im.Files()))
	}
	slices.Sort(list)
	return list
}

func fill(c string, n int) string { return strings.Repeat(c, n) }

func TestSyncKeepsDataButNotTheName(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0)
	put(t, f, "x", 0)
	require.NoError(t, f.Sync())
	require.Equal(t, []string{""}, images(d, crashfs.None))
	require.NoError(t, d.SyncDir("."))
	require.Equal(t, []string{"a:x"}, images(d, crashfs.None))
}

func TestNameMayPersistWhileTheFileIsEmpty(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	put(t, create(t, d, "a", 0), "x", 0)
	require.NoError(t, d.SyncDir("."))
	require.Equal(t, []string{"a:"}, images(d, crashfs.None))
	require.Equal(t, []string{"a:", "a:0", "a:x"}, images(d, crashfs.Reorder))
}

func TestBlocksPersistInAnyOrder(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0)
	put(t, f, fill("x", 8192), 0)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir("."))
	put(t, f, fill("y", 8192), 0)
	put(t, f, fill("z", 4096), 0)
	require.Equal(t, []string{"a:x", "a:xy", "a:y", "a:yx", "a:zx", "a:zy"}, images(d, crashfs.Reorder))
	require.Equal(t, []string{"a:x", "a:y", "a:yx", "a:zy"}, images(d, crashfs.Prefix))
	require.Equal(t, []string{"a:zy"}, images(d, crashfs.Kill))
}

func TestTornWriteLosesSectors(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0)
	put(t, f, fill("x", 2048), 0)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir("."))
	put(t, f, fill("y", 1024), 256) // Sectors 0 to 2, the outer ones in part.
	require.Equal(t, []string{"a:x", "a:xyx", "a:xyxyx"}, unique(images(d, crashfs.Torn512)))
	for im := range d.Images(crashfs.ImageOptions{Profiles: crashfs.Shorn, From: d.Len()}) {
		require.Equal(t, fill("x", 512), string(im.Files()["a"][1536:]), "noise past the sectors that were written")
	}
}

func unique(list []string) []string { return slices.Compact(list) }

func TestLongWritesAreTornAtBlocks(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0)
	put(t, f, fill("x", 3*4096), 0)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir("."))
	put(t, f, fill("y", 3*4096), 0)
	require.Equal(t, []string{"a:xy", "a:xyx", "a:yx", "a:yxy"}, unique(images(d, crashfs.Torn4K)))
}

func TestRenameIsAtomicExceptInDirs(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	put(t, create(t, d, "a", 0), "", 0)
	put(t, create(t, d, "b", 0), "", 0)
	f := create(t, d, "b", 0)
	put(t, f, "B", 0)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir("."))
	require.NoError(t, d.Rename("b", "a"))
	require.Equal(t, []string{"a: b:B", "a:B"}, images(d, crashfs.Reorder))
	require.Equal(t, []string{"a: b:B", "a:B", "a:B b:B"}, images(d, crashfs.Dirs))
	require.NoError(t, d.SyncDir("."))
	require.Equal(t, []string{"a:B"}, images(d, crashfs.AllProfiles))
}

func TestSyncDataMayLoseGrowthInSizeOnly(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0)
	put(t, f, "x", 0)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir("."))
	put(t, f, "y", 1)
	require.NoError(t, f.SyncData())
	put(t, f, "z", 2)
	require.NoError(t, f.SyncData())
	require.Equal(t, []string{"a:xyz"}, images(d, crashfs.AllProfiles&^crashfs.Size))
	require.Equal(t, []string{"a:x", "a:xy", "a:xyz"}, images(d, crashfs.Size))
	require.NoError(t, f.Sync())
	require.Equal(t, []string{"a:xyz"}, images(d, crashfs.AllProfiles))
}

func TestCutMayBeLost(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0)
	put(t, f, "abcdef", 0)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir("."))
	require.NoError(t, f.Truncate(2))
	require.Equal(t, []string{"a:ab", "a:abcdef"}, images(d, crashfs.Reorder))
	require.NoError(t, f.Truncate(4))
	require.Equal(t, []string{"a:ab", "a:ab0", "a:abcd", "a:abcdef"}, images(d, crashfs.Reorder))
	require.NoError(t, f.SyncData())
	require.Equal(t, []string{"a:ab0"}, images(d, crashfs.AllProfiles&^crashfs.Size))
	require.Equal(t, []string{"a:ab"}, images(d, crashfs.Size)) // The growth is lost, the cut is not.
}

func TestUnsyncedSpaceShowsDeletedFilesInStale(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	old := create(t, d, "old", 0)
	put(t, old, fill("o", 8192), 0)
	require.NoError(t, old.Sync())
	f := create(t, d, "new", 0)
	put(t, f, fill("x", 4096), 0)
	require.NoError(t, f.Sync())
	require.NoError(t, d.Remove("old"))
	require.NoError(t, d.SyncDir("."))
	put(t, f, fill("y", 4096), 4096)
	require.Contains(t, images(d, crashfs.Stale), "new:xo")
	require.NotContains(t, images(d, crashfs.AllProfiles&^crashfs.Stale), "new:xo")
	// It is still there in the next boot.
	for im := range d.Images(crashfs.ImageOptions{Profiles: crashfs.None, From: d.Len()}) {
		d2 := im.Disk(crashfs.Options{})
		f2, err := d2.Open("new", vfs.Write)
		require.NoError(t, err)
		put(t, f2, fill("y", 4096), 4096)
		require.Contains(t, images(d2, crashfs.Stale), "new:xo")
	}
}

func TestLostUnlinkBringsTheFileBack(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0)
	put(t, f, "x", 0)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir("."))
	require.NoError(t, d.Remove("a"))
	g := create(t, d, "a", 0)
	put(t, g, "y", 0)
	require.NoError(t, g.Sync())
	require.Equal(t, []string{"", "a:x", "a:y"}, images(d, crashfs.Reorder))
}

func TestDirectWriteIsDurableByItself(t *testing.T) {
	d := crashfs.New(crashfs.Options{Direct: true})
	f := create(t, d, "a", 0)
	put(t, f, fill("x", 4096), 0)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir("."))
	put(t, f, fill("b", 512), 512) // Buffered, and stays pending.
	g := create(t, d, "a", vfs.Direct)
	b := vfs.AlignedBuffer(512)
	copy(b, fill("d", 512))
	_, err := g.WriteAt(b, 2048)
	require.NoError(t, err)
	require.Equal(t, []string{"a:xbxdx", "a:xdx"}, images(d, crashfs.Reorder))
	// The crash point before it was durable.
	var before []string
	for im := range d.Images(crashfs.ImageOptions{Profiles: crashfs.None, From: d.Len() - 1, To: d.Len()}) {
		before = append(before, show(im.Files()))
	}
	require.Equal(t, []string{"a:x"}, before)
	// Growth by a direct write is as safe as growth with SyncData.
	_, err = g.WriteAt(b, 4096)
	require.NoError(t, err)
	require.Equal(t, []string{"a:xdxd"}, images(d, crashfs.None))
	require.Contains(t, images(d, crashfs.Size), "a:xbxdx")
}

// TestDirectWritesMayOverlap: a second write that begins and ends while the first one is on its way
// is durable before it, or alone.
func TestDirectWritesMayOverlap(t *testing.T) {
	var landing func()
	d := crashfs.New(crashfs.Options{Direct: true, Landing: func() {
		if now := landing; now != nil {
			landing = nil
			now()
		}
	}})
	f := create(t, d, "a", 0)
	put(t, f, fill("x", 8192), 0)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir("."))
	g := create(t, d, "a", vfs.Direct)
	write := func(what string, off int64) {
		b := vfs.AlignedBuffer(512)
		copy(b, fill(what, 512))
		_, err := g.WriteAt(b, off)
		require.NoError(t, err)
	}
	landing = func() { write("2", 4096) }
	began := d.Len()
	write("1", 0)
	at := func(p int) (all []string) {
		for im := range d.Images(crashfs.ImageOptions{Profiles: crashfs.Reorder, From: p, To: p + 1}) {
			all = append(all, show(im.Files()))
		}
		slices.Sort(all)
		return all
	}
	require.Equal(t, began+4, d.Len())
	require.Equal(t, []string{"a:1x", "a:1x2x", "a:x", "a:x2x"}, at(began+2), "both are on their way")
	require.Equal(t, []string{"a:1x2x", "a:x2x"}, at(began+3), "the second has landed")
	require.Equal(t, []string{"a:1x2x"}, at(began+4))
}

func TestFailedSyncDropsWhatWasPendingForGood(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0)
	put(t, f, "abc", 0)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir("."))
	put(t, f, "BC", 1)
	d.Inject(crashfs.Fault{Do: crashfs.Gate})
	require.ErrorIs(t, f.Sync(), crashfs.ErrIO)
	require.Equal(t, "a:aBC", show(d.Files()))
	require.NoError(t, f.Sync())
	require.Equal(t, []string{"a:abc"}, images(d, crashfs.AllProfiles&^crashfs.Kill))
	require.Equal(t, []string{"a:aBC"}, images(d, crashfs.Kill))
	put(t, f, "d", 3)
	require.NoError(t, f.Sync())
	require.Equal(t, []string{"a:abcd"}, images(d, crashfs.None))
	require.Equal(t, []string{"a:aBCd"}, images(d, crashfs.Kill))
	t.Run("of_a_directory", func(t *testing.T) {
		d := crashfs.New(crashfs.Options{})
		f := create(t, d, "a", 0)
		require.NoError(t, f.Sync())
		d.Inject(crashfs.Fault{Do: crashfs.Gate})
		require.Error(t, d.SyncDir("."))
		require.NoError(t, d.SyncDir("."))
		require.Equal(t, []string{""}, images(d, crashfs.AllProfiles&^crashfs.Kill))
		require.Equal(t, []string{"a:"}, images(d, crashfs.Kill))
	})
}

func TestPlainSyncErrorLeavesItOpenWhatPersists(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0)
	put(t, f, "x", 0)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir("."))
	put(t, f, "y", 0)
	d.Inject(crashfs.Fault{Kinds: crashfs.KindSync})
	require.ErrorIs(t, f.Sync(), crashfs.ErrIO)
	require.Equal(t, []string{"a:x", "a:y"}, images(d, crashfs.Reorder))
}

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
		"", "nothing keep=", "none keep=9", "none keep=2-1", "none keep=x", "torn512 keep=0 torn=7", "torn512 lost=0",
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
			Profiles: crashfs.None | crashfs.Kill | crashfs.Prefix | crashfs.Dirs | crashfs.Shorn | crashfs.Reorder,
			Random:   8, Seen: seen, Salt: uint64(k) + 1,
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

func TestProfilesHaveNames(t *testing.T) {
	for p := crashfs.Kill; p < crashfs.AllProfiles; p <<= 1 {
		got, ok := crashfs.ParseProfile(p.String())
		require.True(t, ok)
		require.Equal(t, p, got)
	}
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

// TestSecondDirectWriteWithoutTheFirst: of two that are on their way together, each may be there
// alone, also where both lie in one page.
func TestSecondDirectWriteWithoutTheFirst(t *testing.T) {
	for _, block := range []int{512, 4096} {
		d := crashfs.New(crashfs.Options{Direct: true, BlockSize: block})
		f := create(t, d, "a", 0)
		put(t, f, fill("\x00", 4*4096), 0)
		require.NoError(t, f.Sync())
		require.NoError(t, d.SyncDir("."))
		direct, err := d.Open("a", vfs.Write|vfs.Direct)
		require.NoError(t, err)
		first, second := vfs.AlignedBuffer(block), vfs.AlignedBuffer(block)
		first[0], second[0] = 1, 2
		one, two := direct.StartWriteAt(first, 0), direct.StartWriteAt(second, int64(block))
		seen := map[[2]byte]bool{}
		for im := range d.Images(crashfs.ImageOptions{}) {
			if b := im.Files()["a"]; len(b) > block {
				seen[[2]byte{b[0], b[block]}] = true
			}
		}
		for _, want := range [][2]byte{{0, 0}, {1, 0}, {0, 2}, {1, 2}} {
			require.True(t, seen[want], "block %d: %v", block, want)
		}
		_, err = one.Wait()
		require.NoError(t, err)
		_, err = two.Wait()
		require.NoError(t, err)
		require.NoError(t, direct.Close())
		require.NoError(t, f.Close())
	}
}
