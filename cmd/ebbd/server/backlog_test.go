package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestABacklogOfExpiredKeysHoldsUpNoCommand: many keys, collections among them, expire at once.
// Commands that overwrite them before the purge has come to them purge a bounded number of rows;
// each key still has one event, and no row is left over.
func TestABacklogOfExpiredKeysHoldsUpNoCommand(t *testing.T) {
	keys := 30000
	if testing.Short() {
		keys = 8000
	}
	clock := newClock()
	s := start(t, Options{Clock: clock.now, AppendFsync: "no"})
	c, sub := s.client(), s.client()
	c.line("CONFIG SET notify-keyspace-events xE")
	sub.line("SUBSCRIBE __keyevent@0__:expired")
	var sent strings.Builder
	const batch = 1000
	for i := range keys {
		key := fmt.Sprint(i)
		if i%10 == 0 {
			sent.WriteString(encode("HSET", key, "f", "v") + encode("PEXPIRE", key, fmt.Sprint(1000+i%1000)))
		} else {
			sent.WriteString(encode("PSETEX", key, fmt.Sprint(1000+i%1000), "v") + encode("PING"))
		}
		if i%batch == batch-1 {
			c.send(sent.String())
			sent.Reset()
			for range 2 * batch {
				c.receive()
			}
		}
	}
	clock.advance(time.Minute)
	longest := time.Duration(0)
	for i := keys - 1; i >= keys-200; i-- { // those that the purge comes to last
		began := time.Now()
		require.Equal(t, "OK", c.line(fmt.Sprintf("SET %d new", i)))
		longest = max(longest, time.Since(began))
	}
	t.Logf("the longest command took %v", longest)
	seen := map[string]bool{}
	for range keys {
		reply := sub.receive()
		require.False(t, seen[reply], reply)
		seen[reply] = true
	}
	require.Equal(t, "200", c.line("DBSIZE"))
	s.settle()
	dead, err := s.sweep()
	require.NoError(t, err)
	require.Zero(t, dead, "collections of overwritten keys went with them")
}
