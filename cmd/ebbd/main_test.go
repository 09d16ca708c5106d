package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
)

// TestMain is ebbd itself in the processes that tests start.
func TestMain(m *testing.M) {
	if args := os.Getenv("EBBD_TEST_ARGS"); args != "" {
		os.Args = append(os.Args[:1], strings.Split(args, "\n")...)
		go func() { // a test that ends early leaves no server behind
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(3)
		}()
		main()
	}
	os.Exit(m.Run())
}

// process is a running ebbd.
type process struct {
	cmd  *exec.Cmd
	addr string
	rest *bytes.Buffer // logs after the line that it is ready
	read chan struct{} // closed at the end of the logs
}

// startProcess runs ebbd on a free port of the loopback interface.
func startProcess(t testing.TB, args ...string) *process {
	t.Helper()
	args = append([]string{"--addr", "127.0.0.1:0", "--json"}, args...)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "EBBD_TEST_ARGS="+strings.Join(args, "\n"))
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	_, err = cmd.StdinPipe() // open until this process ends, or Wait
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{cmd: cmd, rest: &bytes.Buffer{}, read: make(chan struct{})}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	logs := bufio.NewScanner(stderr)
	for p.addr == "" && logs.Scan() {
		var entry struct{ Msg, Address string }
		require.NoError(t, json.Unmarshal(logs.Bytes(), &entry), logs.Text())
		if entry.Msg == "ready" {
			p.addr = entry.Address
		}
	}
	require.NotEmpty(t, p.addr, "ebbd does not start")
	go func() {
		defer close(p.read)
		for logs.Scan() {
			p.rest.WriteString(logs.Text() + "\n")
		}
	}()
	return p
}

func (p *process) dial(t testing.TB) redis.Conn {
	t.Helper()
	c, err := redis.Dial("tcp", p.addr, redis.DialReadTimeout(20*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ledger is what one client knows: every number up to acked was acknowledged, none above sent was
// sent.
type ledger struct{ acked, sent int }

// write sets rising numbers until the server is gone: in a string, a hash field, a list and, in one
// transaction, two keys. Sets that expire come and go beside them.
func (l *ledger) write(c redis.Conn, id int) {
	for n := l.acked + 1; ; n++ {
		l.sent = n
		for _, send := range [][]any{
			{"SET", fmt.Sprintf("s%d", id), n},
			{"HSET", fmt.Sprintf("h%d", id), "n", n},
			{"RPUSH", fmt.Sprintf("l%d", id), n},
			{"MULTI"},
			{"SET", fmt.Sprintf("a%d", id), n},
			{"ZADD", fmt.Sprintf("z%d", id), n, "m"},
			{"EXEC"},
			{"SADD", fmt.Sprintf("e%d:%d", id, n%20), n, "m"}, // a collection that expires and is read then
			{"PEXPIRE", fmt.Sprintf("e%d:%d", id, n%20), 3},
			{"SCARD", fmt.Sprintf("e%d:%d", id, (n+10)%20)},
		} {
			if c.Send(send[0].(string), send[1:]...) != nil {
				return
			}
		}
		if c.Flush() != nil {
			return
		}
		for range 10 {
			if _, err := c.Receive(); err != nil {
				return
			}
		}
		l.acked = n
	}
}

// check compares the store with the ledger after a restart.
func (l *ledger) check(t *testing.T, c redis.Conn, id int) {
	t.Helper()
	within := func(n int) {
		t.Helper()
		require.GreaterOrEqual(t, n, l.acked, "client %d: an acknowledged write is lost", id)
		require.LessOrEqual(t, n, l.sent)
	}
	intOf := func(args ...any) int {
		n, err := redis.Int(c.Do(args[0].(string), args[1:]...))
		if err == redis.ErrNil {
			return 0
		}
		require.NoError(t, err)
		return n
	}
	within(intOf("GET", fmt.Sprintf("s%d", id)))
	within(intOf("HGET", fmt.Sprintf("h%d", id), "n"))
	length := intOf("LLEN", fmt.Sprintf("l%d", id))
	within(length)
	if length > 0 {
		require.Equal(t, length, intOf("LINDEX", fmt.Sprintf("l%d", id), -1))
	}
	a := intOf("GET", fmt.Sprintf("a%d", id))
	within(a)
	require.Equal(
		t,
		a,
		intOf("ZSCORE", fmt.Sprintf("z%d", id), "m"),
		"a transaction is there in part",
	)
	l.acked, l.sent = length, length // what follows begins behind the last element
}

// TestAcknowledgedWritesSurviveKill kills the server under load, again and again.
func TestAcknowledgedWritesSurviveKill(t *testing.T) {
	const clients = 12
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	dir := t.TempDir()
	ledgers := make([]ledger, clients)
	acknowledged := 0
	for round := range rounds {
		policy := []string{"always", "everysec", "no"}[round%3] // the system has what was committed
		p := startProcess(t, "--dir", dir, "--appendfsync", policy)
		c := p.dial(t)
		for id := range ledgers {
			ledgers[id].check(t, c, id)
		}
		var done sync.WaitGroup
		for id := range ledgers {
			c := p.dial(t)
			done.Go(func() { ledgers[id].write(c, id) })
		}
		time.Sleep(time.Duration(50+rand.IntN(250)) * time.Millisecond) // any moment will do
		require.NoError(t, p.cmd.Process.Kill())
		_ = p.cmd.Wait()
		done.Wait()
		for id := range ledgers {
			acknowledged += ledgers[id].acked
		}
		t.Logf("round %d: %d acknowledged", round, acknowledged)
		var out bytes.Buffer
		require.Zero(t, run(t.Context(), []string{"check", "--dir", dir}, &out, &out), "%s", &out)
		require.NotContains(t, out.String(), "have no key")
	}
	require.Positive(t, acknowledged)
	p := startProcess(t, "--dir", dir)
	c := p.dial(t)
	for id := range ledgers {
		ledgers[id].check(t, c, id)
	}
}

func TestSignalEndsTheServerAfterItsCommands(t *testing.T) {
	dir := t.TempDir()
	p := startProcess(t, "--dir", dir, "--appendfsync", "no")
	c := p.dial(t)
	_, err := c.Do("SET", "k", "v", "EX", 1000)
	require.NoError(t, err)
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	<-p.read
	require.NoError(t, p.cmd.Wait(), "exit code")
	require.Contains(t, p.rest.String(), `"msg":"signal: ending"`)

	p = startProcess(t, "--dir", dir)
	c = p.dial(t)
	ttl, err := redis.Int(c.Do("TTL", "k"))
	require.NoError(t, err)
	require.InDelta(t, 1000, ttl, 60)
	_, err = c.Do("SHUTDOWN")
	require.Error(t, err)
	<-p.read
	require.NoError(t, p.cmd.Wait(), "exit code")
}

func TestSecondServerOnOneStoreIsRefused(t *testing.T) {
	dir := t.TempDir()
	startProcess(t, "--dir", dir)
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"--dir", dir, "--addr", "127.0.0.1:0"}, &stderr, &stderr)
	require.Equal(t, 1, code)
	require.Contains(t, stderr.String(), "ebbd ends")
}

func TestOptionsAreChecked(t *testing.T) {
	for args, want := range map[string]string{
		"--nosuch":                 "unknown flag: --nosuch",
		"extra":                    `unexpected argument "extra": commands are check and backup`,
		"main_test.go":             "--config main_test.go",
		"server":                   "--dir server",
		"--addr 127.0.0.1":         `"127.0.0.1" is no address, as 127.0.0.1:6379`,
		"--metrics 9121":           `"9121" is no address`,
		"--port 99999":             "want a number from 0 to 65535",
		"backup --port x f":        "want a number from 0 to 65535",
		"--cache 12XB":             "want a number of bytes with KiB, MiB or GiB",
		"--databases 0":            "must be positive",
		"--log-level loud":         "--log-level",
		"--requirepass-file /none": "no such file",
		"--tls-cert-file /none":    "--tls-cert-file and --tls-key-file",
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, 2, run(t.Context(), strings.Fields(args), &stdout, &stderr), args)
		require.Contains(t, stderr.String(), want)
	}
	var stdout, stderr bytes.Buffer
	args := []string{"--dir", t.TempDir(), "--appendfsync", "sometimes"}
	require.Equal(t, 2, run(t.Context(), args, &stdout, &stderr))
	require.Contains(t, stderr.String(), "want always, everysec or no\nebbd --help lists")
	stderr.Reset()
	require.Equal(t, 0, run(t.Context(), []string{"--help"}, &stdout, &stderr))
	require.Contains(t, stdout.String(), "ebbd --appendfsync everysec --cache 2GiB")
	require.Empty(t, stderr.String())
	stdout.Reset()
	require.Equal(t, 0, run(t.Context(), []string{"--version"}, &stdout, &stderr))
	require.Equal(t, "ebbd "+version+"\n", stdout.String())
	stdout.Reset()
	require.Equal(t, 0, run(t.Context(), []string{"version"}, &stdout, &stderr))
	require.Equal(t, "ebbd "+version+"\n", stdout.String())
	require.Equal(t, 0, run(t.Context(), []string{"help"}, &stdout, &stderr))
	require.Empty(t, stderr.String())
}
