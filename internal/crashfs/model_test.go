package crashfs_test

import (
	"maps"
	"slices"
	"strings"
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
		require.Equal(t, fill("x", 512), string(im.Files()["a"][1536:]),
			"noise past the sectors that were written")
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

func TestProfilesHaveNames(t *testing.T) {
	for p := crashfs.Kill; p < crashfs.AllProfiles; p <<= 1 {
		got, ok := crashfs.ParseProfile(p.String())
		require.True(t, ok)
		require.Equal(t, p, got)
	}
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
