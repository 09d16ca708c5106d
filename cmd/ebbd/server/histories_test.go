package server

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// historyOp is a command, or a MULTI of some, that a client has sent.
type historyOp struct{ lines []string }

// counters are the keys of the histories: few, so that clients meet. "": absent.
type counters map[string]int

// apply runs a command on the model and returns the reply.
func (c counters) apply(line string) string {
	w := strings.Fields(line)
	switch w[0] {
	case "INCR":
		c[w[1]]++
		return fmt.Sprint(c[w[1]])
	case "SET":
		n := 0
		fmt.Sscan(w[2], &n)
		c[w[1]] = n
		return "OK"
	case "GETDEL", "GET":
		n, ok := c[w[1]]
		if w[0] == "GETDEL" {
			delete(c, w[1])
		}
		if !ok {
			return "nil"
		}
		return fmt.Sprintf("%q", fmt.Sprint(n))
	}
	var parts []string // MGET
	for _, key := range w[1:] {
		parts = append(parts, c.apply("GET "+key))
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// linear is the model of the checker: each operation happens at one moment between the sending and
// the reply.
var linear = porcupine.Model{
	Init: func() any { return counters{} },
	Step: func(state, input, output any) (bool, any) {
		next := maps.Clone(state.(counters))
		var replies []string
		for _, line := range input.(historyOp).lines {
			replies = append(replies, next.apply(line))
		}
		want := replies[0]
		if len(replies) > 1 {
			want = "[" + strings.Join(replies, " ") + "]"
		}
		return want == output.(string), next
	},
	Equal: func(a, b any) bool { return maps.Equal(a.(counters), b.(counters)) },
}

func randomOp(r *rand.Rand, value int) historyOp {
	one := func() string {
		key := string(rune('a' + r.IntN(3)))
		switch r.IntN(6) {
		case 0:
			return fmt.Sprintf("SET %s %d", key, value)
		case 1:
			return "GETDEL " + key
		case 2:
			return "GET " + key
		case 3:
			return "MGET a b c"
		}
		return "INCR " + key
	}
	if r.IntN(3) > 0 {
		return historyOp{[]string{one()}}
	}
	return historyOp{[]string{one(), one(), one()}}
}

// TestHistoriesOfClientsAreLinear: what clients see through their sockets, single commands and
// MULTI, agrees with an order of all operations that agrees with time.
func TestHistoriesOfClientsAreLinear(t *testing.T) {
	rounds, clients, each := 20, 6, 40
	if testing.Short() {
		rounds = 4
	}
	s := start(t, Options{AppendFsync: "no"})
	for round := range rounds {
		require.Equal(t, "OK", s.client().line("FLUSHALL"))
		var mu sync.Mutex
		var ops []porcupine.Operation
		var clock atomic.Int64
		var done sync.WaitGroup
		for id := range clients {
			c := s.client()
			r := rand.New(rand.NewPCG(uint64(round), uint64(id)))
			done.Go(func() {
				for i := range each {
					op := randomOp(r, 1000*(id+1)+i)
					call := clock.Add(1)
					reply := c.runOp(op)
					end := clock.Add(1)
					mu.Lock()
					ops = append(ops, porcupine.Operation{ClientId: id, Input: op, Call: call,
						Output: reply, Return: end})
					mu.Unlock()
				}
			})
		}
		done.Wait()
		result := porcupine.CheckOperationsTimeout(linear, ops, time.Minute)
		require.Equal(t, porcupine.CheckResult(porcupine.Ok), result, "round %d", round)
	}
}

// runOp sends one command, or all in one MULTI, and returns the reply.
func (c *client) runOp(op historyOp) string {
	if len(op.lines) == 1 {
		return c.line(op.lines[0])
	}
	sent := encode("MULTI")
	for _, line := range op.lines {
		sent += encode(words(line)...)
	}
	c.send(sent + encode("EXEC"))
	for range len(op.lines) + 1 {
		c.receive()
	}
	return c.receive()
}
