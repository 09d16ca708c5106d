package server

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHelloChoosesTheVersion(t *testing.T) {
	c := start(t, Options{}).client()
	require.Equal(t, `["server" "redis" "version" "7.4.0" "proto" 2 "id" 1 "mode" "standalone" `+
		`"role" "master" "modules" []]`, c.do("HELLO"))
	require.Contains(t, c.do("HELLO", "3", "SETNAME", "me"), `{"server" "redis"`)
	require.Equal(t, `"me"`, c.do("CLIENT", "GETNAME"))
	c.do("HSET", "h", "f", "v")
	require.Equal(t, `{"f" "v"}`, c.do("HGETALL", "h"))
	require.Equal(t, "(error) NOPROTO unsupported protocol version", c.do("HELLO", "4"))
	c.do("HELLO", "2")
	require.Equal(t, `["f" "v"]`, c.do("HGETALL", "h"))
	require.Contains(t, c.do("HELLO", "3", "FOO"), "Syntax error in HELLO option 'FOO'")
}

func TestPipelinesAreAnsweredInTheirOrder(t *testing.T) {
	c := start(t, Options{}).client()
	const n = 3000
	var b strings.Builder
	for i := range n {
		b.WriteString(encode("SET", "k", fmt.Sprint(i)))
		b.WriteString(encode("GET", "k"))
	}
	go c.send(b.String())
	for i := range n {
		require.Equal(t, "OK", c.receive())
		require.Equal(t, fmt.Sprintf("%q", fmt.Sprint(i)), c.receive())
	}
}

func TestInlineCommandsAreAnswered(t *testing.T) {
	c := start(t, Options{}).client()
	c.send("SET greeting \"hello world\"\r\nGET greeting\r\n")
	require.Equal(t, "OK", c.receive())
	require.Equal(t, `"hello world"`, c.receive())
}

func TestViolationOfTheProtocolEndsTheConnection(t *testing.T) {
	c := start(t, Options{}).client()
	c.send(encode("PING") + "*1\r\n:1\r\n")
	require.Equal(t, "PONG", c.receive())
	require.Equal(t, "(error) ERR Protocol error: expected '$', got ':'", c.receive())
	_, err := c.read()
	require.Error(t, err)
}

// TestAPostedFormRunsNoCommand: a web page had a browser post a form to the server's port, and the
// lines of its body ran as inline commands. Redis ends such connections, too.
func TestAPostedFormRunsNoCommand(t *testing.T) {
	s := start(t, Options{})
	for _, request := range []string{
		"POST / HTTP/1.1\r\nAccept: */*\r\n\r\nSET k v\r\n",
		"SET k v\r\n", // the client is one of ours
		"GET /\r\nHost: localhost\r\n\r\nSET k w\r\n",
		"MULTI\r\nPING\r\nPOST / HTTP/1.1\r\nSET k w\r\nEXEC\r\n",
	} {
		c := s.client()
		c.send(request + "QUIT\r\n")
		_, _ = io.Copy(io.Discard, c.r)
	}
	require.Equal(t, `"v"`, s.client().line("GET k"))
	require.Equal(t, "1", s.client().line("INCR n"))
}

const wrongPass = "(error) WRONGPASS invalid username-password pair or user is disabled."

func TestPasswordIsAskedFor(t *testing.T) {
	s := start(t, Options{Password: "secret"})
	c := s.client()
	for line, want := range map[string]string{
		"GET k":                        "(error) NOAUTH Authentication required.",
		"NOSUCH":                       "(error) NOAUTH Authentication required.",
		"AUTH wrong":                   wrongPass,
		"AUTH other secret":            wrongPass,
		"HELLO 3 AUTH default nothing": wrongPass,
	} {
		require.Equal(t, want, c.line(line), line)
	}
	require.Contains(t, c.line("HELLO 3"), "NOAUTH HELLO")
	require.Equal(t, "OK", c.line("AUTH secret"))
	require.Equal(t, "nil", c.line("GET k"))
	require.Equal(t, "RESET", c.line("RESET"))
	require.Contains(t, c.line("GET k"), "NOAUTH")
	require.Contains(t, c.line("HELLO 2 AUTH default secret"), "proto")
	require.Equal(t, "OK", c.line("CONFIG SET requirepass other"))
	require.Equal(t, "OK", s.client().line("AUTH other"))
	d := s.client()
	d.send("*11\r\n")
	require.Contains(t, d.receive(), "unauthenticated multibulk length")
	require.Contains(
		t,
		start(t, Options{}).client().line("AUTH x"),
		"without any password configured",
	)
}

func TestNumberOfClientsIsBounded(t *testing.T) {
	s := start(t, Options{MaxClients: 2})
	a, b := s.client(), s.client()
	require.Equal(t, "PONG", a.do("PING"))
	require.Equal(t, "PONG", b.do("PING"))
	require.Equal(t, "(error) ERR max number of clients reached", s.client().receive())
	require.Equal(t, "OK", a.do("CONFIG", "SET", "maxclients", "3"))
	require.Equal(t, "PONG", s.client().do("PING"))
}

func TestRepliesBeyondTheBoundEndTheConnection(t *testing.T) {
	s := start(t, Options{MaxReplies: 1 << 20})
	c := s.client()
	require.Equal(t, "OK", c.do("SET", "k", strings.Repeat("x", 600<<10)))
	require.Len(t, c.do("GET", "k"), 600<<10+2)
	c.send(encode("MGET", "k", "k", "k"))
	_, err := c.read()
	require.Error(t, err)
	require.Equal(t, "PONG", s.client().do("PING"))
}

func TestArgumentLongerThanItsBoundIsRefused(t *testing.T) {
	c := start(t, Options{MaxBulk: 1000}).client()
	require.Equal(t, "OK", c.do("SET", "k", strings.Repeat("x", 1000)))
	require.Contains(t, c.do("APPEND", "k", "y"), "string exceeds maximum allowed size")
	require.Contains(t, c.do("SETRANGE", "k", "1000", "y"), "string exceeds maximum allowed size")
	c.send("*1\r\n$1001\r\n")
	require.Equal(t, "(error) ERR Protocol error: invalid bulk length", c.receive())
}

func TestKeysLongerThanTheStoreAllowsAreRefused(t *testing.T) {
	c := start(t, Options{}).client()
	long := strings.Repeat("k", 4096)
	require.Contains(t, c.do("SET", long, "v"), "key 4095 bytes, field or member 4079")
	require.Contains(t, c.do("HSET", long, "f", "v"), "longer than this store allows")
	require.Contains(t, c.do("HSET", "h", long, "v"), "longer than this store allows")
	require.Equal(t, "nil", c.do("GET", long))
	require.Equal(t, "nil", c.do("HGET", "h", long))
	require.Equal(t, "0", c.do("EXISTS", "h"))
	require.Equal(t, "OK", c.do("SET", long[1:], "v"))
	require.Equal(t, "OK", c.do("SET", "", "the empty key"))
	require.Equal(t, `"the empty key"`, c.do("GET", ""))
}

func TestIdleClientsAreDisconnected(t *testing.T) {
	c := start(t, Options{Timeout: 20 * time.Millisecond}).client()
	require.Equal(t, "PONG", c.do("PING"))
	_, err := c.read()
	require.Error(t, err)
}

func TestClientCommandsDescribeConnections(t *testing.T) {
	s := start(t, Options{})
	a, b := s.client(), s.client()
	require.Equal(t, "1", a.line("CLIENT ID"))
	require.Equal(t, "2", b.line("CLIENT ID"))
	require.Equal(t, "OK", a.line("CLIENT SETNAME first"))
	require.Equal(t, "OK", a.line("CLIENT SETINFO LIB-NAME test"))
	require.Contains(t, a.line("CLIENT INFO"), "id=1 ")
	require.Contains(t, b.line("CLIENT LIST"), "name=first ")
	require.Contains(t, b.line("CLIENT LIST ID 1"), "lib-name=test")
	require.NotContains(t, b.line("CLIENT LIST ID 1"), "id=2 ")
	require.Equal(t, "1", b.line("CLIENT KILL ID 1"))
	_, err := a.read()
	require.Error(t, err)
	require.Contains(t, b.line("CLIENT SETNAME a\tb"), "(error)")
	require.Contains(t, b.line("CLIENT TRACKING ON"), "not supported")
}

func TestClientReplyTurnsRepliesOff(t *testing.T) {
	c := start(t, Options{}).client()
	c.send(encode("CLIENT", "REPLY", "SKIP") + encode("SET", "a", "1") + encode("GET", "a"))
	require.Equal(t, `"1"`, c.receive())
	c.send(encode("CLIENT", "REPLY", "OFF") + encode("GET", "a") + encode("INCR", "a") +
		encode("CLIENT", "REPLY", "ON") + encode("GET", "a"))
	require.Equal(t, "OK", c.receive())
	require.Equal(t, `"2"`, c.receive())
}

func TestUnknownCommandsAreNamed(t *testing.T) {
	c := start(t, Options{}).client()
	require.Equal(
		t,
		"(error) ERR unknown command 'XADD': this server has no streams",
		c.line("XADD x *"),
	)
	require.Equal(t, "(error) ERR wrong number of arguments for 'get' command", c.line("GET"))
	require.Contains(t, c.line("CONFIG NOSUCH"), "unknown subcommand")
}

func TestConnectionsEndWithTheServer(t *testing.T) {
	s := start(t, Options{})
	c := s.client()
	require.Equal(t, "OK", c.do("SET", "k", "v"))
	s.shutdown()
	_, err := c.read()
	require.Error(t, err)
	_, err = net.Dial("tcp", s.addr)
	require.Error(t, err)
}

func TestShutdownCommandAsksForTheEnd(t *testing.T) {
	s := start(t, Options{})
	c := s.client()
	c.send(encode("SHUTDOWN", "NOSAVE"))
	select {
	case <-s.Stopped():
	case <-time.After(10 * time.Second):
		t.Fatal("no shutdown")
	}
}

// TestWhatIsNotThereIsNamed: a client learns which part of Redis is missing.
func TestWhatIsNotThereIsNamed(t *testing.T) {
	c := start(t, Options{}).client()
	for line, want := range map[string]string{
		"XADD s * a b":  "unknown command 'XADD': this server has no streams",
		"sync":          "unknown command 'sync': this server has no replication: see ebbd backup",
		"PFADD h a":     "no HyperLogLog",
		"GEOADD g":      "no geo indexes",
		"FCALL f 0":     "no functions: see EVAL",
		"WAITAOF 1 0 0": "no WAITAOF: with appendfsync always a write is on disk before its reply",
		"nosuch 1":      "unknown command 'nosuch', with args beginning with: '1'",
	} {
		require.Contains(t, c.line(line), want)
	}
}

// TestProtectedModeServesThisMachine: the address of a client decides.
func TestProtectedModeServesThisMachine(t *testing.T) {
	s := start(t, Options{Parameters: map[string]string{"protected-mode": "yes"}})
	require.Equal(t, `["protected-mode" "yes"]`, s.client().line("CONFIG GET protected-mode"))
	for ip, here := range map[string]bool{"127.0.0.9": true, "::1": true, "10.1.2.3": false} {
		require.Equal(t, here, fromThisMachine(remoteConn{addr: &net.TCPAddr{IP: net.ParseIP(ip)}}))
	}
}

type remoteConn struct {
	net.Conn
	addr net.Addr
}

func (c remoteConn) RemoteAddr() net.Addr { return c.addr }
