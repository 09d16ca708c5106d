package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
)

// The benchmarks of this file start servers as processes. Each runs once, whatever -benchtime says,
// and takes up to a minute: go test -run xxx -bench Figure -timeout 30m .

// redisServer runs a redis-server that syncs as ebbd does. It skips the benchmark if there is none.
func redisServer(b *testing.B) (addr string, pid int) {
	b.Helper()
	needPrograms(b, "redis-server")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	addr = l.Addr().String()
	require.NoError(b, l.Close())
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("redis-server", "--port", port, "--dir", b.TempDir(), "--save", "",
		"--appendonly", "yes", "--appendfsync", "always")
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(b, func() bool {
		c, err := redis.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	return addr, cmd.Process.Pid
}

// processorTime is what a process has taken of the processors, in microseconds; 0 without /proc.
func processorTime(b *testing.B, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	const user, system, hz = 11, 12, 100 // fields behind the name
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	return (parseNumber(b, fields[user]) + parseNumber(b, fields[system])) * 1e6 / hz
}

func needPrograms(b *testing.B, names ...string) {
	b.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			b.Skipf("%s is not installed: apt-get install redis-server redis-tools", name)
		}
	}
}

// redisBenchmark runs redis-benchmark and returns the fields of its last line: name, commands a
// second, then average, least, p50, p95, p99 and longest time in milliseconds.
func redisBenchmark(b *testing.B, ctx context.Context, addr string, args ...string) []string {
	_, port, _ := net.SplitHostPort(addr)
	args = append([]string{"-p", port, "--csv", "-r", "1000000", "-d", "100"}, args...)
	out, err := exec.CommandContext(ctx, "redis-benchmark", args...).Output()
	if ctx.Err() != nil {
		return nil
	}
	require.NoError(b, err)
	rows, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	require.NoError(b, err)
	return rows[len(rows)-1]
}

func parseNumber(b *testing.B, text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	require.NoError(b, err)
	return n
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// BenchmarkFigureGetBesideWrites compares the 99th percentile of GET, by ten clients, while fifty
// clients write as fast as they can, with a sync before each reply. The servers take turns.
func BenchmarkFigureGetBesideWrites(b *testing.B) {
	needPrograms(b, "redis-benchmark")
	for _, pipeline := range []string{"1", "16"} {
		b.Run("pipeline="+pipeline, func(b *testing.B) {
			redisAddr, _ := redisServer(b)
			addresses := []string{startProcess(b, "--dir", b.TempDir()).addr, redisAddr}
			p99, rate := [2][]float64{}, [2][]float64{}
			for round := range 6 {
				ctx, cancel := context.WithCancel(b.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					redisBenchmark(b, ctx, addresses[round%2], "-c", "50", "-P", pipeline, "-t", "set", "-l")
				}()
				time.Sleep(time.Second)
				row := redisBenchmark(b, b.Context(), addresses[round%2], "-c", "10", "-n", "20000",
					"-t", "get")
				cancel()
				<-ended
				p99[round%2] = append(p99[round%2], parseNumber(b, row[6]))
				rate[round%2] = append(rate[round%2], parseNumber(b, row[1]))
			}
			b.ReportMetric(median(p99[0]), "p99-ms/ebbd")
			b.ReportMetric(median(p99[1]), "p99-ms/redis")
			b.ReportMetric(median(p99[0])/median(p99[1]), "p99-x-redis")
			b.ReportMetric(median(rate[0])/median(rate[1]), "gets-x-redis")
		})
	}
}

// BenchmarkFigureThroughput compares commands a second of fifty clients, with a sync before each
// reply of a write, and the processor time of a command. The servers take turns: median of five.
func BenchmarkFigureThroughput(b *testing.B) {
	needPrograms(b, "redis-benchmark")
	redisAddr, redisPID := redisServer(b)
	ebbd := startProcess(b, "--dir", b.TempDir())
	addresses, pids := []string{ebbd.addr, redisAddr}, []int{ebbd.cmd.Process.Pid, redisPID}
	commands := map[string][]string{
		"SET": {"-t", "set"}, "INCR": {"-t", "incr"}, "GET": {"-t", "get"},
		"HSET":  {"HSET", "h:__rand_int__", "f", "v"},
		"SETEX": {"SETEX", "k:__rand_int__", "600", "0123456789"},
	}
	for _, name := range []string{"SET", "INCR", "HSET", "SETEX", "GET"} {
		for _, pipeline := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/P%d", name, pipeline), func(b *testing.B) {
				n := map[bool]int{true: 20_000, false: 100_000}[pipeline == 1]
				if name == "GET" {
					n *= 4
				}
				args := []string{"-c", "50", "-n", strconv.Itoa(n), "-P", strconv.Itoa(pipeline)}
				args = append(args, commands[name]...)
				rate, took := [2][]float64{}, [2][]float64{}
				for round := range 10 {
					side := round % 2
					began := processorTime(b, pids[side])
					row := redisBenchmark(b, b.Context(), addresses[side], args...)
					took[side] = append(took[side], (processorTime(b, pids[side])-began)/float64(n))
					rate[side] = append(rate[side], parseNumber(b, row[1]))
				}
				b.ReportMetric(median(took[0]), "ebbd-us")
				b.ReportMetric(median(took[1]), "redis-us")
				b.ReportMetric(median(rate[0]), "ebbd/s")
				b.ReportMetric(median(rate[1]), "redis/s")
				b.ReportMetric(median(rate[0])/median(rate[1]), "x-redis")
			})
		}
	}
}

// fillStrings sets n keys of redis-benchmark's names to values of 1000 bytes.
func fillStrings(b *testing.B, c redis.Conn, n int, options ...any) {
	b.Helper()
	value := bytes.Repeat([]byte("v"), 1000)
	for i := 0; i < n; i += 1000 {
		for j := range 1000 {
			args := append([]any{fmt.Sprintf("key:%012d", i+j), value}, options...)
			require.NoError(b, c.Send("SET", args...))
		}
		_, err := c.Do("")
		require.NoError(b, err)
	}
}

// memoryOf returns a line of /proc/PID/status in MiB.
func memoryOf(b *testing.B, p *process, line string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		b.Skip("needs /proc")
	}
	match := regexp.MustCompile(line + `:\s+(\d+) kB`).FindSubmatch(text)
	require.NotNil(b, match, line)
	return parseNumber(b, string(match[1])) / 1024
}

// BenchmarkFigureMoreDataThanCache reads uniform keys of a gigabyte through a cache of 100 MiB, with
// fifty clients. The memory is that of the process without the pages of files that it maps.
func BenchmarkFigureMoreDataThanCache(b *testing.B) {
	needPrograms(b, "redis-benchmark")
	p := startProcess(b, "--dir", b.TempDir(), "--cache", "100MiB", "--appendfsync", "no")
	fillStrings(b, p.dial(b), 1_000_000)
	b.ReportMetric(memoryOf(b, p, "RssAnon"), "MiB/filled")
	for _, pipeline := range []string{"1", "16"} {
		redisBenchmark(b, b.Context(), p.addr, "-c", "50", "-n", "200000", "-t", "get", "-P", "16")
		row := redisBenchmark(b, b.Context(), p.addr, "-c", "50", "-n", "300000", "-t", "get", "-P", pipeline)
		b.ReportMetric(parseNumber(b, row[1]), "gets/s/P"+pipeline)
	}
	b.ReportMetric(memoryOf(b, p, "RssAnon"), "MiB/read")
}

// BenchmarkFigureRestartAfterKill kills a server with a gigabyte, and measures the time from the start
// of the next process to its first reply.
func BenchmarkFigureRestartAfterKill(b *testing.B) {
	dir := b.TempDir()
	p := startProcess(b, "--dir", dir, "--appendfsync", "everysec")
	fillStrings(b, p.dial(b), 1_000_000)
	_, err := p.dial(b).Do("SAVE") // a sync
	require.NoError(b, err)
	require.NoError(b, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
	log, err := filepath.Glob(filepath.Join(dir, "ebbd.ebb-*"))
	require.NoError(b, err)
	size := int64(0)
	for _, path := range log {
		info, err := os.Stat(path)
		require.NoError(b, err)
		size += info.Size()
	}
	begin := time.Now()
	c := startProcess(b, "--dir", dir).dial(b)
	value, err := redis.String(c.Do("GET", "key:000000999999"))
	require.NoError(b, err)
	require.Len(b, value, 1000)
	b.ReportMetric(float64(time.Since(begin).Milliseconds()), "ms/first-reply")
	b.ReportMetric(float64(size>>20), "MiB/log")
	n, err := redis.Int(c.Do("DBSIZE"))
	require.NoError(b, err)
	require.Equal(b, 1_000_000, n)
}

// BenchmarkFigureMassExpiry lets a million keys expire within one second. A client that reads and
// writes meanwhile reports its longest wait, another one counts the events.
func BenchmarkFigureMassExpiry(b *testing.B) {
	const keys = 1_000_000
	p := startProcess(b, "--dir", b.TempDir(), "--appendfsync", "everysec")
	c := p.dial(b)
	_, err := c.Do("CONFIG", "SET", "notify-keyspace-events", "Ex")
	require.NoError(b, err)
	due := time.Now().Add(30 * time.Second)
	for i := range keys {
		at := due.UnixMilli() + int64(i)*1000/keys
		require.NoError(b, c.Send("SET", fmt.Sprintf("key:%012d", i), "0123456789", "PXAT", at))
		if i%1000 == 999 {
			_, err := c.Do("")
			require.NoError(b, err)
		}
	}
	require.Less(b, time.Now(), due, "filling takes too long")
	before := freeBytes(b, c)
	events := make(chan int)
	subscriber := p.dial(b)
	_, err = subscriber.Do("SUBSCRIBE", "__keyevent@0__:expired")
	require.NoError(b, err)
	go func() {
		n := 0
		for n < keys {
			if _, err := redis.ReceiveWithTimeout(subscriber, time.Minute); err != nil {
				break
			}
			n++
		}
		events <- n
	}()
	idle := probe(b, c, func() bool { return time.Now().After(due.Add(-time.Second)) })
	got := 0
	expiring := probe(b, c, func() bool {
		select {
		case got = <-events:
			return true
		default:
			return false
		}
	})
	took := time.Since(due)
	n, err := redis.Int(c.Do("DBSIZE"))
	require.NoError(b, err)
	require.Equal(b, 1, n)
	require.Equal(b, keys, got, "events")
	for i, name := range []string{"get", "set"} {
		b.ReportMetric(idle[i], "ms/idle-"+name)
		b.ReportMetric(expiring[i], "ms/longest-"+name)
	}
	b.ReportMetric(took.Seconds(), "s/all-events")
	_, err = c.Do("SAVE")
	require.NoError(b, err)
	time.Sleep(2 * time.Second)
	b.ReportMetric(float64(freeBytes(b, c)-before)/(1<<20), "MiB/freed")
}

// probe reads and writes a key each millisecond until stop says so, and returns the longest time of
// each, in milliseconds.
func probe(b *testing.B, c redis.Conn, stop func() bool) (longest [2]float64) {
	for i := 0; !stop(); i++ {
		time.Sleep(time.Millisecond)
		var err error
		begin := time.Now()
		if i%2 == 0 {
			_, err = c.Do("GET", "probe")
		} else {
			_, err = c.Do("SET", "probe", i)
		}
		longest[i%2] = max(longest[i%2], float64(time.Since(begin).Microseconds())/1e3)
		require.True(b, err == nil || err == redis.ErrNil, err)
	}
	return longest
}

// freeBytes of the store, from INFO.
func freeBytes(b *testing.B, c redis.Conn) int64 {
	text, err := redis.String(c.Do("INFO", "ebb"))
	require.NoError(b, err)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "ebb_free_bytes:"); ok {
			return int64(parseNumber(b, value))
		}
	}
	b.Fatalf("no ebb_free_bytes in %q", text)
	return 0
}
