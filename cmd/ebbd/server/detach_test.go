package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSlowReaderOfWritesGetsAllReplies: the socket of a client that reads nothing is full of replies to
// writes, some of them larger than what the executor sends itself. Others are answered meanwhile,
// and the client gets all replies in order when it reads.
func TestSlowReaderOfWritesGetsAllReplies(t *testing.T) {
	s := start(t, Options{})
	slow, other := s.client(), s.client()
	sizes := []int{30 << 10, 1, flushBytes + 1}
	value := func(i int) string {
		return strings.Repeat(string(rune('a'+i%26)), sizes[i%len(sizes)])
	}
	const n = 600
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range n {
			_, err := io.WriteString(slow.nc, encode("SET", "k", value(i), "GET"))
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	require.Eventually(t, func() bool { // the server reads no more commands
		before := s.stats.bytesRead.Load()
		time.Sleep(20 * time.Millisecond)
		return before > 1<<20 && s.stats.bytesRead.Load() == before
	}, 20*time.Second, time.Millisecond)
	require.Equal(t, "OK", other.do("SET", "other", "v"))
	require.Equal(t, `"v"`, other.do("GETSET", "other", "w"))
	require.NoError(t, slow.nc.SetDeadline(time.Now().Add(20*time.Second)))
	require.Equal(t, "nil", slow.receive())
	for i := range n - 1 {
		require.Equal(t, fmt.Sprintf("%q", value(i)), slow.receive())
	}
	<-sent
	require.Equal(t, "OK", slow.do("SET", "k", "v"))
}

// TestShutdownAnswersDetachedConnections: commands that have arrived get their replies.
func TestShutdownAnswersDetachedConnections(t *testing.T) {
	s := start(t, Options{Timeout: time.Hour})
	c := s.client()
	release := s.holdTurn()
	c.send(encode("SET", "k", "v") + encode("INCR", "n"))
	s.awaitQueue(1)
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	require.Eventually(t, s.isClosing, 20*time.Second, time.Millisecond)
	release()
	require.Equal(t, "OK", c.receive())
	require.Equal(t, "1", c.receive())
	_, err := c.read()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, <-ended)
}

// TestClientThatSendsNoMoreGetsItsReplies: a client may close its side behind a write.
func TestClientThatSendsNoMoreGetsItsReplies(t *testing.T) {
	s := start(t, Options{})
	c := s.client()
	release := s.holdTurn()
	c.send(encode("INCR", "n"))
	s.awaitQueue(1)
	require.NoError(t, c.nc.(*net.TCPConn).CloseWrite())
	release()
	require.Equal(t, "1", c.receive())
	_, err := c.read()
	require.ErrorIs(t, err, io.EOF)
}

// TestClientThatWaitsForATurnIsNotIdle: the time of a turn does not count.
func TestClientThatWaitsForATurnIsNotIdle(t *testing.T) {
	s := start(t, Options{Timeout: time.Hour})
	c := s.client()
	release := s.holdTurn()
	c.send(encode("INCR", "n"))
	s.awaitQueue(1)
	s.clients()[0].interrupt() // as if the hour were over
	release()
	require.Equal(t, "1", c.receive())
	require.Equal(t, "2", c.do("INCR", "n"))
}

// TestCommandsBehindAWriteWaitForItsReply: what arrives during a turn runs after it, in order.
func TestCommandsBehindAWriteWaitForItsReply(t *testing.T) {
	s := start(t, Options{})
	c := s.client()
	release := s.holdTurn()
	first := encode("SET", "k", "v")
	c.send(first)
	s.awaitQueue(1)
	half := encode("APPEND", "k", strings.Repeat("w", 40<<10)) // the buffer of the reader grows
	c.send(encode("GET", "k") + half[:len(half)/2])
	read := func() bool { return s.stats.bytesRead.Load() > int64(len(first)) }
	require.Eventually(t, read, 20*time.Second, time.Millisecond)
	release()
	c.send(half[len(half)/2:] + encode("CLIENT", "REPLY", "SKIP") + encode("SET", "k",
		"x") + encode("GET", "k"))
	for _, want := range []string{"OK", `"v"`, fmt.Sprint(1 + 40<<10), `"x"`} {
		require.Equal(t, want, c.receive())
	}
}
