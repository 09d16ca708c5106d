package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

func TestIncrCounts(t *testing.T) {
	s := storePath(t)
	require.Equal(t, "1\n", good(t, "incr", s, "n"))
	require.Equal(t, "43\n", good(t, "incr", s, "n", "42"))
	require.Equal(t, "40\n", good(t, "incr", s, "n", "--", "-3"))
	require.Equal(t, "none\n", good(t, "ttl", s, "n"))
	o := object(t, good(t, "incr", s, "m", "--ttl", "7d", "--family", "f", "--json"))
	require.Equal(t, "f", o["family"])
	require.EqualValues(t, 1, o["sum"])
	require.InDelta(t, (7 * 24 * time.Hour).Milliseconds(), o["ttl_ms"], 60_000)

	good(t, "put", s, "text", "four")
	a := ebb(t, "incr", s, "text")
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "not a counter")
	require.Contains(t, a.stderr, "hint: a counter is a value of 8 bytes")
	require.Contains(t, ebb(t, "incr", s, "n", "many").stderr, `"many" is no whole number`)
	require.Contains(t, ebb(t, "incr", s, "n", "--ttl", "0").stderr, "invalid ttl")
}

func TestCasSwapsTheOldValueOnly(t *testing.T) {
	s := storePath(t)
	require.Equal(t, exitError, ebb(t, "cas", s, "k", "a", "b").code, "it creates no store")
	good(t, "put", s, "k", "a", "--ttl", "1h")
	require.Empty(t, good(t, "cas", s, "k", "a", "b", "--keep-ttl"))
	require.Equal(t, "b", good(t, "get", s, "k"))
	require.NotEqual(t, "none\n", good(t, "ttl", s, "k"))
	a := ebb(t, "cas", s, "k", "a", "c")
	require.Equal(t, exitExists, a.code)
	require.Contains(t, a.stderr, "the key has another value")
	require.Equal(t, exitNotFound, ebb(t, "cas", s, "absent", "a", "c").code)
	require.Equal(t, exitNotFound, ebb(t, "cas", s, "absent", "", "c").code, "empty is no absent key")
	require.Equal(t, "b", good(t, "get", s, "k"))
	good(t, "cas", s, "k", "b", "")
	good(t, "cas", s, "k", "", "again")
	require.Equal(t, "none\n", good(t, "ttl", s, "k"))
	in := ebbIn(t, strings.NewReader("again"), "cas", s, "k", "-", "from input", "--json")
	require.Equal(t, exitOK, in.code)
	require.EqualValues(t, 10, object(t, in.out)["size"])
	require.Contains(t, ebb(t, "cas", s, "k", "-", "-").stderr, "both standard input")
}

func TestCountCountsRanges(t *testing.T) {
	s := storePath(t)
	for _, key := range []string{"a", "b1", "b2", "c"} {
		good(t, "put", s, key, "")
	}
	good(t, "put", s, "\xff\xff", "")
	require.Equal(t, "5\n", good(t, "count", s))
	require.Equal(t, "5\n", good(t, "count", s, "--live"))
	require.Equal(t, "2\n", good(t, "count", s, "--prefix", "b"))
	require.Equal(t, "1\n", good(t, "count", s, "--prefix", "\xff"))
	require.Equal(t, "3\n", good(t, "count", s, "--from", "a", "--to", "c"))
	require.EqualValues(t, 4, object(t, good(t, "count", s, "--from", "b", "--json"))["rows"])
	require.Equal(t, exitNotFound, ebb(t, "count", s, "--family", "absent").code)
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	require.NoError(t, db.CreateCF("log", kv.CFOptions{Retention: 48 * time.Hour, Partition: time.Hour}))
	require.NoError(t, db.CF("log").Append(time.Now(), []byte("k"), nil))
	require.NoError(t, db.Close())
	require.Equal(t, "1\n", good(t, "count", s, "--family", "log"))
	require.Contains(t, ebb(t, "count", s, "--family", "log", "--from", "a").stderr, "time-partitioned")
	require.Contains(t, ebb(t, "count", s, "--live", "--from", "a").stderr, "exclude each other")
	require.Contains(t, ebb(t, "count", s, "--prefix", "a", "--to", "b").stderr, "exclude each other")
}

// TestWatchPrintsChanges: a row, its change, and its end; what is locked meanwhile is looked at later.
func TestWatchPrintsChanges(t *testing.T) {
	s := storePath(t)
	good(t, "put", s, "k", "one")
	ended := make(chan answer)
	go func() { ended <- ebb(t, "watch", s, "k", "--every", "1ms", "--changes", "2") }()
	for _, step := range [][]string{{"put", s, "k", "two", "--wait", "10s"},
		{"del", s, "k", "--wait", "10s"}} {
		time.Sleep(300 * time.Millisecond) // so that a look meets the state before
		require.Equal(t, exitOK, ebb(t, step...).code)
	}
	a := <-ended
	require.Equal(t, exitOK, a.code, a.stderr)
	require.Equal(t, "k\tone\nk\ttwo\nk\n", a.out)
	require.Contains(t, ebb(t, "watch", s, "k", "--every", "0").stderr, "--every is not positive")
	require.Equal(t, exitError, ebb(t, "watch", storePath(t), "k").code, "there is no store")
}

func TestKeysAndFamiliesAreCompleted(t *testing.T) {
	s := storePath(t)
	for _, key := range []string{"ann", "anton", "bob", "tab\t"} {
		good(t, "put", s, key, "")
	}
	good(t, "put", s, "six", "", "--family", "numbers")
	offered := func(args ...string) (words []string) {
		for _, line := range strings.Split(good(t, append([]string{"__complete"}, args...)...), "\n") {
			if line != "" && !strings.HasPrefix(line, ":") {
				words = append(words, line)
			}
		}
		return words
	}
	require.Equal(t, []string{"ann", "anton"}, offered("get", s, "an"))
	require.Equal(t, []string{"ann", "anton", "bob"}, offered("del", s, "bob", ""))
	require.Equal(t, []string{"six"}, offered("incr", "--family", "numbers", s, ""))
	require.Equal(t, []string{"616e6e", "616e746f6e"}, offered("ttl", "--hex", s, "61"))
	require.Equal(t, []string{"numbers"}, offered("family", s, "n"))
	require.Equal(t, []string{"default", "numbers"}, offered("scan", s, "--family", ""))
	require.Empty(t, offered("get", s+"-absent", ""))
	require.Empty(t, offered("put", s, "k", ""), "a value is not completed")
	for _, shell := range []string{"bash", "zsh", "fish"} {
		require.Contains(t, good(t, "completion", shell), "__complete")
	}
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	require.Empty(t, offered("get", s, ""), "a store in use is not waited for")
	require.NoError(t, db.Close())
	require.Nil(t, (&app{}).offer(context.Background(), "", "", nil))
}
