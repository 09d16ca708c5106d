package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// fakeClock is a clock that tests set.
type fakeClock struct{ ms atomic.Int64 }

// newClock starts at a time with a fraction of a second.
func newClock() *fakeClock {
	c := &fakeClock{}
	c.ms.Store(1_800_000_000_400)
	return c
}

func (c *fakeClock) now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *fakeClock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// testServer is a server on a port of the loopback interface.
type testServer struct {
	*Server
	t    *testing.T
	addr string
}

// start runs a server until the test ends. Zero options get a directory of the test.
func start(t *testing.T, o Options) *testServer {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	o.Logger = slog.New(
		slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}),
	)
	s, err := Open(o)
	require.NoError(t, err)
	ts := serve(t, s)
	t.Cleanup(func() {
		ts.check()
		ts.shutdown()
	})
	return ts
}

// serve runs a server until it is shut down.
func serve(t *testing.T, s *Server) *testServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() { require.NoError(t, <-served) })
	return &testServer{s, t, l.Addr().String()}
}

// check proves the store, and that no row belongs to a collection that no key names.
func (s *testServer) check() {
	if s.isClosing() {
		return
	}
	s.t.Helper()
	for more := true; more; { // each turn retires what has expired before it
		require.NoError(s.t, s.exec.do(func(tx *kv.Tx) (err error) {
			more, err = s.store.Reclaim(tx)
			return err
		}))
	}
	orphans, err := s.sweep()
	require.NoError(s.t, err)
	require.Zero(s.t, orphans, "collections that no key names")
	for problem := range s.db.Check(context.Background()) {
		s.t.Errorf("store: %v", problem)
	}
}

func (s *testServer) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(s.t, s.Shutdown(ctx))
}

// settle runs what the executor does between turns until nothing is left to do.
func (s *testServer) settle() {
	s.t.Helper()
	for pending := true; pending; {
		require.NoError(s.t, s.exec.do(func(tx *kv.Tx) (err error) {
			if _, _, err = s.store.Purge(tx, purgeStep, false); err != nil {
				return err
			}
			_, err = s.store.Reclaim(tx)
			return err
		}))
		require.NoError(s.t, s.exec.do(func(tx *kv.Tx) (err error) {
			pending, err = s.store.Pending(tx)
			return err
		}))
	}
}

// together has the commands of clients run in one turn, in their order.
func (s *testServer) together(clients []*client, commands ...[]string) {
	s.t.Helper()
	release := s.holdTurn()
	for i, c := range clients {
		c.send(encode(commands[i]...))
		s.awaitQueue(i + 1)
	}
	release()
}

// holdTurn has the executor wait in a turn until release is called.
func (s *testServer) holdTurn() (release func()) {
	began, end := make(chan struct{}), make(chan struct{})
	go func() {
		_ = s.exec.do(func(*kv.Tx) error {
			close(began)
			<-end
			return nil
		})
	}()
	<-began
	return func() { close(end) }
}

// awaitQueue waits until n units are queued.
func (s *testServer) awaitQueue(n int) {
	s.t.Helper()
	queued := func() bool { return len(s.exec.queue) == n }
	require.Eventually(s.t, queued, 20*time.Second, time.Millisecond)
}

// testWriter sends logs to the test.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// client speaks the protocol without a library: it sees replies as they are.
type client struct {
	t  *testing.T
	nc net.Conn
	r  *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	return &client{t, nc, bufio.NewReader(nc)}
}

func (s *testServer) client() *client { return dial(s.t, s.addr) }

// encode encodes a command.
func encode(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

func (c *client) send(text string) {
	c.t.Helper()
	require.NoError(c.t, c.nc.SetDeadline(time.Now().Add(20*time.Second)))
	_, err := io.WriteString(c.nc, text)
	require.NoError(c.t, err)
}

// do sends a command and returns its reply as text: see receive.
func (c *client) do(args ...string) string {
	c.t.Helper()
	c.send(encode(args...))
	return c.receive()
}

// line sends the words of a line as a command.
func (c *client) line(line string) string {
	c.t.Helper()
	return c.do(words(line)...)
}

// words splits a line at spaces; ” is an empty word.
func words(line string) []string {
	args := strings.Fields(line)
	for i, arg := range args {
		if arg == "''" {
			args[i] = ""
		}
	}
	return args
}

// receive returns the next reply as text: integers and simple strings plain, errors after (error),
// bulk strings quoted, the null value as nil, arrays in brackets, maps in braces, sets after ~.
func (c *client) receive() string {
	c.t.Helper()
	reply, err := c.read()
	require.NoError(c.t, err)
	return reply
}

func (c *client) read() (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := line[0], strings.TrimSuffix(line[1:], "\r\n")
	switch kind {
	case '+':
		return text, nil
	case '-':
		return "(error) " + text, nil
	case ':':
		return text, nil
	case ',':
		return "(double) " + text, nil
	case '#':
		return "(bool) " + text, nil
	case '_':
		return "nil", nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return "", fmt.Errorf("reply %q", line)
	}
	switch {
	case n < 0:
		return "nil", nil
	case kind == '$' || kind == '=':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, b); err != nil {
			return "", err
		}
		return strconv.Quote(string(b[:n])), nil
	case kind == '%':
		parts, err := c.readMany(2 * n)
		return "{" + strings.Join(parts, " ") + "}", err
	case kind == '*' || kind == '>':
		parts, err := c.readMany(n)
		return "[" + strings.Join(parts, " ") + "]", err
	case kind == '~':
		parts, err := c.readMany(n)
		slices.Sort(parts)
		return "~[" + strings.Join(parts, " ") + "]", err
	}
	return "", fmt.Errorf("reply %q", line)
}

func (c *client) readMany(n int) (parts []string, err error) {
	for range n {
		part, err := c.read()
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}
