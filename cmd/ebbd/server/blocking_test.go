package server

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// awaitBlocked waits until n commands are blocked.
func (s *testServer) awaitBlocked(n int64) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.waits.count.Load() == n }, 10*time.Second,
		time.Millisecond)
}

func TestBlockingCommandsWaitForAnElement(t *testing.T) {
	for _, c := range []struct{ blocks, push, want, rest string }{
		{"BLPOP a b 0", "RPUSH b 1 2", `["b" "1"]`, "LRANGE b 0 -1"},
		{"BRPOP a b 0", "RPUSH b 1 2", `["b" "2"]`, "LRANGE b 0 -1"},
		{"BLMOVE a z LEFT RIGHT 0", "LPUSH a 1", `"1"`, "LRANGE z 0 -1"},
		{"BRPOPLPUSH a a 0", "LPUSH a 1", `"1"`, "LRANGE a 0 -1"},
		{"BLMPOP 0 2 a b RIGHT COUNT 5", "RPUSH a 1 2", `["a" ["2" "1"]]`, "LRANGE a 0 -1"},
		{"BZPOPMIN a b 0", "ZADD b 2 x 1 y", `["b" "y" "1"]`, "ZRANGE b 0 -1"},
		{"BZPOPMAX a b 0", "ZADD b 2 x 1 y", `["b" "x" "2"]`, "ZRANGE b 0 -1"},
		{"BZMPOP 0 1 a MAX COUNT 9", "ZADD a 2 x 1 y", `["a" [["x" "2"] ["y" "1"]]]`, "ZRANGE a 0 -1"},
	} {
		t.Run(c.blocks, func(t *testing.T) {
			s := start(t, Options{})
			blocked, other := s.client(), s.client()
			blocked.send(encode(words(c.blocks)...) + encode("PING"))
			s.awaitBlocked(1)
			require.Eventually(t, func() bool {
				return strings.Contains(other.line("CLIENT LIST"),
					"flags=b")
			},
				10*time.Second, time.Millisecond)
			require.Equal(t, "OK", other.line("SET a string"))
			require.Equal(t, "1", other.line("DEL a"))
			require.EqualValues(t, 1, s.waits.count.Load())
			require.NotContains(t, other.line(c.push), "error")
			require.Equal(t, c.want, blocked.receive())
			require.Equal(t, "PONG", blocked.receive())
			require.EqualValues(t, 0, s.waits.count.Load())
			require.NotContains(t, other.line(c.rest), "error")
			// With an element, and within MULTI, they do not wait.
			other.line(c.push)
			require.Equal(t, "OK", other.line("MULTI"))
			other.line(c.blocks)
			other.line("DEL a b")
			other.line(c.blocks)
			require.Regexp(t, `^\[.+ [012] nil]$`, other.line("EXEC"))
		})
	}
}

func TestBlockedCommandsTimeOutAndAreUnblocked(t *testing.T) {
	s := start(t, Options{})
	c, other := s.client(), s.client()
	for line, want := range map[string]string{
		"BLPOP k 0.01": "nil", "BLMOVE k j LEFT LEFT 0.01": "nil", "BZPOPMIN k 0.01": "nil",
		"BLPOP k x":  "(error) ERR timeout is not a float or out of range",
		"BLPOP k -1": "(error) ERR timeout is negative",
	} {
		require.Equal(t, want, c.line(line), line)
	}
	id := c.line("CLIENT ID")
	require.Equal(t, "0", other.line("CLIENT UNBLOCK "+id))
	for how, want := range map[string]string{
		"": "nil", " TIMEOUT": "nil",
		" ERROR": "(error) UNBLOCKED client unblocked via CLIENT UNBLOCK",
	} {
		c.send(encode("BRPOP", "k", "0"))
		s.awaitBlocked(1)
		require.Eventually(t, func() bool { return other.line("CLIENT UNBLOCK "+id+how) == "1" },
			10*time.Second, time.Millisecond)
		require.Equal(t, want, c.receive())
	}
	require.Equal(t, "OK", other.line("SET s v"))
	require.Equal(t, "(error) "+string(errWrongType), c.line("BLPOP s 0"))
}

// TestBlockedClientsAreServedInTheirOrder: the first one that waits gets the first element, also
// when one turn brings elements for all of them, and when the pops push in turn.
func TestBlockedClientsAreServedInTheirOrder(t *testing.T) {
	s := start(t, Options{})
	other := s.client()
	var waiting []*client
	for i := range 5 {
		c := s.client()
		c.send(encode("BLPOP", "k", "0"))
		s.awaitBlocked(int64(i + 1))
		waiting = append(waiting, c)
	}
	chain := s.client()
	chain.send(encode("BLMOVE", "source", "k", "LEFT", "RIGHT", "0"))
	s.awaitBlocked(6)
	require.Equal(t, "OK", other.line("MULTI"))
	other.line("RPUSH k 0 1 2 3")
	other.line("LLEN k")
	other.line("RPUSH source 4")
	require.Equal(t, "[4 4 1]", other.line("EXEC"))
	for i, c := range waiting {
		require.Equal(t, fmt.Sprintf(`["k" "%d"]`, i), c.receive())
	}
	require.Equal(t, `"4"`, chain.receive())
	require.Equal(t, "0", other.line("EXISTS k source"))
}

// TestAClientThatGoesAwayTakesNoElement: neither one that hangs up nor one that is killed.
func TestAClientThatGoesAwayTakesNoElement(t *testing.T) {
	s := start(t, Options{})
	other := s.client()
	for _, end := range []func(c *client, id string){
		func(c *client, _ string) { require.NoError(t, c.nc.Close()) },
		func(_ *client, id string) { require.Equal(t, "1", other.line("CLIENT KILL ID "+id)) },
	} {
		c := s.client()
		id := c.line("CLIENT ID")
		c.send(encode("BLPOP", "k", "0"))
		s.awaitBlocked(1)
		end(c, id)
		s.awaitBlocked(0)
		require.Equal(t, "1", other.line("RPUSH k v"))
		require.Equal(t, `"v"`, other.line("LPOP k"))
	}
}

// TestQueueOfManyClients: each element that some clients push reaches exactly one of others.
func TestQueueOfManyClients(t *testing.T) {
	s := start(t, Options{AppendFsync: "no"})
	const producers, consumers, each = 4, 8, 50
	got := make(chan string, producers*each)
	var done sync.WaitGroup
	for range consumers {
		c := s.client()
		done.Go(func() {
			for {
				reply := c.line("BLPOP queue 0")
				if strings.Contains(reply, "end") {
					return
				}
				got <- reply
			}
		})
	}
	var pushed sync.WaitGroup
	for p := range producers {
		c := s.client()
		pushed.Go(func() {
			for i := range each {
				c.line(fmt.Sprintf("RPUSH queue %d-%d", p, i))
			}
		})
	}
	pushed.Wait()
	for range consumers {
		s.client().line("RPUSH queue end")
	}
	done.Wait()
	close(got)
	seen := map[string]bool{}
	for reply := range got {
		require.False(t, seen[reply], reply)
		seen[reply] = true
	}
	require.Len(t, seen, producers*each)
}
