package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

// nothingIsLeft proves that a directory is empty and that no loop device and no mount point at it.
func nothingIsLeft(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	table, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	require.NotContains(t, string(table), dir)
	files, err := attached(dir)
	require.NoError(t, err)
	require.Empty(t, files)
}

// attached lists the files in a directory that are connected by loop devices.
func attached(dir string) (files []string, err error) {
	devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, name := range devices {
		file, err := os.ReadFile(name) // A device may be detached meanwhile.
		if err == nil && strings.Contains(string(file), filepath.Base(filepath.Dir(dir))) {
			files = append(files, string(file))
		}
	}
	return files, err
}

func TestPowerCutsLoseNothing(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, fs := range fileSystems {
		t.Run(fs.name, func(t *testing.T) {
			need(t, fs.system(t.Context()))
			dir := t.TempDir()
			n := racetest.Sample(3, 1)
			status, out, text := try("powercut", "-fs", fs.name, "-n", fmt.Sprint(n), "-seed", "5", "-json",
				"-dir", dir)
			require.Zero(t, status, text)
			var r loopReport
			require.NoError(t, json.Unmarshal([]byte(out), &r))
			require.Equal(t, n, r.Images)
			require.Equal(t, []string{fs.name}, r.Systems)
			require.NotZero(t, r.Durable)
			require.NotZero(t, r.Losses.Pending)
			nothingIsLeft(t, dir)
		})
	}
}

func TestInterruptedPowercutUnmountsAndRemoves(t *testing.T) {
	need(t, fileSystems[0].system(t.Context()))
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	dir := t.TempDir()
	status, out, text := tryUntil(ctx, "powercut", "-fs", "ext4", "-json", "-dir", dir)
	require.Equal(t, 1, status)
	require.True(t, json.Valid([]byte(out)), out)
	require.Contains(t, text, "powercut: interrupted")
	nothingIsLeft(t, dir)
}

// TestEachWriteArrivesAsItWasIssued writes past the page cache to a loop device over the disk:
// each write is pending at once, in order, until the device is flushed.
func TestEachWriteArrivesAsItWasIssued(t *testing.T) {
	fs := fileSystems[0]
	need(t, fs.system(t.Context()))
	d, err := newBlockDisk(t.Context(), t.TempDir(), fs, fs.variants[0], 1)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.close()) }()
	f, err := os.Create(filepath.Join(d.root(), "file"))
	require.NoError(t, err)
	defer f.Close()
	for i := range 20 {
		page := strings.Repeat(string(rune('a'+i)), blockSize)
		_, err := f.WriteAt([]byte(page), 0)
		require.NoError(t, err)
		p := &powerCut{flush: flushOfMuch(1)}
		var held bool
		p.hear = func() error { // The file's block is on the disk before the flush that makes it durable.
			for _, w := range d.disk.pending {
				held = held || string(w.data) == page
			}
			return nil
		}
		p.done = make(chan error, 1)
		d.disk.mu.Lock()
		d.disk.armed = p
		d.disk.mu.Unlock()
		require.NoError(t, f.Sync())
		require.NoError(t, <-p.done)
		require.True(t, held)
		kept, loss := p.state.lose("none", d.rnd)
		require.Empty(t, kept)
		require.Positive(t, loss.Lost)
	}
}

// TestDiskThatDiesHangsNothing ends the server below a store that is being written: the writer gets
// errors and ends, a cut that is waited for ends, and everything can be unmounted.
func TestDiskThatDiesHangsNothing(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, fs := range fileSystems[:racetest.Sample(len(fileSystems), 1)] {
		t.Run(fs.name, func(t *testing.T) {
			need(t, fs.system(t.Context()))
			dir := t.TempDir()
			d, err := newBlockDisk(t.Context(), dir, fs, fs.variants[0], 1)
			require.NoError(t, err)
			w, err := startWriter(filepath.Join(d.root(), loopStore), 1)
			require.NoError(t, err)
			c := loopCase{image: filepath.Join(dir, "image.img"), seed: 1}
			_, err = c.take(d, w)
			require.NoError(t, err)
			_, err = c.judge(newKillModel(1))
			require.NoError(t, err)
			status, out, text := try("powercut", c.String())
			require.Zero(t, status, text)
			require.Contains(t, out, "survived")
			c.acked, c.begun = c.begun+1, c.begun+1
			_, err = c.judge(newKillModel(1))
			require.Error(t, err)
			require.NoError(t, os.Remove(c.image))

			require.NoError(t, d.file.close())
			<-w.ended
			require.ErrorContains(t, w.err, "child ended")
			_, err = c.take(d, w)
			require.Error(t, err)
			d.undo = append(d.undo[:1], d.undo[2:]...) // The disk is closed already.
			require.NoError(t, d.close())
			nothingIsLeft(t, dir)
		})
	}
}

// TestKilledPowercutLeavesNothingMounted: mounts of a mode that was killed used to stay until they
// were unmounted by hand, over a disk that did not answer any more.
func TestKilledPowercutLeavesNothingMounted(t *testing.T) {
	racetest.NotQuick(t)
	need(t, fileSystems[0].system(t.Context()))
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.Command(self, "powercut", "-fs", "ext4", "-n", "1000", "-dir", dir)
	pipe, err := command.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	said := bufio.NewScanner(pipe)
	require.True(t, said.Scan())
	require.Contains(t, said.Text(), "1 of 1000 images")
	files, err := attached(dir)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	require.NoError(t, command.Process.Kill())
	for said.Scan() { // until its child has ended too
	}
	require.Error(t, command.Wait())
	// The kernel takes the namespace apart after the end of the last process in it.
	require.Eventually(t, func() bool {
		files, err := attached(dir)
		return err == nil && len(files) == 0
	}, time.Minute, 10*time.Millisecond)
	table, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	require.NotContains(t, string(table), dir)
}

func TestPowercutRefusesNonsense(t *testing.T) {
	status, _, text := try("powercut", "-fs", "minix")
	require.Equal(t, 2, status)
	require.Contains(t, text, "minix")
	image := filepath.Join(t.TempDir(), "image.img")
	require.NoError(t, os.WriteFile(image, make([]byte, 1<<20), 0o600))
	status, _, text = try("powercut", "1 acked=1 begun=1 purged=0 "+image)
	require.Equal(t, 1, status)
	require.Contains(t, text, "no known file system")
}
