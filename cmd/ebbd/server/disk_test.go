package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/kv"
)

// onDisk has the store of a server on a simulated disk.
func onDisk(disk *crashfs.Disk) Options {
	return Options{Dir: "dir", openStore: func(path string, o *kv.Options) (*kv.DB, error) {
		return openfs.OpenTuned(disk, path, o, openfs.Tuning{})
	}}
}

// TestALostDiskEndsWritesAndNoReads: a disk fails while the server runs. The write that meets the
// failure and all later ones are refused, reads go on; a start on a disk that fails ends with the
// error; a start on the disk that is back has every acknowledged write.
func TestALostDiskEndsWritesAndNoReads(t *testing.T) {
	for _, kind := range []crashfs.Kind{crashfs.KindWrite | crashfs.KindDirect, crashfs.KindSyncs} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			disk := crashfs.New(crashfs.Options{})
			o := onDisk(disk)
			s, err := Open(o)
			require.NoError(t, err)
			c := serve(t, s).client()
			require.Equal(t, "OK", c.line("SET a 1"))
			lost := disk.Inject(crashfs.Fault{Kinds: kind, Sticky: true})
			require.Contains(t, c.line("SET b 1"), "MISCONF")
			require.Contains(t, c.line("DEL a"), "MISCONF an earlier write to the disk failed")
			require.Equal(t, `"1"`, c.line("GET a"))
			require.Contains(t, c.line("INFO persistence"), "aof_last_write_status:err")
			require.ErrorContains(t, s.Shutdown(context.Background()), "input/output error")

			lost.Disarm()
			failing := disk.Inject(crashfs.Fault{Kinds: crashfs.KindRead, Sticky: true})
			_, err = Open(o)
			require.ErrorContains(t, err, "open dir/ebbd.ebb")
			require.ErrorContains(t, err, "input/output error")
			failing.Disarm()
			s, err = Open(o)
			require.NoError(t, err)
			c = serve(t, s).client()
			require.Equal(t, `"1"`, c.line("GET a"))
			require.Equal(t, "OK", c.line("SET b 2"))
			require.NoError(t, s.Shutdown(context.Background()))
		})
	}
}

// TestOneWriteWithoutSpaceFailsNoOther: a command that needs more than the disk has was part of a turn
// with others, and the commit failed for all of them, deletes included.
func TestOneWriteWithoutSpaceFailsNoOther(t *testing.T) {
	s := start(t, Options{MaxBytes: 8 << 20})
	clients := []*client{s.client(), s.client(), s.client()}
	require.Equal(t, "OK", clients[0].line("SET a 1"))
	s.together(clients, []string{"SET", "small", "1"},
		[]string{"SET", "large", string(make([]byte, 12<<20))}, []string{"DEL", "a"})
	require.Equal(t, "OK", clients[0].receive())
	require.Contains(t, clients[1].receive(), "OOM")
	require.Equal(t, "1", clients[2].receive())
	require.Equal(t, `["small"]`, clients[0].line("KEYS *"))
}

// TestOneWriteWithoutSpaceFailsNoOtherOfItsPipeline: a pipeline got OOM for each of its commands, reads
// included, and redis-cli --pipe waited for the reply to its last one, an ECHO. The log had a line for
// each turn without space, and one for each that succeeded in between.
func TestOneWriteWithoutSpaceFailsNoOtherOfItsPipeline(t *testing.T) {
	var logged bytes.Buffer // written by the executor, read when it has ended
	opened, err := Open(Options{
		Dir: t.TempDir(), MaxBytes: 2 << 20, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	require.NoError(t, err)
	s := serve(t, opened)
	t.Cleanup(s.shutdown)
	c := s.client()
	require.Equal(t, "OK", c.line("SET a 1"))
	large := strings.Repeat("x", 300<<10)
	for i := 0; c.do("SET", fmt.Sprint(i), large) == "OK"; i++ {
		require.Less(t, i, 10)
	}
	large += large
	pipeline := func(commands ...[2]string) {
		t.Helper()
		var b strings.Builder
		for _, command := range commands {
			b.WriteString(encode(words(command[0])...))
		}
		c.send(b.String())
		for _, command := range commands {
			name, _, _ := strings.Cut(command[0], " ")
			require.Contains(t, c.receive(), command[1], name)
		}
	}
	pipeline([2]string{"SET b 1", "OK"}, [2]string{"SET large " + large, "OOM"}, [2]string{"DEL a", "1"},
		[2]string{"ECHO x", `"x"`}, [2]string{"GET b", `"1"`}, [2]string{"MULTI", "OK"},
		[2]string{"SET c 1", "QUEUED"}, [2]string{"APPEND c " + large, "QUEUED"}, [2]string{"EXEC", "OOM"},
		[2]string{"EXISTS a c", "0"}, [2]string{"RPUSH l 1", "1"}, [2]string{"BLPOP l 0", `["l" "1"]`},
		[2]string{"SET large " + large, "OOM"}, [2]string{"DEL b", "1"})
	other := s.client()
	c.send(encode("SET", "large", large) + encode("RPUSH", "l", "2") + encode("BLPOP", "m", "0") +
		encode("SET", "large", large) + encode("DEL", "l") + encode("QUIT"))
	require.Contains(t, c.receive(), "OOM")
	require.Equal(t, "1", c.receive())
	require.Equal(t, "1", other.line("RPUSH m 3"))
	require.Equal(t, `["m" "3"]`, c.receive())
	require.Contains(t, c.receive(), "OOM")
	require.Equal(t, "1", c.receive())
	require.Equal(t, "OK", c.receive())
	_, err = c.read()
	require.ErrorIs(t, err, io.EOF)
	answer := httptest.NewRecorder()
	s.Metrics().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	require.Contains(t, answer.Body.String(), "\nebbd_store_max_bytes 2.097152e+06\n")
	require.NotContains(t, answer.Body.String(), "ebbd_turns_without_space_total 0\n")
	s.check()
	s.shutdown()
	require.Equal(t, 1, strings.Count(logged.String(), "writes that need space are refused"), logged.String())
	require.NotContains(t, logged.String(), "turn failed")
}

// TestPipelineIntoAFullStoreTriesFewCommands: a pipeline of 60,000 SETs into a full store ran for 11 s,
// since each half of its commands that found no space was halved again, and each command then tried
// alone. What fits is stored all the same, at the end of the pipeline, too.
func TestPipelineIntoAFullStoreTriesFewCommands(t *testing.T) {
	s := start(t, Options{MaxBytes: 3 << 20})
	c := s.client()
	require.Equal(t, "OK", c.line("CONFIG SET appendfsync no"))
	require.Equal(t, "0", c.line("INCRBY n 0"))
	n := 0
	for _, size := range []int{2000, 2000, 2000, 100, 100, 100} { // again after a checkpoint
		for ; c.do("SET", fmt.Sprint("key", n), strings.Repeat("x", size)) == "OK"; n++ {
			require.Less(t, n, 2000)
		}
	}
	value := strings.Repeat("x", 110)
	turns := s.stats.turns.Load()
	pipeline := encode("INCR", "n")
	for i := range 50 {
		pipeline += encode("SET", fmt.Sprint("new", i), value)
	}
	for i := range 150 {
		pipeline += encode("DEL", fmt.Sprint("key", i))
	}
	c.send(pipeline + encode("MULTI") + encode("SET", "in exec", value) + encode("EXEC") +
		encode("SET", "last", "small"))
	require.Equal(t, "1", c.receive())
	refused := 0
	for range 50 {
		if c.receive() != "OK" { // a checkpoint may have freed a page
			refused++
		}
	}
	require.Greater(t, refused, 25)
	for range 150 {
		require.Equal(t, "1", c.receive())
	}
	require.Equal(t, "OK", c.receive())
	require.Equal(t, "QUEUED", c.receive())
	require.Equal(t, "[OK]", c.receive())
	require.Equal(t, "OK", c.receive())
	require.Less(t, s.stats.turns.Load()-turns, int64(30)) // in one unit or two
	require.Equal(t, `"3145728"`, strings.Fields(strings.Trim(c.line("CONFIG GET maxmemory"), "[]"))[1])
	require.Contains(t, c.line("INFO memory"), "maxmemory:3145728")
}
