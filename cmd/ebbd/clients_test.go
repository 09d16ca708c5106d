package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	redigo "github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// The tests of this file use clients as their documentation does, unchanged.

func TestGoRedis(t *testing.T) {
	p := startProcess(t, "--dir", t.TempDir(), "--requirepass", "secret")
	for _, version := range []int{2, 3} {
		t.Run(fmt.Sprintf("version_%d", version), func(t *testing.T) {
			ctx := t.Context()
			c := goredis.NewClient(&goredis.Options{
				Addr: p.addr, Password: "secret", DB: version, Protocol: version, ClientName: "test",
			})
			defer c.Close()
			require.NoError(t, c.Set(ctx, "k", "v", time.Minute).Err())
			require.Equal(t, "v", c.Get(ctx, "k").Val())
			require.Equal(t, time.Minute, c.TTL(ctx, "k").Val())
			require.ErrorIs(t, c.Get(ctx, "absent").Err(), goredis.Nil)
			require.NoError(t, c.HSet(ctx, "h", "a", 1, "b", 2).Err())
			require.Equal(t, map[string]string{"a": "1", "b": "2"}, c.HGetAll(ctx, "h").Val())
			require.Equal(t, []int64{1}, c.HExpire(ctx, "h", time.Minute, "a").Val())
			require.Equal(t, []int64{60, -1}, c.HTTL(ctx, "h", "a", "b").Val())
			require.NoError(t, c.ZAdd(ctx, "z", goredis.Z{Score: 1.5, Member: "m"}).Err())
			require.Equal(
				t,
				[]goredis.Z{{Score: 1.5, Member: "m"}},
				c.ZRangeWithScores(ctx, "z", 0, -1).Val(),
			)
			require.NoError(t, c.SAdd(ctx, "s", "x", "y").Err())
			require.Equal(t, []string{"x", "y"}, c.SMembers(ctx, "s").Val())
			require.NoError(t, c.RPush(ctx, "l", "1", "2").Err())
			require.Equal(t, []string{"1", "2"}, c.LRange(ctx, "l", 0, -1).Val())

			cmds, err := c.TxPipelined(ctx, func(p goredis.Pipeliner) error {
				p.Incr(ctx, "n")
				p.IncrBy(ctx, "n", 4)
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, int64(5), cmds[1].(*goredis.IntCmd).Val())
			require.ErrorIs(t, c.Watch(ctx, func(tx *goredis.Tx) error {
				if err := c.Incr(ctx, "n").Err(); err != nil { // another connection
					return err
				}
				_, err := tx.TxPipelined(ctx, func(p goredis.Pipeliner) error {
					return p.Set(ctx, "n", 100, 0).Err()
				})
				return err
			}, "n"), goredis.TxFailedErr)
			require.Equal(t, "6", c.Get(ctx, "n").Val())

			seen := 0
			for iter := c.Scan(ctx, 0, "*", 2).Iterator(); iter.Next(ctx); {
				seen++
			}
			require.Equal(t, 6, seen)
			require.NotEmpty(t, c.Command(ctx).Val())
			require.Contains(t, c.Info(ctx, "server").Val(), "redis_version")
		})
	}
}

func TestRueidis(t *testing.T) {
	p := startProcess(t, "--dir", t.TempDir())
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{p.addr}, DisableCache: true, // client-side caching is not supported
	})
	require.NoError(t, err)
	defer c.Close()
	ctx := t.Context()
	require.NoError(t, c.Do(ctx, c.B().Set().Key("k").Value("v").ExSeconds(60).Build()).Error())
	v, err := c.Do(ctx, c.B().Get().Key("k").Build()).ToString()
	require.NoError(t, err)
	require.Equal(t, "v", v)
	require.NoError(
		t,
		c.Do(ctx, c.B().Hset().Key("h").FieldValue().FieldValue("f", "v").Build()).Error(),
	)
	m, err := c.Do(ctx, c.B().Hgetall().Key("h").Build()).AsStrMap()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"f": "v"}, m)
	cmds := make(rueidis.Commands, 0, 100)
	for range 100 {
		cmds = append(cmds, c.B().Incr().Key("n").Build())
	}
	replies := c.DoMulti(ctx, cmds...)
	last, err := replies[99].ToInt64()
	require.NoError(t, err)
	require.Equal(t, int64(100), last)
	require.True(t, rueidis.IsRedisNil(c.Do(ctx, c.B().Get().Key("absent").Build()).Error()))
}

func TestRedigo(t *testing.T) {
	p := startProcess(t, "--dir", t.TempDir())
	c := p.dial(t)
	_, err := c.Do("MSET", "a", 1, "b", 2)
	require.NoError(t, err)
	values, err := redigo.Strings(c.Do("MGET", "a", "b", "c"))
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2", ""}, values)
	require.NoError(t, c.Send("MULTI"))
	require.NoError(t, c.Send("INCR", "a"))
	require.NoError(t, c.Send("INCR", "b"))
	sums, err := redigo.Ints(c.Do("EXEC"))
	require.NoError(t, err)
	require.Equal(t, []int{2, 3}, sums)
	_, err = c.Do("INCR")
	var reply redigo.Error
	require.True(t, errors.As(err, &reply))
}

// program runs a program that is not part of Go, or skips the test.
func program(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func TestRedisCli(t *testing.T) {
	p := startProcess(t, "--dir", t.TempDir())
	_, port, err := net.SplitHostPort(p.addr)
	require.NoError(t, err)
	require.Equal(t, "OK\n", program(t, "redis-cli", "-p", port, "set", "k", "v", "ex", "100"))
	require.Equal(t, "v\n", program(t, "redis-cli", "-3", "-p", port, "get", "k"))
	require.Contains(t, program(t, "redis-cli", "-p", port, "--scan"), "k")
	require.Contains(t, program(t, "redis-cli", "-p", port, "--bigkeys"), "Biggest string found")
	require.Contains(t, program(
		t,
		"redis-benchmark",
		"-p",
		port,
		"-n",
		"1000",
		"-P",
		"8",
		"-q",
		"-t",
		"ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset",
	), "MSET")
}

func TestPythonClient(t *testing.T) {
	python := "/usr/bin/python3" // the one that Debian's packages belong to
	if exec.Command(python, "-c", "import redis").Run() != nil {
		t.Skip("python3-redis is not installed (Debian: apt-get install python3-redis)")
	}
	p := startProcess(t, "--dir", t.TempDir())
	_, port, err := net.SplitHostPort(p.addr)
	require.NoError(t, err)
	require.Equal(t, "ok\n", program(t, python, filepath.Join("testdata", "client.py"), port))
}

// TestNodeClients needs a directory whose node_modules has the npm packages redis and ioredis.
func TestNodeClients(t *testing.T) {
	dir := os.Getenv("EBBD_NODE_DIR")
	if dir == "" {
		t.Skip("EBBD_NODE_DIR is not set (npm install redis ioredis)")
	}
	p := startProcess(t, "--dir", t.TempDir())
	_, port, err := net.SplitHostPort(p.addr)
	require.NoError(t, err)
	script, err := os.ReadFile(filepath.Join("testdata", "clients.mjs"))
	require.NoError(t, err)
	file := filepath.Join(dir, "ebbd-clients.mjs")
	require.NoError(t, os.WriteFile(file, script, 0o600))
	t.Cleanup(func() { _ = os.Remove(file) })
	require.Equal(t, "ok\n", program(t, "node", file, port))
}
