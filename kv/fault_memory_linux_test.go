//go:build linux && !race

package kv_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

const (
	memoryCache = 16 << 20
	memoryBound = memoryCache + 64<<20 // of anonymous memory
)

// memoryRows is for the whole of it: 34 million rows make 4 GiB of log.
var memoryRows = flag.Int("memoryrows", 1_500_000, "rows of TestLargeTransactionsStayWithinTheirMemory")

// TestLargeTransactionsStayWithinTheirMemory: one transaction of 1.5 million rows of 116 bytes made
// 200 MB of log, which Open joined into one slice of the heap before it knew whether the
// transaction had an end: 500 to 950 MB with a cache of 16 MiB, also where the bytes were then
// dropped. In a group of less memory than that the store could not be opened any more. Children
// write such a transaction, come to an end in each way there is, and open the store again, in a
// group of 256 MB where the system lets us make one. Each measures its anonymous memory all the
// while.
func TestLargeTransactionsStayWithinTheirMemory(t *testing.T) {
	racetest.NotQuick(t)
	rows := *memoryRows
	if testing.Short() {
		rows = min(rows, 100_000)
	}
	for _, test := range []struct {
		name   string
		ending string
		want   int // rows
	}{
		{"committed", "commit", rows + 1},
		{"at_random", "random", min(rows, 500_000) + 1},
		{"rolled_back", "rollback", 2},
		{"unfinished", "kill", 1},
		{"cut", "killed in commit", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.ebb")
			n := rows
			if test.ending == "random" {
				n = min(n, 500_000)
			}
			wrote := memoryChild(t, path, test.ending, n)
			require.Less(t, wrote.peak, int64(memoryBound), "of the transaction")
			if test.name == "cut" {
				cutLog(t, path)
			}
			opened := memoryChild(t, path, "open", 0)
			require.Equal(t, test.want, opened.rows)
			require.Less(t, opened.peak, int64(memoryBound), "of Open")
			t.Logf("anonymous memory: %d MiB written, %d MiB opened",
				wrote.peak>>20, opened.peak>>20)
		})
	}
}

// memoryReport is what a child says.
type memoryReport struct {
	peak int64 // bytes of anonymous memory
	rows int
}

const memoryEnv = "EBB_MEMORY_CHILD"

// memoryChild runs this test again as a child that does what is asked and says what it took.
func memoryChild(t *testing.T, path, what string, rows int) (r memoryReport) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestMemoryChild$")
	asked := strings.Join([]string{path, what, strconv.Itoa(rows)}, ",")
	cmd.Env = append(os.Environ(), memoryEnv+"="+asked)
	var said, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &failed
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	limitMemory(t, cmd.Process.Pid, 256<<20)
	require.NoError(t, in.Close()) // now it begins
	err = cmd.Wait()
	for s := bufio.NewScanner(&said); s.Scan(); {
		if n, _ := fmt.Sscanf(s.Text(), "took %d rows %d", &r.peak, &r.rows); n == 2 {
			return r
		}
	}
	t.Fatalf("%s: the child said nothing and ended with %v: %s", what, err, failed.String())
	return r
}

// limitMemory puts a process into a group of its own with so much memory, the page cache included,
// if this system has such groups and lets us.
func limitMemory(t *testing.T, pid int, most int64) {
	dir := filepath.Join("/sys/fs/cgroup/memory", fmt.Sprint("ebb-test-", pid))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Logf("without a limit: %v", err)
		return
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	set := func(file string, value int64) {
		text := strconv.FormatInt(value, 10)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
	set("memory.limit_in_bytes", most)
	set("cgroup.procs", int64(pid))
}

// cutLog takes the end of the last commit away.
func cutLog(t *testing.T, path string) {
	pg, metas, err := pager.Open(pager.Options{FS: vfs.OS, Path: path, ReadOnly: true})
	require.NoError(t, err)
	meta := metas[0]
	if metas[1] != nil && metas[1].Epoch > meta.Epoch {
		meta = metas[1]
	}
	require.NoError(t, pg.Close())
	o := wal.Options{FS: vfs.OS, Path: path, StoreID: meta.StoreID, SegmentSize: meta.SegmentSize}
	found, err := wal.Scan(o)
	require.NoError(t, err)
	tail, err := found.Replay(wal.LSN(meta.LogStart), 0, func(wal.Part) error { return nil })
	require.NoError(t, err)
	size := uint64(meta.SegmentSize)
	number, off := uint64(tail.End)/size, int64(uint64(tail.End)%size)
	for _, s := range found.Segments() {
		if s.Number == number {
			require.NoError(t, os.Truncate(s.File, off-100))
		}
		if s.Number > number {
			require.NoError(t, os.Remove(s.File))
		}
	}
}

// TestMemoryChild is no test: it is what memoryChild runs.
func TestMemoryChild(t *testing.T) {
	args := strings.Split(os.Getenv(memoryEnv), ",")
	if len(args) != 3 {
		t.Skip("started by other tests")
	}
	_, _ = io.ReadAll(os.Stdin)
	rows, err := strconv.Atoi(args[2])
	require.NoError(t, err)
	m := watchMemory(t)
	end := func() {
		fmt.Printf("took %d rows %d\n", m.peak.Load(), rows)
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
		select {}
	}
	var killInCommit atomic.Bool
	db, err := kv.Open(args[0], &kv.Options{CacheBytes: memoryCache, Events: &kv.Events{
		CommitGroup: func(commits int, _ int64, _ time.Duration) {
			if commits > 0 && killInCommit.Load() {
				end()
			}
		},
	}})
	require.NoError(t, err)
	if args[1] == "open" {
		peak := m.peak.Load()
		n, err := db.Count()
		require.NoError(t, err)
		fmt.Printf("took %d rows %d\n", peak, n)
		require.NoError(t, db.Close())
		return
	}
	require.NoError(t, db.Put([]byte("a row before"), nil))
	tx := beginTx(t, db, true)
	tx.SetDurability(kv.NoSync)
	rnd, key, value := rand.New(rand.NewSource(1)), make([]byte, 16), make([]byte, 100)
	for i := range rows {
		if args[1] == "random" {
			binary.BigEndian.PutUint64(key, rnd.Uint64())
		}
		binary.BigEndian.PutUint64(key[8:], uint64(i))
		require.NoError(t, tx.Put(key, value))
	}
	switch args[1] {
	case "commit", "random":
		require.NoError(t, tx.Commit())
	case "killed in commit": // Its end is in the log, and the checkpoint that it starts has not begun.
		killInCommit.Store(true)
		require.NoError(t, tx.Commit())
	case "rollback":
		tx.Rollback()
		require.NoError(t, db.Put([]byte("after"), nil))
	}
	end()
}

// memoryWatch looks at the anonymous memory of this process again and again.
type memoryWatch struct{ peak atomic.Int64 }

func watchMemory(t *testing.T) *memoryWatch {
	f, err := os.Open("/proc/self/status")
	require.NoError(t, err)
	m, stop, done := new(memoryWatch), make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done; _ = f.Close() })
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		buf := make([]byte, 4096)
		for {
			n, _ := f.ReadAt(buf, 0)
			if _, after, ok := bytes.Cut(buf[:n], []byte("RssAnon:")); ok {
				kib, _ := strconv.ParseInt(string(bytes.Fields(after)[0]), 10, 64)
				m.peak.Store(max(m.peak.Load(), kib<<10))
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	return m
}
