package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
)

func TestConfigFileSetsWhatTheCommandLineLeavesOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ebbd.conf")
	write := func(text string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("# comment\n\nbind 127.0.0.1 -::1\nport 7000\nmaxclients 55\nappendfsync everysec\ncache 64mb\n" +
		"timeout 300\nnotify-keyspace-events \"Ex\"\nappendonly yes\nsave 3600 1\nproto-max-bulk-len 1mb\n" +
		"requirepass \"a b\"\nloglevel warn\n")
	f, err := parseFlags([]string{"--config", path, "--maxclients", "66"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []string{"127.0.0.1:7000", "-[::1]:7000"}, f.addresses)
	require.Equal(t, 66, f.options.MaxClients)
	require.Equal(t, "everysec", f.options.AppendFsync)
	require.EqualValues(t, 64<<20, f.options.CacheBytes)
	require.Equal(t, 5*time.Minute, f.options.Timeout)
	require.Equal(t, 1<<20, f.options.MaxBulk)
	require.Equal(t, "a b", f.options.Password)
	require.Equal(t, map[string]string{"notify-keyspace-events": "Ex"}, f.options.Parameters)
	write("tcp-backlog 511\nport 0\ntls-port 7001\ntls-cert-file c\nhash-max-listpack-entries 512\n" +
		"maxmemory 0\nlogfile \"\"\ndaemonize no\nrdbcompression yes\n")
	f, err = parseFlags([]string{"--config", path}, io.Discard)
	require.ErrorContains(t, err, "--tls-cert-file and --tls-key-file")
	require.Equal(t, []string{"127.0.0.1:7001"}, f.addresses)
	require.Equal(t, []string{"tcp-backlog", "hash-max-listpack-entries", "rdbcompression"}, f.ignored)
	f, err = parseFlags([]string{"--port", "7003"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []string{"127.0.0.1:7003"}, f.addresses)
	for text, want := range map[string]string{
		"daemonize yes":              "daemonize is always no",
		"logfile /var/log/x":         "logfile is not there",
		"port 1\ntls-port 2":         "set port or tls-port to 0",
		"tls-port 2":                 "tls-port needs tls-cert-file",
		"tls-ca-cert-file x":         "--tls-ca-cert-file needs",
		"rename-command CONFIG \"\"": "rename-command is not there",
		"appendonly no":              "line 1: appendonly is always yes",
		"\nmaxmemory 1gb":            "line 2: there is no eviction",
		"config other":               "an option of the command line only",
		"maxclients many":            "invalid argument",
		"replicaof host 6379":        "replicaof is not there",
		"nosuch 1":                   `line 1: no parameter has the name "nosuch"`,
		"nosuch 1\nappendonly no":    "line 2: appendonly is always yes",
		"appendonly no\n\nnosuch 1":  `line 3: no parameter has the name "nosuch"`,
		"maxmemory-policy lru":       `maxmemory-policy: it is always "noeviction"`,
		"slowlog-max-len -1":         "slowlog-max-len: argument must be between",
	} {
		write(text)
		var stderr bytes.Buffer
		args := []string{"--config", path, "--dir", t.TempDir(), "--addr", "127.0.0.1:0"}
		require.Equal(t, 2, run(t.Context(), args, io.Discard, &stderr), text)
		require.Contains(t, strings.ReplaceAll(stderr.String(), `\"`, `"`), want, text)
	}
}

// TestTimeoutsAreSecondsOrDurations: --timeout 300, as for Redis, was refused, and "timeout 5m" in a
// configuration file was five milliseconds.
func TestTimeoutsAreSecondsOrDurations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ebbd.conf")
	for text, want := range map[string]time.Duration{
		"0": 0, "300": 5 * time.Minute, "300s": 5 * time.Minute, "5m": 5 * time.Minute,
	} {
		require.NoError(t, os.WriteFile(path, []byte("timeout "+text+"\n"), 0o600))
		for _, args := range [][]string{{"--timeout", text}, {"--config", path}} {
			f, err := parseFlags(args, io.Discard)
			require.NoError(t, err)
			require.Equal(t, want, f.options.Timeout, args)
		}
	}
	for _, text := range []string{"", "soon", "-1", "-5m", "99999999999999999999", "9223372036855"} {
		_, err := parseFlags([]string{"--timeout=" + text}, io.Discard)
		require.Error(t, err, text)
	}
}

// TestEmptyPasswordFileIsRefused: the server ran without a password then.
func TestEmptyPasswordFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	for _, text := range []string{"", "\n", "\r\nsecret\n"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := parseFlags([]string{"--requirepass-file", path}, io.Discard)
		require.ErrorContains(t, err, "the first line of "+path+" is empty")
	}
}

// TestAnAddressWithAMinusIsOptional: the bind of Redis's own configuration ends with -::1, and the
// server did not start on a machine without IPv6.
func TestAnAddressWithAMinusIsOptional(t *testing.T) {
	const foreign = "192.0.2.1:0" // of no machine
	p := startProcess(t, "--dir", t.TempDir(), "--addr", "-"+foreign, "--addr", "127.0.0.1:0")
	_, err := p.dial(t).Do("PING")
	require.NoError(t, err)
	var stderr bytes.Buffer
	args := []string{"--dir", t.TempDir(), "--addr", foreign}
	require.Equal(t, 1, run(t.Context(), args, io.Discard, &stderr))
	require.Contains(t, stderr.String(), foreign)
}

// TestExamplesAreAccepted: the configuration file of the examples.
func TestExamplesAreAccepted(t *testing.T) {
	f, err := parseFlags([]string{"--config", "examples/ebbd.conf", "--dir", t.TempDir()}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []string{"127.0.0.1:6379", "-[::1]:6379"}, f.addresses)
	p := startProcess(t, "--config", "examples/ebbd.conf", "--dir", t.TempDir())
	got, err := redis.Strings(p.dial(t).Do("CONFIG", "GET", "slowlog-max-len"))
	require.NoError(t, err)
	require.Equal(t, []string{"slowlog-max-len", "128"}, got)
}

func TestMetricsAreThoseOfTheServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	p := startProcess(t, "--dir", t.TempDir(), "--metrics", addr)
	c := p.dial(t)
	_, err = c.Do("SET", "k", "v")
	require.NoError(t, err)
	_, err = c.Do("GET", "k")
	require.NoError(t, err)
	response, err := http.Get("http://" + addr + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	text := string(body)
	require.Contains(t, text, "ebbd_commands_total{command=\"set\"} 1\n")
	require.Contains(t, text, "ebbd_connected_clients 1\n")
	require.Contains(t, text, "ebbd_keyspace_hits_total 1\n")
	for line := range strings.Lines(text) {
		require.Regexp(t, `^(# (HELP|TYPE) ebbd_\w+ .+|ebbd_\w+(\{command="\w+"\})? [-+.e\d]+)\n$`, line)
	}
}

func TestCheckProvesAStore(t *testing.T) {
	dir := t.TempDir()
	check := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := run(t.Context(), append([]string{"check", "--dir", dir}, args...), &out, &out)
		return code, out.String()
	}
	code, text := check()
	require.Equal(t, 2, code, text)
	p := startProcess(t, "--dir", dir)
	c := p.dial(t)
	for _, command := range []string{
		"SET s v", "HSET h f v g w", "RPUSH l 1 2 3", "SADD t a b", "ZADD z 1 a 2 b",
		"HPEXPIRE h 1 FIELDS 1 f",
		"PEXPIRE t 1",
	} {
		words := strings.Fields(command)
		_, err := c.Do(words[0], redis.Args{}.AddFlat(words[1:])...)
		require.NoError(t, err)
	}
	code, text = check()
	require.Equal(t, 2, code, "it is open: "+text)
	require.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
	code, text = check()
	require.Equal(t, 0, code, text)
	require.Regexp(t,
		regexp.MustCompile(`database 0: [45] keys, \d+ rows of collections\nthe store is sound\n$`), text)
	code, text = check("--nosuch")
	require.Equal(t, 2, code, text)
	code, text = check("--help")
	require.Equal(t, 0, code)
	require.Contains(t, text, "ebbd check [options]")
}

// certificate writes a certificate of this machine and its key as PEM files.
func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	certFile, keyFile = write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", keyDER)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return certFile, keyFile, pool
}

// TestTLS: commands, a blocked client that goes on afterwards, and the refusal of plain text.
func TestTLS(t *testing.T) {
	certFile, keyFile, pool := certificate(t)
	p := startProcess(t, "--dir", t.TempDir(), "--tls-cert-file", certFile, "--tls-key-file", keyFile)
	dial := func() redis.Conn {
		c, err := redis.Dial("tcp", p.addr, redis.DialUseTLS(true), redis.DialReadTimeout(20*time.Second),
			redis.DialTLSConfig(&tls.Config{RootCAs: pool}))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	both := startProcess(t, "--dir", t.TempDir(), "--tls-cert-file", certFile, "--tls-key-file", keyFile,
		"--tls-ca-cert-file", certFile)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	for _, pairs := range [][]tls.Certificate{nil, {pair}} {
		c, err := redis.Dial("tcp", both.addr, redis.DialUseTLS(true),
			redis.DialTLSConfig(&tls.Config{RootCAs: pool, Certificates: pairs}))
		if err == nil {
			_, err = c.Do("PING")
		}
		require.Equal(t, pairs == nil, err != nil, "a client needs a certificate: %v", err)
	}
	a, b := dial(), dial()
	require.NoError(t, a.Send("BLPOP", "k", 0))
	require.NoError(t, a.Flush())
	time.Sleep(20 * time.Millisecond) // it blocks, or finds the element at once
	_, err = b.Do("RPUSH", "k", "v")
	require.NoError(t, err)
	popped, err := redis.Strings(a.Receive())
	require.NoError(t, err)
	require.Equal(t, []string{"k", "v"}, popped)
	for i := range 10 {
		reply, err := redis.String(a.Do("SET", fmt.Sprint(i), strings.Repeat("x", 1<<16)))
		require.NoError(t, err)
		require.Equal(t, "OK", reply)
	}
	plain, err := redis.Dial("tcp", p.addr, redis.DialReadTimeout(20*time.Second))
	require.NoError(t, err)
	defer plain.Close()
	_, err = plain.Do("PING")
	require.Error(t, err)
}

// TestBackupIsAStoreOfOneMoment: a backup that is made while clients write has both keys of each
// transaction, or neither, with their expiries; a partial one of an earlier crash is deleted.
func TestBackupIsAStoreOfOneMoment(t *testing.T) {
	backups := t.TempDir()
	partial := filepath.Join(backups, "ebbd-1.ebb.new")
	require.NoError(t, os.WriteFile(partial, nil, 0o600))
	p := startProcess(t, "--dir", t.TempDir(), "--backup-dir", backups, "--appendfsync", "no")
	c, writer := p.dial(t), p.dial(t)
	for i := range 1000 {
		require.NoError(t, c.Send("HSET", fmt.Sprint("h", i), "f", "v", "g", "w"))
		require.NoError(t, c.Send("EXPIRE", fmt.Sprint("h", i), 100000))
	}
	_, err := c.Do("")
	require.NoError(t, err)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = writer.Send("MULTI")
			_ = writer.Send("SET", "a", n)
			_ = writer.Send("HSET", "b", "n", n)
			_, _ = writer.Do("EXEC")
		}
	}()
	_, err = c.Do("SAVE")
	dir := t.TempDir()
	var out bytes.Buffer
	file := filepath.Join(dir, "sub", "ebbd.ebb")
	code := run(t.Context(), []string{"backup", "--port", p.addr[strings.LastIndex(p.addr, ":")+1:], file},
		&out, &out)
	close(stop)
	<-stopped
	require.NoError(t, err)
	require.Zero(t, code, "%s", &out)
	require.Equal(t, 1, run(t.Context(), []string{"backup", "--addr", p.addr, file}, &out, &out))
	require.Contains(t, out.String(), "already exists")
	require.NoFileExists(t, partial)
	files, err := filepath.Glob(filepath.Join(backups, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.Rename(files[0], filepath.Join(dir, "ebbd.ebb")))
	requireOneMoment(t, dir)
	requireOneMoment(t, filepath.Dir(file))
}

// requireOneMoment starts a server from the backup of TestBackupIsAStoreOfOneMoment.
func requireOneMoment(t *testing.T, dir string) {
	t.Helper()
	var out bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"check", "--dir", dir}, &out, &out), "%s", &out)
	c := startProcess(t, "--dir", dir).dial(t)
	a, errA := redis.String(c.Do("GET", "a"))
	b, errB := redis.String(c.Do("HGET", "b", "n"))
	require.Equal(t, errA, errB)
	require.Equal(t, a, b)
	ttl, err := redis.Int(c.Do("TTL", "h999"))
	require.NoError(t, err)
	require.InDelta(t, 100000, ttl, 60)
	size, err := redis.Int(c.Do("DBSIZE"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, size, 1000)
}

// TestBackupOverTLSWithAPassword, and without either it says why there is none.
func TestBackupOverTLSWithAPassword(t *testing.T) {
	certFile, keyFile, _ := certificate(t)
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	p := startProcess(t, "--dir", t.TempDir(), "--tls-cert-file", certFile, "--tls-key-file", keyFile,
		"--requirepass-file", password)
	file := filepath.Join(t.TempDir(), "ebbd.ebb")
	tls := []string{"backup", "--addr", p.addr, "--tls", "--tls-ca-cert-file", certFile, file}
	var out bytes.Buffer
	require.Equal(t, 1, run(t.Context(), tls, &out, &out))
	require.Contains(t, out.String(), "NOAUTH")
	require.NoFileExists(t, file)
	require.Zero(t, run(t.Context(), append(tls, "--requirepass-file", password), &out, &out), "%s", &out)
	require.FileExists(t, file)
	require.Equal(t, 2, run(t.Context(), []string{"backup"}, &out, &out))
}
