package crashfs_test

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
)

func create(t *testing.T, d *crashfs.Disk, name string, flag vfs.Flag) vfs.File {
	t.Helper()
	f, err := d.Open(name, vfs.Write|vfs.Create|flag)
	require.NoError(t, err)
	return f
}

func put(t *testing.T, f vfs.File, data string, off int64) {
	t.Helper()
	require.NoError(t, vfs.WriteFull(f, []byte(data), off))
}

// TestEverySyncOfTheToyIsNeeded is the pattern for a real engine: the sites found in the source and
// those seen at run time are the same, and without each of them some image fails.
func TestEverySyncOfTheToyIsNeeded(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	require.NoError(t, runToy(d, flawless, false, toyCommits))
	sites := d.Sites()
	require.Equal(t, []string{
		"crashfs_test.(*toy).checkpoint#1",
		"crashfs_test.(*toy).checkpoint#2",
		"crashfs_test.(*toy).commit#2",
		"crashfs_test.(*toy).createLog#1",
		"crashfs_test.(*toy).writeSnapshot#1",
	}, sites)
	for _, site := range sites {
		for name, action := range map[string]crashfs.Action{"ignored": crashfs.Ignore,
			"early": crashfs.Early} {
			t.Run(site+"/"+name, func(t *testing.T) {
				d := crashfs.New(crashfs.Options{})
				in := d.Inject(crashfs.Fault{Do: action, Site: site, Sticky: true})
				require.NoError(t, runToy(d, flawless, false, toyCommits))
				require.NotZero(t, in.Fired())
				require.True(t, caught(d))
			})
		}
	}
}

func TestDirectWriteIsASiteToo(t *testing.T) {
	opts := crashfs.Options{Direct: true}
	d := crashfs.New(opts)
	require.NoError(t, runToy(d, flawless, true, toyCommits))
	const site = "crashfs_test.(*toy).append/1"
	require.Contains(t, d.Sites(), site)
	d = crashfs.New(opts)
	in := d.Inject(crashfs.Fault{Do: crashfs.Ignore, Site: site, Sticky: true})
	require.NoError(t, runToy(d, flawless, true, toyCommits))
	require.Equal(t, toyCommits, in.Fired())
	failed, _, _ := failures(t, d, flawless, opts, crashfs.None)
	require.NotZero(t, failed)
}

func TestMistakesInTheOrderOfCallsAreSeen(t *testing.T) {
	for name, fault := range map[string]crashfs.Fault{
		"dropped_write":          {Do: crashfs.Drop, Phase: "commit", N: 1},
		"swallowed_sync_error":   {Do: crashfs.Swallow, Site: "crashfs_test.(*toy).commit#2"},
		"unlink_before_the_sync": {Do: crashfs.EarlyUnlink, Phase: "commit"},
	} {
		t.Run(name, func(t *testing.T) {
			d := crashfs.New(crashfs.Options{})
			in := d.Inject(fault)
			require.NoError(t, runToy(d, flawless, false, toyCommits))
			require.NotZero(t, in.Fired())
			require.True(t, caught(d))
		})
	}
}

// TestFailedSyncsLoseNothingThatWasShown is F8: a sync fails and drops what it should have kept;
// the engine stops, is opened again in the same boot, and then the power goes.
func TestFailedSyncsLoseNothingThatWasShown(t *testing.T) {
	gated := func(f flaw, n int) (failed int, more bool) {
		d := crashfs.New(crashfs.Options{})
		in := d.Inject(crashfs.Fault{Do: crashfs.Gate, N: n})
		err := runToy(d, f, false, toyCommits)
		if in.Fired() == 0 {
			require.NoError(t, err)
			return 0, false
		}
		if err == nil {
			require.Equal(t, retriesFailedSyncs, f)
		} else {
			require.ErrorIs(t, err, crashfs.ErrIO)
		}
		again, err := openToy(d, f, false)
		require.NoError(t, err)
		shown := len(again.values)
		require.NoError(t, again.close())
		d.Acked(uint64(shown))
		// What was shown must stay: it counts as acknowledged from the moment that the reopening
		// returned.
		for im := range d.Images(crashfs.ImageOptions{From: d.Len()}) {
			if _, _, err := judgeToy(im, f, crashfs.Options{Untraced: true}); err != nil {
				failed++
			}
		}
		profiles := crashfs.AllProfiles
		if f != flawless {
			profiles = crashfs.None | crashfs.Prefix
		}
		plain, _, first := failures(t, d, f, crashfs.Options{}, profiles)
		if f == flawless {
			require.Zero(t, plain, "sync %d: %s", n, first)
		}
		return failed + plain, true
	}
	for n := 0; ; n++ {
		failed, more := gated(flawless, n)
		require.Zero(t, failed, "sync %d", n)
		if !more {
			require.Greater(t, n, 10)
			break
		}
	}
	t.Run("a_retried_sync_is_caught", func(t *testing.T) {
		caught := 0
		for n, more := 0, true; more; n++ {
			var failed int
			failed, more = gated(retriesFailedSyncs, n)
			caught += failed
		}
		require.NotZero(t, caught)
	})
}

func TestEveryOperationCanFail(t *testing.T) {
	broken := errors.New("broken")
	for n := 0; ; n++ {
		d := crashfs.New(crashfs.Options{})
		in := d.Inject(crashfs.Fault{N: n, Err: broken})
		err := runToy(d, flawless, false, toyCommits)
		if in.Fired() == 0 {
			require.NoError(t, err)
			require.Equal(t, n, d.Ops())
			return
		}
		require.ErrorIs(t, err, broken, "operation %d", n)
		failed, _, first := failures(t, d, flawless, crashfs.Options{},
			crashfs.None|crashfs.Prefix|crashfs.Kill)
		require.Zero(t, failed, "operation %d: %s", n, first)
	}
}

func TestShortWritesAreFinished(t *testing.T) {
	for n := range 12 {
		for _, cause := range []error{nil, io.ErrShortWrite} {
			d := crashfs.New(crashfs.Options{})
			in := d.Inject(crashfs.Fault{Do: crashfs.Short, N: n, Err: cause})
			require.NoError(t, runToy(d, flawless, false, toyCommits))
			require.Equal(t, 1, in.Fired())
		}
		d := crashfs.New(crashfs.Options{})
		d.Inject(crashfs.Fault{Do: crashfs.Zero, N: n})
		require.ErrorIs(t, runToy(d, flawless, false, toyCommits), io.ErrShortWrite)
	}
}

func TestFaultsCountByKindSitePhaseAndStick(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0)
	in := d.Inject(crashfs.Fault{Kinds: crashfs.KindRead, N: 1, Sticky: true})
	b := make([]byte, 1)
	put(t, f, "x", 0)
	_, err := f.ReadAt(b, 0)
	require.NoError(t, err)
	for range 2 {
		_, err = f.ReadAt(b, 0)
		require.ErrorIs(t, err, crashfs.ErrIO)
	}
	require.Equal(t, 2, in.Fired())
	require.Equal(t, 3, in.Seen())
	in.Disarm()
	_, err = f.ReadAt(b, 0)
	require.NoError(t, err)
	d.Inject(crashfs.Fault{Phase: "later", Kinds: crashfs.KindTruncate})
	require.NoError(t, f.Truncate(5))
	d.SetPhase("later")
	require.ErrorIs(t, f.Truncate(6), crashfs.ErrIO)
	require.NoError(t, f.Truncate(7))
	require.Equal(t, 4, d.Count(crashfs.KindRead))
	require.Equal(t, 5, d.Count(crashfs.KindWrite|crashfs.KindTruncate|crashfs.KindCreate))
}

func TestSwappedWritesChangePlacesInTheTrace(t *testing.T) {
	for name, direct := range map[string]vfs.Flag{"buffered": 0, "direct": vfs.Direct} {
		t.Run(name, func(t *testing.T) {
			d := crashfs.New(crashfs.Options{Direct: true})
			f := create(t, d, "a", direct)
			in := d.Inject(crashfs.Fault{Do: crashfs.Swap, N: 1})
			b := vfs.AlignedBuffer(512)
			for i := range 3 {
				_, err := f.WriteAt(b, int64(i)*512)
				require.NoError(t, err)
			}
			require.Equal(t, 1, in.Fired())
			var offs []int64
			for _, op := range d.Trace() {
				if op.Kind == crashfs.KindWrite {
					offs = append(offs, op.Off)
				}
			}
			require.Equal(t, []int64{512, 0, 1024}, offs)
		})
	}
}

func TestCapacityIsKept(t *testing.T) {
	d := crashfs.New(crashfs.Options{Capacity: 2048})
	f := create(t, d, "a", 0)
	put(t, f, string(make([]byte, 1024)), 0)
	n, err := f.WriteAt(make([]byte, 2000), 1024)
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	require.Equal(t, 1024, n)
	require.ErrorIs(t, f.Truncate(4096), vfs.ErrNoSpace)
	put(t, f, "overwriting needs no space", 0)
	require.EqualValues(t, 2048, d.Used())
	d.SetCapacity(4096)
	require.NoError(t, f.Truncate(4096))
	require.NoError(t, d.Remove("a"))
	require.Zero(t, d.Used())
	put(t, create(t, d, "b", 0), string(make([]byte, 4096)), 0)
}

func TestReadOnlyDiskChangesNothing(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0)
	put(t, f, "abc", 0)
	d.SetReadOnly(true)
	n := d.Len()
	_, err := f.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, crashfs.ErrReadOnly)
	require.ErrorIs(t, f.Truncate(0), crashfs.ErrReadOnly)
	require.ErrorIs(t, d.Remove("a"), crashfs.ErrReadOnly)
	require.ErrorIs(t, d.Rename("a", "b"), crashfs.ErrReadOnly)
	_, err = d.Open("a", vfs.Write)
	require.ErrorIs(t, err, crashfs.ErrReadOnly)
	_, err = d.Open("a", 0)
	require.NoError(t, err)
	require.Equal(t, n, d.Len())
	require.Equal(t, map[string][]byte{"a": []byte("abc")}, d.Files())
}

func TestSitesAreStable(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0)
	syncTwice := func() {
		_ = f.Sync()
		_ = f.Sync()
	}
	syncTwice()
	require.NoError(t, errors.Join(f.SyncData(), d.SyncDir("."))) // Two on one line.
	require.Equal(t, []string{
		"crashfs_test.TestSitesAreStable#1",
		"crashfs_test.TestSitesAreStable#2",
		"crashfs_test.TestSitesAreStable#3",
		"crashfs_test.TestSitesAreStable#4",
	}, d.Sites())
	methodValue(f)
	require.Contains(t, d.Sites(), "crashfs_test.methodValue#1")
	trace := d.Trace()
	require.Equal(t, "crashfs_test.create/1", trace[0].Site())
	require.Equal(t, "create a at crashfs_test.create/1", trace[0].String())
}

func TestStaticSitesLeaveOutOwnMethods(t *testing.T) {
	ids, err := crashfs.StaticSyncSites("testdata/sites")
	require.NoError(t, err)
	require.Equal(t, []string{
		"sites.(*Box).flush#1",
		"sites.(*Log).Sync#1",
		"sites.(*Log).Sync#2",
		"sites.(*Log).sync#1",
		"sites.(*Log).sync#2",
		"sites.Open#1",
		"sites.Open#3",
	}, ids)
}

func methodValue(f vfs.File) {
	sync := f.Sync
	_ = sync()
}
