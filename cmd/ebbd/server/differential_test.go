package server

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

// startRedis runs Debian's redis-server without persistence, or skips the test.
func startRedis(t *testing.T) (addr string) {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed (Debian: apt-get install redis-server)")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	cmd := exec.Command(path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", t.TempDir(), "--daemonize", "no")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	addr = fmt.Sprintf("127.0.0.1:%d", port)
	require.Eventually(t, func() bool {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			_ = nc.Close()
		}
		return err == nil
	}, 10*time.Second, 20*time.Millisecond)
	return addr
}

// generator makes random commands over few keys, so that types and conditions meet.
type generator struct{ *rand.Rand }

func (g generator) of(list ...string) string { return list[g.IntN(len(list))] }

func (g generator) key() string    { return fmt.Sprintf("k%d", g.IntN(12)) }
func (g generator) member() string { return fmt.Sprintf("m%d", g.IntN(9)) }

func (g generator) value() string {
	return g.of(
		"",
		"a",
		"abc",
		"10",
		"-7",
		"3.25",
		"9223372036854775807",
		"hello world",
		"00",
		" 1",
		"1e2",
		strconv.Itoa(g.IntN(100)),
	)
}

func (g generator) index() string { return strconv.Itoa(g.IntN(14) - 7) }

// future is an instant that does not come during the test, in seconds.
func (g generator) future() string { return strconv.FormatInt(4_000_000_000+int64(g.IntN(5))*1000, 10) }

func (g generator) score() string {
	return g.of("0", "1", "-1", "2.5", "0.25", "100", "inf", "-inf", "3", "nan", "x", "1e3")
}

// template is a command with placeholders: see fill.
var templates = map[string][]string{
	"string": {
		"SET k v", "SET k v", "SET k v NX", "SET k v XX", "SET k v GET", "SET k v NX GET", "SET k v KEEPTTL",
		"SET k v EXAT future", "SET k v PXAT future000", "SET k v EX 0", "SET k v EX x", "SET k v NX XX",
		"SET k v EXAT future KEEPTTL", "SET k v XX GET KEEPTTL", "GET k", "GETSET k v", "GETDEL k", "GETEX k",
		"GETEX k PERSIST", "GETEX k EXAT future", "GETEX k EXAT 1", "GETEX k EX -1", "MGET k k k",
		"MSET k v k v",
		"MSET k v k", "MSETNX k v k v", "APPEND k v", "STRLEN k", "GETRANGE k i i", "SETRANGE k i v",
		"SETRANGE k 3 v", "INCR k", "DECR k", "INCRBY k n", "DECRBY k n", "INCRBYFLOAT k d", "SETNX k v",
		"SETEX k 100000 v", "SETEX k 0 v", "SETEX k x v", "PSETEX k 100000000 v", "SUBSTR k i i", "GET k k",
		"SETRANGE k 0 ''",
	},
	"key": {
		"DEL k", "DEL k k", "UNLINK k", "EXISTS k k k", "TYPE k", "RENAME k k", "RENAMENX k k", "COPY k k",
		"COPY k k REPLACE", "COPY k k DB 1", "COPY k k DB 99", "MOVE k 1", "EXPIREAT k future",
		"EXPIREAT k future NX",
		"EXPIREAT k future XX", "EXPIREAT k future GT", "EXPIREAT k future LT", "EXPIREAT k future NX XX",
		"EXPIREAT k future GT LT", "PEXPIREAT k future000", "EXPIREAT k 1", "EXPIRE k 0", "EXPIRE k -5",
		"EXPIRE k x",
		"EXPIRE k 9223372036854775807", "PEXPIRETIME k", "EXPIRETIME k", "PERSIST k", "TTL nokey",
		"TOUCH k k",
		"EXPIREAT k future FOO", "DBSIZE", "KEYS *", "KEYS k[1-4]", "KEYS k?", "KEYS k1*",
		"SELECT 1", "SELECT 0", "SELECT 0", "SELECT 77", "RANDOMKEY extra", "OBJECT", "SWAPDB 0 1",
		"ECHO v", "PING v",
	},
	"hash": {
		"HSET k m v", "HSET k m v m v", "HSET k m", "HMSET k m v m v", "HSETNX k m v", "HGET k m",
		"HMGET k m m",
		"HGETALL k", "HKEYS k", "HVALS k", "HDEL k m", "HDEL k m m m", "HEXISTS k m", "HLEN k", "HSTRLEN k m",
		"HINCRBY k m n", "HINCRBYFLOAT k m d", "HSCAN k 0 COUNT 1000", "HRANDFIELD k 0", "HSCAN k x",
		"HRANDFIELD k 100", "HSET k m n",
	},
	"list": {
		"LPUSH k v", "RPUSH k v v v", "LPUSHX k v", "RPUSHX k v v", "LPOP k", "RPOP k", "LPOP k 2",
		"RPOP k 0",
		"LPOP k -1", "LLEN k", "LRANGE k i i", "LRANGE k 0 -1", "LINDEX k i", "LSET k i v",
		"LREM k i v", "LREM k 0 a",
		"LTRIM k i i", "LINSERT k BEFORE v v", "LINSERT k AFTER a v", "LPOS k a", "LPOS k a RANK i",
		"LPOS k a COUNT 0 RANK i", "LPOS k a COUNT 2 MAXLEN 3", "LMOVE k k LEFT RIGHT",
		"LMOVE k k RIGHT RIGHT",
		"RPOPLPUSH k k", "LMPOP 2 k k LEFT", "LMPOP 2 k k RIGHT COUNT 3", "LMPOP 0 k LEFT",
		"LINSERT k FOO v v",
		"RPUSH k a a abc a",
	},
	"set": {
		"SADD k m", "SADD k m m m", "SREM k m m", "SISMEMBER k m", "SMISMEMBER k m m", "SMEMBERS k",
		"SCARD k",
		"SMOVE k k m", "SRANDMEMBER k 0", "SRANDMEMBER k 100", "SPOP k 0", "SPOP k -1", "SPOP k 100",
		"SSCAN k 0 COUNT 1000", "SUNION k k", "SINTER k k", "SDIFF k k k", "SUNIONSTORE k k k",
		"SINTERSTORE k k k",
		"SDIFFSTORE k k k", "SINTERCARD 2 k k", "SINTERCARD 2 k k LIMIT 1", "SINTERCARD 3 k k",
	},
	"zset": {
		"ZADD k s m", "ZADD k s m s m s m", "ZADD k NX s m", "ZADD k XX CH s m", "ZADD k GT CH s m s m",
		"ZADD k LT s m",
		"ZADD k INCR s m", "ZADD k NX XX s m", "ZADD k NX GT s m", "ZADD k XX INCR s m", "ZADD k s",
		"ZINCRBY k s m",
		"ZREM k m m", "ZCARD k", "ZSCORE k m", "ZMSCORE k m m", "ZRANK k m", "ZREVRANK k m", "ZCOUNT k s s",
		"ZCOUNT k (s s", "ZRANGE k i i", "ZRANGE k i i REV WITHSCORES", "ZRANGE k s s BYSCORE",
		"ZRANGE k (s s BYSCORE WITHSCORES LIMIT i i", "ZRANGE k s (s BYSCORE REV", "ZRANGE k 0 -1 WITHSCORES",
		"ZREVRANGE k i i WITHSCORES", "ZRANGEBYSCORE k s s WITHSCORES", "ZRANGEBYSCORE k -inf +inf LIMIT 1 2",
		"ZREVRANGEBYSCORE k s (s", "ZRANGESTORE k k i i", "ZRANGESTORE k k s s BYSCORE",
		"ZREMRANGEBYRANK k i i",
		"ZREMRANGEBYSCORE k s (s", "ZPOPMIN k", "ZPOPMAX k", "ZPOPMIN k 2", "ZPOPMAX k 0", "ZMPOP 2 k k MIN",
		"ZMPOP 2 k k MAX COUNT 2", "ZRANDMEMBER k 0", "ZRANDMEMBER k 100", "ZSCAN k 0 COUNT 1000",
		"ZUNION 2 k k",
		"ZUNION 2 k k WITHSCORES", "ZINTER 2 k k WITHSCORES", "ZDIFF 2 k k WITHSCORES",
		"ZUNIONSTORE k 2 k k WEIGHTS 2 s", "ZINTERSTORE k 2 k k AGGREGATE MAX",
		"ZUNIONSTORE k 2 k k AGGREGATE MIN",
		"ZDIFFSTORE k 2 k k", "ZINTERCARD 2 k k", "ZUNION 0 k", "ZRANGE k 0 1 LIMIT 0 1",
		"ZRANGE k - + BYLEX WITHSCORES",
		"ZADD lex 0 m 0 m", "ZRANGEBYLEX lex [m [m", "ZREVRANGEBYLEX lex + -", "ZLEXCOUNT lex [m +",
		"ZRANGE lex - [m BYLEX LIMIT 1 3", "ZREMRANGEBYLEX lex [m [m", "ZRANGEBYLEX lex m m",
		"ZREMRANGEBYRANK k 0 0",
	},
	"bits": {
		"SETBIT k bit 1", "SETBIT k bit 0", "SETBIT k bit 2", "SETBIT k -1 1", "GETBIT k bit", "GETBIT k x",
		"BITCOUNT k", "BITCOUNT k i i", "BITCOUNT k i i BIT", "BITCOUNT k i i BYTE", "BITPOS k 1",
		"BITPOS k 0", "BITPOS k 1 i", "BITPOS k 0 i", "BITPOS k 0 i i", "BITPOS k 1 i i BIT",
		"BITPOS k 0 i i BIT",
		"BITPOS k 2", "BITOP AND k k k", "BITOP OR k k k", "BITOP XOR k k k", "BITOP NOT k k",
		"BITOP NOT k k k",
		"BITFIELD k GET type bit SET type bit n INCRBY type bit n",
		"BITFIELD k INCRBY u2 bit 1 OVERFLOW SAT INCRBY u2 bit 9",
		"BITFIELD k OVERFLOW FAIL INCRBY type bit n GET u8 #1", "BITFIELD k OVERFLOW SAT SET type #2 n",
		"BITFIELD k GET u64 0",
		"BITFIELD k SET i8 0 200 SET u8 0 -1", "BITFIELD_RO k GET type bit", "BITFIELD_RO k SET u8 0 1",
		"BITFIELD k FOO",
		"SET k \xff\x00\xff", "SET k \xff\xff", "LCS k k", "LCS k k LEN",
		"LCS k k IDX MINMATCHLEN 1 WITHMATCHLEN", "LCS k k IDX LEN",
	},
	"sort": {
		"SORT k", "SORT k DESC", "SORT k ALPHA", "SORT k ALPHA DESC LIMIT i i",
		"SORT k BY k* GET # GET k*", "SORT k LIMIT 1 2",
		"SORT k BY w_* GET # GET h_*->f", "SORT k ALPHA STORE k", "SORT k BY nosort STORE k",
		"SORT_RO k BY k*->m1",
		"SORT_RO k STORE k", "RPUSH k n n n", "SADD k n n", "SET w_m1 n", "SET w_m2 v", "HSET h_m1 f v",
		"SORT k GET", "SORT k LIMIT x 1",
		"RPUSH k m m m",
	},
	"blocking": {
		"BLPOP k k 0.001", "BRPOP k 0.001", "BLMOVE k k LEFT RIGHT 0.001", "BRPOPLPUSH k k 0.001",
		"BLMPOP 0.001 2 k k RIGHT COUNT 2",
		"BZPOPMIN k k 0.001", "BZPOPMAX k 0.001", "BZMPOP 0.001 1 k MAX COUNT 2", "BLPOP k x", "BLPOP k -1",
	},
	"transaction": {
		"MULTI", "EXEC", "DISCARD", "WATCH k", "UNWATCH", "EXEC", "NOSUCH v v", "GET",
	},
}

// unordered are commands whose replies have no order.
var unordered = []string{
	"KEYS", "HGETALL", "HKEYS", "HVALS", "SMEMBERS", "SUNION", "SINTER", "SDIFF", "HSCAN", "SSCAN",
	"HRANDFIELD",
	"SRANDMEMBER", "SPOP", "ZRANDMEMBER", "ZSCAN",
}

// fill replaces the placeholders of a template.
func (g generator) fill(template string) []string {
	args := words(template)
	for i, arg := range args {
		if i == 0 {
			continue
		}
		switch arg {
		case "k":
			args[i] = g.key()
		case "v":
			args[i] = g.value()
		case "m":
			args[i] = g.member()
		case "i":
			args[i] = g.index()
		case "bit":
			args[i] = strconv.Itoa(g.IntN(40))
		case "type":
			args[i] = g.of("u1", "i5", "u8", "i16", "u63", "i64", "u64", "x8", "i0")
		case "n":
			args[i] = g.of(
				"1",
				"-3",
				"1000",
				"9223372036854775807",
				"-9223372036854775808",
				"x",
				"1.5",
			)
		case "d":
			args[i] = g.of("0.1", "1.5", "-2", "1e3", "x", "0", "3.0")
		case "s":
			args[i] = g.score()
		case "future", "(s", "[m":
			args[i] = map[string]func() string{
				"future": g.future,
				"(s":     func() string { return "(" + g.score() },
				"[m":     func() string { return g.of("[", "(") + g.member() },
			}[arg]()
		case "future000":
			args[i] = g.future() + "000"
		}
	}
	return args
}

// instants are those that the two clocks, a little apart, have given.
var instants = regexp.MustCompile(`1[78]\d{8}(\d{3})?`)

// normal makes replies comparable: the order of unordered ones.
func normal(args []string, reply string) string {
	if !slices.Contains(unordered, strings.ToUpper(args[0])) {
		return reply
	}
	fields := strings.FieldsFunc(
		reply,
		func(r rune) bool { return strings.ContainsRune("[]{}~ ", r) },
	)
	slices.Sort(fields)
	return strings.Join(fields, " ")
}

// TestRepliesAreThoseOfRedis runs random commands on this server and on Redis and compares each
// reply, and after each round the dump of all keys by reading commands.
func TestRepliesAreThoseOfRedis(t *testing.T) {
	racetest.NotQuick(t)
	redis := startRedis(t)
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	if n, err := strconv.Atoi(os.Getenv("EBBD_ROUNDS")); err == nil {
		rounds = n
	}
	for _, version := range []string{"2", "3"} {
		t.Run("version_"+version, func(t *testing.T) {
			s := start(t, Options{})
			for seed := range uint64(rounds) {
				compareRound(t, s.addr, redis, version, seed)
			}
		})
	}
}

func compareRound(t *testing.T, ours, redis, version string, seed uint64) {
	a, b := dial(t, ours), dial(t, redis)
	defer a.nc.Close()
	defer b.nc.Close()
	for _, c := range []*client{a, b} {
		c.do("HELLO", version)
		require.Equal(t, "OK", c.do("FLUSHALL"))
	}
	g := generator{rand.New(rand.NewPCG(seed, 7))}
	groups := make([]string, 0, len(templates))
	for name := range templates {
		groups = append(groups, name)
	}
	slices.Sort(groups)
	var script []string
	for range 400 {
		group := g.of(groups...)
		if group == "transaction" && g.IntN(3) > 0 {
			group = "key"
		}
		args := g.fill(g.of(templates[group]...))
		script = append(script, fmt.Sprintf("%q", args))
		got, want := a.do(args...), b.do(args...)
		if strings.HasSuffix(args[0], "INCRBYFLOAT") && got != want && len(want) > 19 &&
			want[0] == '"' {
			return // the sum is exact here, and a long double there
		}
		if different(args, got, want) {
			tail := script[max(0, len(script)-12):]
			t.Fatalf("seed %d, version %s: %q\n ours: %s\nredis: %s\nlast commands:\n%s",
				seed, version, args, got, want, strings.Join(tail, "\n"))
		}
	}
}

// different says whether replies differ in what is promised.
func different(args []string, got, want string) bool {
	if strings.HasPrefix(got, "(error)") && strings.HasPrefix(want, "(error)") {
		code := func(reply string) string { return strings.Fields(reply)[1] }
		return code(got) != code(want)
	}
	x, notA := strconv.ParseInt(got, 10, 64)
	y, notB := strconv.ParseInt(want, 10, 64)
	if strings.HasSuffix(args[0], "EXPIRETIME") && notA == nil && notB == nil {
		return x-y > 2000 || y-x > 2000 // the clocks of two processes
	}
	if strings.EqualFold(args[0], "EXEC") {
		// The order of an inner reply is not known here.
		sortRunes := func(s string) string {
			runes := []rune(instants.ReplaceAllString(s, "T"))
			slices.Sort(runes)
			return string(runes)
		}
		return sortRunes(got) != sortRunes(want)
	}
	return normal(args, got) != normal(args, want)
}
