package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// residentBytes is the resident memory of a process; ok false: this system does not say.
func residentBytes(pid int) (n int64, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, false
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	return pages * int64(os.Getpagesize()), err == nil
}

// TestTenThousandConnections: all of them write and read, one more is refused, and each takes a
// bounded part of memory.
func TestTenThousandConnections(t *testing.T) {
	clients := 10000
	if testing.Short() {
		clients = 500
	}
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Cur < uint64(clients+500) {
		t.Skipf("%d open files are allowed, the test needs %d", limit.Cur, clients+500)
	}
	p := startProcess(t, "--dir", t.TempDir(), "--maxclients", strconv.Itoa(clients))
	before, measured := residentBytes(p.cmd.Process.Pid)
	conns := make([]net.Conn, clients)
	var opened sync.WaitGroup
	for worker := range 8 {
		opened.Go(func() {
			for i := worker; i < clients; i += 8 {
				nc, err := net.DialTimeout("tcp", p.addr, 30*time.Second)
				if err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
				conns[i] = nc
			}
		})
	}
	opened.Wait()
	require.False(t, t.Failed())
	t.Cleanup(func() {
		for _, nc := range conns {
			_ = nc.Close()
		}
	})
	for round := range 2 {
		for i, nc := range conns {
			require.NoError(t, nc.SetDeadline(time.Now().Add(60*time.Second)))
			_, err := fmt.Fprintf(nc, "INCR n%d\r\nGET n%d\r\n", i, i)
			require.NoError(t, err)
		}
		want := fmt.Sprintf(":%d\r\n$1\r\n%d\r\n", round+1, round+1)
		got := make([]byte, len(want))
		for i, nc := range conns {
			_, err := io.ReadFull(nc, got)
			require.NoError(t, err)
			require.Equal(t, want, string(got), "client %d", i)
		}
	}
	if after, _ := residentBytes(p.cmd.Process.Pid); measured {
		t.Logf("%d bytes of memory for each connection", (after-before)/int64(clients))
		require.Less(t, after-before, int64(clients)*64<<10+64<<20)
	}
	extra, err := net.Dial("tcp", p.addr)
	require.NoError(t, err)
	defer extra.Close()
	reply, err := io.ReadAll(extra)
	require.NoError(t, err)
	require.Equal(t, "-ERR max number of clients reached\r\n", string(reply))
}

// TestSlowReadersDoNotHoldUpOthers: clients that ask for much and read nothing are disconnected at
// the bound of their replies, with bounded memory, while others are answered.
func TestSlowReadersDoNotHoldUpOthers(t *testing.T) {
	p := startProcess(t, "--dir", t.TempDir(), "--max-replies", "8MiB")
	c := p.dial(t)
	_, err := c.Do("SET", "large", strings.Repeat("x", 1<<20))
	require.NoError(t, err)
	before, measured := residentBytes(p.cmd.Process.Pid)
	for range 20 {
		nc, err := net.Dial("tcp", p.addr)
		require.NoError(t, err)
		defer nc.Close()
		_, err = io.WriteString(nc, strings.Repeat("GET large\r\n", 64)+"MULTI\r\n"+
			strings.Repeat("GET large\r\n", 64)+"EXEC\r\n")
		require.NoError(t, err)
	}
	for range 200 {
		began := time.Now()
		_, err := c.Do("INCR", "n")
		require.NoError(t, err)
		require.Less(t, time.Since(began), 5*time.Second)
	}
	if after, _ := residentBytes(p.cmd.Process.Pid); measured {
		require.Less(t, after-before, int64(600<<20))
	}
}
