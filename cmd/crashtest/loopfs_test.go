package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

// need skips a test where a file system cannot be mounted.
func need(t *testing.T, s diskSystem) {
	t.Helper()
	reason, err := s.try(t.TempDir())
	require.NoError(t, err)
	if reason != "" {
		t.Skip(reason)
	}
}

func TestImagesOfADiskLoseNothing(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	need(t, loopSystem)
	dir := t.TempDir()
	n := racetest.Sample(3, 1)
	status, out, text := try("loopfs", "-n", fmt.Sprint(n), "-seed", "5", "-json", "-dir", dir)
	require.Zero(t, status, text)
	var r loopReport
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, n, r.Images)
	require.False(t, r.Skipped)
	require.NotZero(t, r.Durable)
	require.Equal(t, []string{}, r.Failures)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestInterruptedLoopfsUnmountsAndRemoves(t *testing.T) {
	need(t, loopSystem)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	dir := t.TempDir()
	status, out, text := tryUntil(ctx, "loopfs", "-json", "-dir", dir)
	require.Equal(t, 1, status)
	require.True(t, json.Valid([]byte(out)), out)
	require.Contains(t, text, "loopfs: interrupted")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestImageIsJudgedByWhatWasAcknowledged takes an image, and claims of it what its writer has not
// said.
func TestImageIsJudgedByWhatWasAcknowledged(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	need(t, loopSystem)
	dir := t.TempDir()
	d, err := newLoopDisk(dir, diskOptions[0])
	require.NoError(t, err)
	defer func() { require.NoError(t, d.close()) }()
	w, err := startWriter(filepath.Join(d.root(), loopStore), 7)
	require.NoError(t, err)
	c := loopCase{image: filepath.Join(dir, "image.img"), seed: 7}
	for {
		p, err := c.take(d, w)
		require.NoError(t, err)
		if p.durables > 3 && c.acked > 3 {
			break
		}
	}
	w.stop()
	for range 2 { // A look leaves the image as it was.
		status, out, text := try("loopfs", c.String())
		require.Zero(t, status, text)
		require.Contains(t, out, "survived")
	}
	for name, change := range map[string]func(*loopCase){
		"acknowledged": func(c *loopCase) { c.acked, c.begun = c.begun+1, c.begun+1 },
		"begun":        func(c *loopCase) { c.acked, c.begun = 1, 1 },
		"missing":      func(c *loopCase) { c.seed++ },
	} {
		wrong := c
		change(&wrong)
		_, err := wrong.judge(newKillModel(wrong.seed))
		require.Error(t, err, name)
	}

	// A file system that was unmounted is no crash.
	d.undo = d.undo[:len(d.undo)-1]
	require.NoError(t, tool("umount", d.root()))
	c.image = d.image
	_, err = c.judge(newKillModel(7))
	require.ErrorContains(t, err, "unmounted")
}

func TestWithoutLoopDevicesImagesAreSkipped(t *testing.T) {
	require.Contains(t, cannotMount("plan9", 0), "needs Linux")
	require.Contains(t, cannotMount("linux", 1000), "only root")
	t.Setenv("PATH", t.TempDir())
	require.Contains(t, cannotMount("linux", 0, "mkfs.ext4"), "not installed")
	for _, mode := range []string{"loopfs", "powercut"} {
		status, out, text := try(mode, "-n", "3", "-json", "-dir", t.TempDir())
		require.Zero(t, status, text)
		require.Contains(t, text, "SKIPPED: ext4: ")
		var r loopReport
		require.NoError(t, json.Unmarshal([]byte(out), &r))
		require.True(t, r.Skipped)
		require.NotEmpty(t, r.Reason)
		require.Zero(t, r.Images)
	}
}

// TestOtherFailuresAreNotSkipped puts a mkfs.ext4 and a mount of our own in front of the real ones:
// one that breaks is a failure, one that is not allowed to mount is a reason.
func TestOtherFailuresAreNotSkipped(t *testing.T) {
	if reason := cannotMount(runtime.GOOS, os.Geteuid(), loopSystem.tools...); reason != "" {
		t.Skip(reason)
	}
	bin := t.TempDir()
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	script := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	}
	script("mkfs.ext4", "echo no space left on device; exit 1")
	status, out, text := try("loopfs", "-n", "3", "-json", "-dir", t.TempDir())
	require.Equal(t, 1, status)
	require.Contains(t, out, `"skipped":false`)
	require.Contains(t, text, "no space left on device")

	script("mkfs.ext4", "exit 0")
	for said, skipped := range map[string]bool{
		"mount: x: failed to setup loop device for y.": true, "mount: x: permission denied.": true,
		"mount: x: wrong fs type, bad option, bad superblock on y.": false,
	} {
		script("mount", "echo '"+said+"'; exit 32")
		status, _, text = try("loopfs", "-n", "3", "-dir", t.TempDir())
		require.Contains(t, text, said)
		require.Equal(t, skipped, status == 0, said)
		require.Equal(t, skipped, strings.Contains(text, "SKIPPED"), said)
	}
}

func TestLoopfsRefusesNonsense(t *testing.T) {
	for _, args := range [][]string{{"a line"},
		{"1 acked=1 begun=1 purged=0 " + filepath.Join(t.TempDir(), "absent")}} {
		status, _, text := try(append([]string{"loopfs"}, args...)...)
		require.Equal(t, 1, status)
		require.NotEmpty(t, text)
	}
}

// TestPowerCutTakesRelaxedPurgesBack: keys that a relaxed commit had evicted leave a purge nothing
// to do, so it syncs nothing, and a power cut may bring them back.
func TestPowerCutTakesRelaxedPurgesBack(t *testing.T) {
	var p progress
	for _, line := range []string{"begun 1", "durable 1", "begun 2", "relaxed 2", "purged 2", "begun 3"} {
		require.NoError(t, p.hear(line))
	}
	require.Equal(t, claims{acked: 2, begun: 3, purged: 2}, p.claims)
	require.Equal(t, claims{acked: 1, begun: 3}, p.afterPowerCut())
	require.NoError(t, p.hear("durable 3"))
	require.Equal(t, claims{acked: 3, begun: 3, purged: 2}, p.afterPowerCut())
	require.Error(t, p.hear("hello"))
}
