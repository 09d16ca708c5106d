//go:build unix

package main

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// TestLockOfARealProcess: while another process has the store open and stands still, no open
// succeeds, for writing or for reading, and none changes a byte. A writer that waits gets the store
// when that process is killed, and all that it had acknowledged.
func TestLockOfARealProcess(t *testing.T) {
	at := filepath.Join(t.TempDir(), "a.ebb")
	self, err := os.Executable()
	require.NoError(t, err)
	child := exec.Command(self, "kill-child", at, "1", "0")
	pipe, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill() })
	said := bufio.NewScanner(pipe)
	for said.Scan() && !strings.HasPrefix(said.Text(), "durable") {
	}
	require.NoError(t, said.Err())
	stop(t, child.Process.Pid)

	before := hashes(t, filepath.Dir(at))
	for _, o := range []*kv.Options{nil, {ReadOnly: true}, {MustExist: true},
		{LockTimeout: time.Millisecond}} {
		_, err := kv.Open(at, o)
		require.ErrorIs(t, err, kv.ErrLocked)
		if runtime.GOOS == "linux" { // /proc tells
			require.EqualError(t, err,
				fmt.Sprintf("open %s: store is locked by another process or handle: process %d (%s) holds it",
					at, child.Process.Pid, filepath.Base(self)[:min(15, len(filepath.Base(self)))]))
		}
		require.Equal(t, before, hashes(t, filepath.Dir(at)))
	}

	opened := make(chan error)
	var db *kv.DB
	go func() {
		var err error
		db, err = kv.Open(at, &kv.Options{LockTimeout: time.Minute,
			Clock: func() time.Time { return longAgo }})
		opened <- err
	}()
	require.NoError(t, child.Process.Kill())
	require.NoError(t, <-opened)
	acked := uint64(0)
	for more := true; more; more = said.Scan() { // What it said before it stood still.
		if word, number, _ := strings.Cut(said.Text(), " "); word == "durable" || word == "relaxed" {
			acked = parse(t, number)
		}
	}
	_ = child.Wait()
	seq, err := storedSeq(db)
	require.NoError(t, err)
	require.GreaterOrEqual(t, seq, acked)
	require.NotZero(t, acked)
	require.NoError(t, db.Close())
}

// stop lets a process stand still, and returns when it does.
func stop(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
		if err != syscall.EINTR {
			require.NoError(t, err)
			break
		}
	}
	require.True(t, status.Stopped())
}

// hashes are those of all files in a directory.
func hashes(t *testing.T, dir string) map[string][sha256.Size]byte {
	t.Helper()
	all := map[string][sha256.Size]byte{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		all[e.Name()] = sha256.Sum256(b)
	}
	return all
}

func parse(t *testing.T, number string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(number, 10, 64)
	require.NoError(t, err)
	return n
}
