package server

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

func TestWatchFailsExecAfterAChange(t *testing.T) {
	for _, c := range []struct {
		change string
		fails  bool
	}{
		{"GET k", false}, {"SET other v", false}, {"SET k v", true}, {"DEL k", true}, {"EXPIRE k 100", true},
		{"APPEND k x", true}, {"PERSIST k", false}, {"SET k v NX", false}, {"RENAME k j",
			true}, {"RENAME o k", true},
		{"FLUSHDB", true}, {"FLUSHALL", true}, {"SWAPDB 0 1", true}, {"SWAPDB 2 3",
			false}, {"DEL absent", false},
		{"COPY o k REPLACE", true}, {"MOVE k 1", true}, {"GETEX k", false}, {"GETEX k EX 5",
			true}, {"GETDEL k", true},
		{"MSET k v other v", true}, {"INCR k", false}, {"HSET h f 2", true}, {"HDEL h nosuch",
			false}, {"HDEL h f", true},
		{"HEXPIRE h 5 FIELDS 1 f", true}, {"HEXPIRE h 5 FIELDS 1 nosuch", false},
	} {
		t.Run(c.change, func(t *testing.T) {
			s := start(t, Options{})
			a, b := s.client(), s.client()
			a.line("SET k v")
			a.line("SET o v")
			a.line("HSET h f 1")
			require.Equal(t, "OK", a.line("WATCH k h absent"))
			b.line(c.change)
			a.line("MULTI")
			a.line("PING")
			want := "[PONG]"
			if c.fails {
				want = "nil"
			}
			require.Equal(t, want, a.line("EXEC"))
			// EXEC ends the watch.
			a.line("SET k v")
			a.line("MULTI")
			require.Equal(t, "[]", a.line("EXEC"))
		})
	}
}

func TestWatchSeesTheExpiryOfKeysAndFields(t *testing.T) {
	clock := newClock()
	s := start(t, Options{Clock: clock.now})
	c := s.client()
	for _, key := range []string{"s", "h"} {
		steps(t, c, clock, [][2]string{
			{"SET s v PX 1000", "OK"}, {"HSETEX h PX 1000 FIELDS 1 f v", "1"}, {"HSET h g v", "1"},
			{"WATCH " + key, "OK"}, {"MULTI", "OK"}, {"+", "999ms"}, {"EXEC", "[]"},
			{"WATCH " + key, "OK"}, {"MULTI", "OK"}, {"+", "1ms"}, {"EXEC", "nil"},
			{"WATCH " + key, "OK"}, {"MULTI", "OK"}, {"+", "1s"}, {"EXEC", "[]"},
			{"FLUSHALL", "OK"},
		}...)
	}
}

func TestErrorsWithinMulti(t *testing.T) {
	c := start(t, Options{}).client()
	for _, l := range [][2]string{
		{"SET s text", "OK"},
		{"EXEC", "(error) ERR EXEC without MULTI"}, {"DISCARD", "(error) ERR DISCARD without MULTI"},
		{"MULTI", "OK"}, {"MULTI", "(error) ERR MULTI calls can not be nested"}, {"SET a 1", "QUEUED"},
		{"INCR s", "QUEUED"}, {"HSET a f v", "QUEUED"}, {"SET b 2", "QUEUED"},
		{"EXEC", "[OK (error) ERR value is not an integer or out of range " +
			"(error) WRONGTYPE Operation against a key holding the wrong kind of value OK]"},
		{"MGET a b", `["1" "2"]`},
		{"MULTI", "OK"}, {"NOSUCH", "(error) ERR unknown command 'NOSUCH', with args beginning with: "},
		{"SET a 3", "QUEUED"}, {"EXEC",
			"(error) EXECABORT Transaction discarded because of previous errors."},
		{"GET a", `"1"`}, {"MULTI", "OK"}, {"SET a 4", "QUEUED"}, {"DISCARD", "OK"}, {"GET a", `"1"`},
		{"MULTI", "OK"}, {"SELECT 1", "QUEUED"}, {"SET x 1", "QUEUED"}, {"EXEC", "[OK OK]"}, {"GET x", `"1"`},
		{"SELECT 0", "OK"}, {"GET x", "nil"},
	} {
		require.Equal(t, l[1], c.line(l[0]), l[0])
	}
}

// TestOptimisticCountersLoseNoIncrement: WATCH, GET, SET by many connections at once.
func TestOptimisticCountersLoseNoIncrement(t *testing.T) {
	s := start(t, Options{AppendFsync: "no"})
	const clients, each = 8, 50
	var done sync.WaitGroup
	for range clients {
		c := s.client()
		done.Go(func() {
			for n := 0; n < each; {
				c.line("WATCH n")
				old := 0
				if reply := c.line("GET n"); reply != "nil" {
					_, err := fmt.Sscanf(reply, `"%d"`, &old)
					require.NoError(t, err)
				}
				c.line("MULTI")
				c.line(fmt.Sprintf("SET n %d", old+1))
				if c.line("EXEC") != "nil" {
					n++
				}
			}
		})
	}
	done.Wait()
	require.Equal(t, fmt.Sprintf("%q", fmt.Sprint(clients*each)), s.client().line("GET n"))
}

// TestTransactionIsSeenWholeOrNotAtAll by reads beside it.
func TestTransactionIsSeenWholeOrNotAtAll(t *testing.T) {
	s := start(t, Options{AppendFsync: "no"})
	writer, reader := s.client(), s.client()
	writer.line("MSET a 0 b 0")
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		defer close(stop)
		for range 300 {
			writer.send(
				encode("MULTI") + encode("INCR", "a") + encode("INCR", "b") + encode("EXEC"),
			)
			for range 4 {
				writer.receive()
			}
		}
	})
	for running := true; running; {
		select {
		case <-stop:
			running = false
		default:
		}
		var a, b int
		_, err := fmt.Sscanf(reader.line("MGET a b"), `["%d" "%d"]`, &a, &b)
		require.NoError(t, err)
		require.Equal(t, a, b)
	}
	done.Wait()
}

// TestATurnRunsAgainAfterACommandThatFailsHalfway: turns have no savepoints, so one is run a second
// time when a command fails after its first write. Its connections find the same state as before.
func TestATurnRunsAgainAfterACommandThatFailsHalfway(t *testing.T) {
	s := start(t, Options{})
	c, other := s.client(), s.client()
	other.line("WATCH y")
	long := strings.Repeat("f", 5000)
	var sent strings.Builder
	for _, line := range []string{
		"SET a 1", "WATCH w", "MULTI", "INCR a", "HSET h f v " + long + " v", "INCR a", "EXEC",
		"HSET h g v " + long + " v", "SELECT 1", "SET b 2", "MULTI", "INCR b", "EXISTS h",
	} {
		sent.WriteString(encode(words(line)...))
	}
	c.send(sent.String())
	tooLong := s.errorText(kv.ErrKeyTooLarge)
	for _, want := range []string{
		"OK", "OK", "OK", "QUEUED", "QUEUED", "QUEUED", "[2 (error) " + tooLong + " 3]",
		"(error) " + tooLong, "OK", "OK", "OK", "QUEUED", "QUEUED",
	} {
		require.Equal(t, want, c.receive())
	}
	require.Equal(t, "[3 0]", c.line("EXEC"))
	require.Equal(t, `"3"`, other.line("GET a"))
	require.Equal(t, "0", other.line("EXISTS h"))
	other.line("MULTI")
	require.Equal(t, "[]", other.line("EXEC"))
}

// TestSaveBehindAWriteInAPipeline: SAVE waits for the writer, and would wait for ever in a turn. With
// a command behind it that needs a turn again, and with one that fails.
func TestSaveBehindAWriteInAPipeline(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := start(t, Options{BackupDir: dir})
		c := s.client()
		c.send(encode("SET", "a", "1") + encode("SAVE") + encode("INCR", "a") + encode("DEBUG", "SLEEP",
			"0") +
			encode("BGSAVE") + encode("LPUSH", "a", "x") + encode("GET", "a") + encode("EBB.BACKUP"))
		for _, want := range []string{"OK", "OK", "2", "OK", "Background saving started", "", `"2"`} {
			if got := c.receive(); want != "" {
				require.Equal(t, want, got)
			}
		}
		for c.receive() != `""` { // of the backup: an empty string ends it
		}
		require.Equal(t, "PONG", c.line("PING"))
	}
}

// TestATurnThatRunsAgainKeepsWhatItHasNotReached: a command failed half-way, and the connections behind
// it in the turn became what they had been at the start of their last turn: in another database,
// without their password.
func TestATurnThatRunsAgainKeepsWhatItHasNotReached(t *testing.T) {
	s := start(t, Options{Password: "secret"})
	fails, behind := s.client(), s.client()
	for _, c := range []*client{fails, behind} {
		require.Equal(t, "OK", c.line("AUTH secret"))
	}
	require.Equal(t, "OK", behind.line("SET k 0"))
	require.Equal(t, "OK", behind.line("SELECT 3"))
	s.together([]*client{fails, behind},
		[]string{"HSET", "h", "f", "v", strings.Repeat("x", 5000), "v"}, []string{"SET", "k", "3"})
	require.Contains(t, fails.receive(), "longer than this store allows")
	require.Equal(t, "OK", behind.receive())
	require.Equal(t, `"3"`, behind.line("GET k"))
	require.Equal(t, "OK", behind.line("SELECT 0"))
	require.Equal(t, `"0"`, behind.line("GET k"))
}
