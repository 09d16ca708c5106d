package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSubscribersGetMessages(t *testing.T) {
	s := start(t, Options{})
	sub, pub := s.client(), s.client()
	require.Equal(t, `["subscribe" "a" 1]`, sub.line("SUBSCRIBE a"))
	require.Equal(t, `["psubscribe" "a*" 2]`, sub.line("PSUBSCRIBE a*"))
	require.Equal(t, `["ssubscribe" "a" 1]`, sub.line("SSUBSCRIBE a"))
	require.Equal(t, `["a"]`, pub.line("PUBSUB CHANNELS"))
	require.Equal(t, `["a" 1 "b" 0]`, pub.line("PUBSUB NUMSUB a b"))
	require.Equal(t, "1", pub.line("PUBSUB NUMPAT"))
	require.Equal(t, `["a"]`, pub.line("PUBSUB SHARDCHANNELS"))
	for line, want := range map[string]string{
		"PUBLISH a 1": "2", "PUBLISH ab 2": "1", "PUBLISH b 3": "0", "SPUBLISH a 4": "1",
	} {
		require.Equal(t, want, pub.line(line), line)
		switch line {
		case "PUBLISH a 1":
			require.Equal(t, `["message" "a" "1"]`, sub.receive())
			require.Equal(t, `["pmessage" "a*" "a" "1"]`, sub.receive())
		case "PUBLISH ab 2":
			require.Equal(t, `["pmessage" "a*" "ab" "2"]`, sub.receive())
		case "SPUBLISH a 4":
			require.Equal(t, `["smessage" "a" "4"]`, sub.receive())
		}
	}
	require.Contains(t, sub.line("GET k"), "Can't execute 'get'")
	require.Equal(t, `["pong" ""]`, sub.line("PING"))
	require.Equal(t, `["unsubscribe" "a" 1]`, sub.line("UNSUBSCRIBE"))
	require.Equal(t, `["unsubscribe" nil 1]`, sub.line("UNSUBSCRIBE"))
	require.Equal(t, `["punsubscribe" "a*" 0]`, sub.line("PUNSUBSCRIBE a*"))
	require.Equal(t, "RESET", sub.line("RESET"))
	require.Equal(t, "0", pub.line("SPUBLISH a x"))
	require.Equal(t, "nil", sub.line("GET k"))
}

func TestSubscribersOfVersion3RunOtherCommands(t *testing.T) {
	s := start(t, Options{})
	c := s.client()
	c.line("HELLO 3")
	require.Equal(t, `["subscribe" "a" 1]`, c.line("SUBSCRIBE a"))
	require.Equal(t, "OK", c.line("SET k v"))
	c.send(encode("BLPOP", "q", "0")) // messages come while it waits
	s.awaitBlocked(1)
	require.Equal(t, "1", s.client().line("PUBLISH a 1"))
	require.Equal(t, `["message" "a" "1"]`, c.receive())
	s.client().line("RPUSH q x")
	require.Equal(t, `["q" "x"]`, c.receive())
}

// TestMessagesOfATurnFollowItsCommit: those of a MULTI that is rolled back by a failed EXEC are not
// sent, the others in their order.
func TestMessagesOfATurnFollowItsCommit(t *testing.T) {
	s := start(t, Options{})
	sub, pub := s.client(), s.client()
	sub.line("SUBSCRIBE a")
	pub.line("WATCH k")
	pub.line("MULTI")
	pub.line("PUBLISH a lost")
	s.client().line("SET k v")
	require.Equal(t, "nil", pub.line("EXEC"))
	var sent strings.Builder
	for i := range 50 {
		sent.WriteString(encode("SET", "k", "v") + encode("PUBLISH", "a", fmt.Sprint(i)))
	}
	pub.send(sent.String())
	for i := range 50 {
		require.Equal(t, fmt.Sprintf(`["message" "a" "%d"]`, i), sub.receive())
	}
}

// TestASlowSubscriberIsDisconnected: its messages wait up to a bound, and publishers never wait.
func TestASlowSubscriberIsDisconnected(t *testing.T) {
	s := start(t, Options{})
	sub, pub := s.client(), s.client()
	sub.line("SUBSCRIBE a")
	text := strings.Repeat("x", 1<<20)
	sent := 0
	for ; sent < 400 && pub.do("PUBLISH", "a", text) != "0"; sent++ {
		continue
	}
	require.Less(t, sent, 400)
	require.Equal(t, "PONG", pub.line("PING"))
}

func TestKeyspaceEvents(t *testing.T) {
	clock := newClock()
	s := start(t, Options{Clock: clock.now})
	c, sub := s.client(), s.client()
	require.Contains(t, c.line("CONFIG SET notify-keyspace-events Am"), "Invalid event class")
	require.Equal(t, "OK", c.line("CONFIG SET notify-keyspace-events g$lshzxetdKE"))
	require.Equal(t, `["notify-keyspace-events" "AKE"]`, c.line("CONFIG GET notify*"))
	require.Equal(t, "OK", c.line("CONFIG SET notify-keyspace-events AE"))
	sub.line("PSUBSCRIBE __key*__:*")
	require.NoError(t, sub.nc.SetDeadline(time.Now().Add(5*time.Second)))
	for _, step := range []struct{ line, events string }{
		{"SET s v", "set:s"}, {"SET s v NX", ""}, {"SETEX s 100 v", "set:s expire:s"}, {"INCR n", "incrby:n"},
		{"GETDEL n", "del:n"}, {"APPEND s x", "append:s"}, {"PERSIST s", "persist:s"}, {"EXPIRE s 100",
			"expire:s"},
		{"RENAME s t", "rename_from:s rename_to:t"}, {"COPY t u", "copy_to:u"}, {"DEL t u x", "del:t del:u"},
		{"RPUSH l 1 2 3", "rpush:l"}, {"LPOP l", "lpop:l"}, {"LMOVE l m LEFT RIGHT", "lpop:l rpush:m"},
		{"RPOP l", "rpop:l del:l"}, {"SADD s a", "sadd:s"}, {"SADD s a", ""}, {"SMOVE s o a",
			"srem:s sadd:o del:s"},
		{"ZADD z 1 a", "zadd:z"}, {"ZPOPMIN z", "zpopmin:z del:z"}, {"HSET h f v", "hset:h"},
		{"HEXPIRE h 1 FIELDS 1 f", "hexpire:h"}, {"HDEL h f", "hdel:h del:h"}, {"EXPIRE o -1", "del:o"},
		{"SUNIONSTORE m nosuch", "del:m"}, {"GET nosuch", ""}, {"MSET a 1 b 2", "set:a set:b"},
		{"PEXPIRE b 200", "expire:b"}, {"PEXPIRE a 100", "expire:a"},
	} {
		require.NotContains(t, c.line(step.line), "(error)", step.line)
		for _, event := range strings.Fields(step.events) {
			name, key, _ := strings.Cut(event, ":")
			want := fmt.Sprintf(`["pmessage" "__key*__:*" "__keyevent@0__:%s" "%s"]`, name, key)
			reply, err := sub.read()
			require.NoError(t, err, step.line)
			require.Equal(t, want, reply, step.line)
		}
	}
	clock.advance(time.Second)
	for _, key := range []string{"a", "b"} {
		require.Equal(t, fmt.Sprintf(`["pmessage" "__key*__:*" "__keyevent@0__:expired" "%s"]`, key),
			sub.receive())
	}
	require.Equal(t, "OK", c.line("CONFIG SET notify-keyspace-events K$"))
	c.line("SELECT 3")
	c.line("SET s v")
	require.Equal(t, `["pmessage" "__key*__:*" "__keyspace@3__:s" "set"]`, sub.receive())
}

// TestEachExpiryHasOneEvent: purges report 3000 keys in the order of their expiry, each once, while
// commands overwrite and look for some of them.
func TestEachExpiryHasOneEvent(t *testing.T) {
	const keys = 3000
	clock := newClock()
	s := start(t, Options{Clock: clock.now, AppendFsync: "no"})
	c, sub := s.client(), s.client()
	c.line("CONFIG SET notify-keyspace-events xE")
	sub.line("SUBSCRIBE __keyevent@0__:expired")
	var sent strings.Builder
	for i := range keys {
		sent.WriteString(encode("SET", fmt.Sprint(i), "v", "PX", fmt.Sprint(1000+i)))
	}
	c.send(sent.String())
	for range keys {
		require.Equal(t, "OK", c.receive())
	}
	clock.advance(10 * time.Second)
	c.send(encode("SET", "2500", "new") + encode("GET", "2600") + encode("HSET", "2700", "f", "v"))
	seen := map[string]bool{}
	last, disorder := -1, 0
	for range keys {
		reply := sub.receive()
		require.False(t, seen[reply], reply)
		seen[reply] = true
		n := 0
		_, err := fmt.Sscanf(reply, `["message" "__keyevent@0__:expired" "%d"]`, &n)
		require.NoError(t, err)
		if n < last {
			disorder++
		}
		last = n
	}
	require.LessOrEqual(t, disorder, 3, "only a key that a command asks for is deleted early")
	require.Equal(t, `"new"`,
		func() string { c.receive(); c.receive(); c.receive(); return c.line("GET 2500") }())
	sub.send(encode("PING"))
	require.Equal(t, `["pong" ""]`, sub.receive(), "there is no other event")
}
