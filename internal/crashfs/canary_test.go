package crashfs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
)

const toyCommits = 8

// failures counts the images of profiles that the toy does not survive, and how many there are.
func failures(
	t *testing.T,
	d *crashfs.Disk,
	f flaw,
	opts crashfs.Options,
	profiles crashfs.Profile,
) (failed, images int, first string) {
	t.Helper()
	opts.Untraced = true
	for im := range d.Images(crashfs.ImageOptions{Profiles: profiles, Seed: 1}) {
		images++
		if _, _, err := judgeToy(im, f, opts); err != nil {
			if failed++; first == "" {
				first = im.String() + ": " + err.Error()
			}
		}
	}
	return failed, images, first
}

// caught tells whether some image of all profiles is one that the flawless toy does not survive.
func caught(d *crashfs.Disk) bool {
	for im := range d.Images(crashfs.ImageOptions{Seed: 1}) {
		if _, _, err := judgeToy(im, flawless, crashfs.Options{Untraced: true}); err != nil {
			return true
		}
	}
	return false
}

func TestCorrectEngineSurvivesEveryProfile(t *testing.T) {
	for name, opts := range map[string]crashfs.Options{"buffered": {}, "direct": {Direct: true}} {
		t.Run(name, func(t *testing.T) {
			d := crashfs.New(opts)
			require.NoError(t, runToy(d, flawless, opts.Direct, toyCommits))
			for p := crashfs.Kill; p < crashfs.AllProfiles; p <<= 1 {
				failed, images, first := failures(t, d, flawless, opts, p)
				require.Zero(t, failed, "%s", first)
				require.NotZero(t, images, "%s", p)
				t.Logf("%s: %d images", p, images)
			}
		})
	}
}

// TestEachProfileCatchesItsFlaw keeps the simulator honest: a profile that no longer sees what it
// is there for fails.
func TestEachProfileCatchesItsFlaw(t *testing.T) {
	for _, test := range []struct {
		profile crashfs.Profile
		flaw    flaw
		blind   crashfs.Profile // profiles that must not see it, so that it is this profile that is tested
	}{
		{crashfs.Kill, acksBeforeWriting, 0},
		{crashfs.None, forgetsLogSync, crashfs.Kill},
		{crashfs.Prefix, splitsCommits, crashfs.None},
		{crashfs.Reorder, trustsOrder, crashfs.Kill | crashfs.None | crashfs.Prefix},
		{crashfs.Torn512, trustsBlocks,
			crashfs.Kill | crashfs.None | crashfs.Prefix | crashfs.Reorder | crashfs.Torn4K},
		{crashfs.Torn4K, trustsLongWrites, crashfs.Kill | crashfs.None},
		{crashfs.Shorn, sharesSectors, crashfs.AllProfiles &^ (crashfs.Shorn | crashfs.Stale)},
		{crashfs.Dirs, forgetsDirSync, crashfs.Kill | crashfs.Torn4K},
		{crashfs.Size, growsWithDataSync, crashfs.AllProfiles &^ crashfs.Size},
		{crashfs.Stale, trustsFreshSpace, crashfs.AllProfiles &^ crashfs.Stale},
	} {
		t.Run(test.profile.String(), func(t *testing.T) {
			d := crashfs.New(crashfs.Options{})
			require.NoError(t, runToy(d, test.flaw, false, toyCommits))
			failed, _, _ := failures(t, d, test.flaw, crashfs.Options{}, test.profile)
			require.NotZero(t, failed, "an engine that %s passes profile %s", test.flaw, test.profile)
			if test.blind != 0 {
				failed, _, first := failures(t, d, test.flaw, crashfs.Options{}, test.blind)
				require.Zero(t, failed, "%s", first)
			}
		})
	}
}
