package server

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/bound"
)

// recorded is a connection whose client has sent all it will send, and takes every reply.
type recorded struct {
	io.Reader
	replies int
}

func (r *recorded) Write(p []byte) (int, error)    { r.replies += len(p); return len(p), nil }
func (*recorded) Close() error                     { return nil }
func (*recorded) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*recorded) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*recorded) SetDeadline(time.Time) error      { return nil }
func (*recorded) SetReadDeadline(time.Time) error  { return nil }
func (*recorded) SetWriteDeadline(time.Time) error { return nil }

// fuzzed are the commands that FuzzArguments runs: all but those that end or stop the server.
func fuzzed() (names []string) {
	for _, name := range commandNames() {
		if name != "shutdown" && name != "debug" && name != "quit" {
			names = append(names, name)
		}
	}
	return names
}

// FuzzArguments runs commands with arbitrary arguments, each line of the input one: its first byte
// chooses the command, spaces separate arguments. No input makes the server panic, hang, allocate
// without a bound or break its store.
func FuzzArguments(f *testing.F) {
	names := fuzzed()
	line := func(name, args string) string {
		i := slices.Index(names, name)
		if i == '\n' {
			i += len(names)
		}
		return string([]byte{byte(i)}) + args + "\n"
	}
	f.Add([]byte(line("set", "k v ex 10") + line("append", "k x") + line("getex", "k persist")))
	f.Add([]byte(line("hset", "h f v") + line("hrandfield", "h -2147483648") + line("hexpire",
		"h 5 fields 1 f")))
	f.Add([]byte(line("setbit", "k 8000000 1") + line("bitfield", "k incrby u63 #7 -1 get i64 0")))
	f.Add([]byte(line("zadd", "z nan m") + line("zadd", "z inf m") + line("zrangebyscore",
		"z (1 +inf limit 0 -1")))
	f.Add([]byte(line("setrange", "k 1000000 x") + line("lcs", "k k idx") + line("bitop", "not k k")))
	f.Add([]byte(line("lpush", "l 3 1 2") + line("sort",
		"l by x*->y get # limit -1 2 store l") + line("lpos", "l 1 rank -1")))
	f.Add([]byte(line("multi", "") + line("blpop", "q 0") + line("exec", "") + line("blmove",
		"q q left right 0")))
	f.Add([]byte(line("config", "set notify-keyspace-events KEA") + line("psubscribe",
		"*") + line("client", "list")))
	s, err := Open(Options{Dir: f.TempDir(), AppendFsync: "no", MaxBulk: 1 << 20, MaxReplies: 1 << 20})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, s.Shutdown(f.Context())) })
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 4<<10 {
			t.Skip("long inputs find what short ones find")
		}
		defer bound.Hold(t, 1<<30)()
		sent := []byte(encode("FLUSHALL"))
		for i, text := range bytes.Split(in, []byte("\n")) {
			if i == 8 {
				break
			}
			if len(text) == 0 {
				continue
			}
			args := bytes.Split(text[1:], []byte(" "))
			if len(text) == 1 {
				args = nil
			}
			sent = append(sent, "*"+strconv.Itoa(len(args)+1)+"\r\n"...)
			for _, arg := range slices.Concat([][]byte{[]byte(names[int(text[0])%len(names)])}, args) {
				sent = append(sent, "$"+strconv.Itoa(len(arg))+"\r\n"+string(arg)+"\r\n"...)
			}
		}
		r := &recorded{Reader: bytes.NewReader(sent)}
		newConn(s, r, 1).serve()
		require.Nil(t, s.lastError.Load())
		v, err := s.verify(t.Context())
		require.NoError(t, err)
		require.Empty(t, v)
	})
}
