package server

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestScriptsRunCommands(t *testing.T) {
	s := start(t, Options{})
	c := s.client()
	c.line("SET s v")
	for _, step := range []struct{ script, want string }{
		{"return 1.9", "1"}, {"return 'x'", `"x"`}, {"return true", "1"}, {"return false",
			"nil"}, {"return nil", "nil"},
		{"return {1,'a',{2},nil,3}", `[1 "a" [2]]`}, {"return {ok='fine'}",
			"fine"}, {"return {err='MY error'}", "(error) MY error"},
		{"return redis.status_reply('S')", "S"}, {"return redis.error_reply('E x')", "(error) E x"},
		{"return {KEYS[1], ARGV[1], #KEYS, #ARGV}", `["s" "arg" 1 1]`},
		{"return redis.call('GET', KEYS[1])", `"v"`}, {"return redis.call('GET', 'nosuch')", "nil"},
		{"return redis.call('SET', 'n', 10)", "OK"}, {"return redis.call('INCRBY', 'n', 5)", "15"},
		{"redis.call('RPUSH', 'l', 1, 2); return redis.call('LRANGE', 'l', 0, -1)", `["1" "2"]`},
		{"return redis.call('LPUSH', 's', 1)", "(error) " + string(errWrongType)},
		{"local e = redis.pcall('LPUSH', 's', 1); return e.err", `"` + string(errWrongType) + `"`},
		{"local ok, e = pcall(redis.call, 'LPUSH', 's', 1); return {ok, e.err}",
			`[nil "` + string(errWrongType) + `"]`},
		{"return redis.call('BLPOP', 'nosuch', 0)", "nil"}, {"return redis.sha1hex('')",
			`"da39a3ee5e6b4b0d3255bfef95601890afd80709"`},
		{"return redis.call('NOSUCH')", "(error) ERR Unknown Redis command called from script"},
		{"return redis.call('GET')", "(error) ERR Wrong number of args calling Redis command from script"},
		{"return redis.call('MULTI')",
			"(error) " + errScriptCommand},
		{"return redis.call('EVAL', 'return 1', 0)", "(error) " + errScriptCommand},
		{"return redis.call('CONFIG', 'GET', '*')", "(error) " + errScriptCommand},
		{"return cjson.encode({1, 'a', {b = true}})", `"[1,\"a\",{\"b\":true}]"`},
		{`return cjson.decode('{"a":[1,2,null]}').a`, "[1 2 nil]"},
		{"redis.call('SELECT', 1); redis.call('SET', 'other', 1); return 1",
			"1"}, {"return redis.call('EXISTS', 'other')", "0"},
		{"return os", "nil"}, {"return io", "nil"}, {"return require", "nil"}, {"return dofile", "nil"},
	} {
		require.Equal(t, step.want, c.do("EVAL", step.script, "1", "s", "arg"), step.script)
	}
	require.Contains(t, c.do("EVAL", "return (", "0"), "Error compiling script")
	require.Contains(t, c.do("EVAL", "error('bad')", "0"), "(error) ERR")
	require.Contains(t, c.do("EVAL", "return string.rep('x', 2000000000)", "0"), "string is too long")
	require.Contains(t, c.do("EVAL", "local f; f = function() return 1 + f() end; return f()", "0"),
		"stack overflow")
	require.Equal(t, "(error) ERR Number of keys can't be greater than number of args",
		c.do("EVAL", "return 1", "1"))
	require.Equal(t, "(error) NOSCRIPT No matching script. Please use EVAL.", c.line("EVALSHA abc 0"))
	require.Equal(t, `"e0e1f9fabfc9d4800c877a703b823ac0578ff8db"`, c.do("SCRIPT", "LOAD", "return 1"))
	require.Equal(t, "1", c.line("EVALSHA E0E1F9FABFC9D4800C877A703B823AC0578FF8DB 0"))
	require.Equal(t, "[1 0]", c.line("SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db abc"))
	require.Equal(t, "OK", c.line("SCRIPT FLUSH"))
	require.Equal(t, "[0]", c.line("SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db"))
	require.Equal(t, `"v"`, c.do("EVAL_RO", "return redis.call('GET', KEYS[1])", "1", "s"))
	require.Contains(t, c.do("EVAL_RO", "return redis.call('DEL', KEYS[1])", "1", "s"),
		"not allowed from read-only")
}

// TestAScriptIsOneTransaction: one that fails, or is ended, leaves nothing; a command within it that
// fails is undone by itself.
func TestAScriptIsOneTransaction(t *testing.T) {
	s := start(t, Options{ScriptTime: time.Second})
	c, other := s.client(), s.client()
	require.Contains(t, c.do("EVAL", "redis.call('SET', 'a', 1); redis.call('LPUSH', 'a', 1)", "0"),
		"WRONGTYPE")
	require.Equal(t, "0", c.line("EXISTS a"))
	long := "redis.pcall('HSET', 'h', 'f', 1, string.rep('x', 5000), 1); redis.call('SET', 'b', 1); return 1"
	require.Equal(t, "1", c.do("EVAL", long, "0"))
	require.Equal(t, "1", c.line("EXISTS h b"))
	other.send(encode("BLPOP", "q", "0"))
	s.awaitBlocked(1)
	require.Equal(t, "2", c.do("EVAL", "return redis.call('RPUSH', 'q', 1, 2)", "0"))
	require.Equal(t, `["q" "1"]`, other.receive())
	require.Equal(t, "OK", other.line("WATCH b"))
	c.do("EVAL", "return redis.call('INCR', 'b')", "0")
	other.line("MULTI")
	require.Equal(t, "nil", other.line("EXEC"))
	began := time.Now()
	require.Contains(t, c.do("EVAL", "redis.call('SET', 'c', 1); while true do end", "0"), "has run for 1s")
	require.Less(t, time.Since(began), 15*time.Second)
	require.Equal(t, "0", c.line("EXISTS c"))
}

// TestAFailedScriptRunsOnce: a script that failed after its first write made its turn run again with
// savepoints, so one without an end took twice its time, and commands beside it were counted twice.
func TestAFailedScriptRunsOnce(t *testing.T) {
	s := start(t, Options{ScriptTime: 100 * time.Millisecond})
	c := s.client()
	fails := []string{"while true do end", "error('late')", "redis.call('LPUSH', 'a', 1)"}
	for i, end := range fails {
		script := "redis.call('SET', 'a', 1); " + end
		c.send(encode("INCR", "before") + encode("EVAL", script, "0") + encode("INCR", "after"))
		require.Equal(t, strconv.Itoa(i+1), c.receive())
		require.Contains(t, c.receive(), "(error)", end)
		require.Equal(t, strconv.Itoa(i+1), c.receive())
	}
	require.Equal(t, "0", c.line("EXISTS a"))
	require.Contains(t, c.line("INFO commandstats"), "cmdstat_incr:calls="+strconv.Itoa(2*len(fails)))
}

// TestScriptKillEndsAScript: the reply was that none runs.
func TestScriptKillEndsAScript(t *testing.T) {
	s := start(t, Options{})
	c, other := s.client(), s.client()
	require.Contains(t, c.line("SCRIPT KILL"), "NOTBUSY")
	for _, command := range []string{"EVAL", "EVAL_RO"} {
		c.send(encode(command, "redis.call('GET', 'k'); while true do end", "0"))
		require.Eventually(t, func() bool { return other.line("SCRIPT KILL") == "OK" },
			20*time.Second, time.Millisecond)
		require.Contains(t, c.receive(), "ended by SCRIPT KILL")
	}
	require.Equal(t, "OK", c.line("SET k v"))
}

// TestAScriptIsEndedByItsMemory: a script of one line took all memory of the machine. What it makes and
// drops is no reason to end it.
func TestAScriptIsEndedByItsMemory(t *testing.T) {
	s := start(t, Options{ScriptBytes: 32 << 20})
	c := s.client()
	const values = "string.rep('x', 100000) .. i"
	keeps := "redis.call('SET', 'a', 1); local t = {}; for i = 1, 1e9 do t[i] = " + values + " end"
	require.Contains(t, c.do("EVAL", keeps, "0"), "OOM script has taken too much memory")
	require.Equal(t, "0", c.line("EXISTS a"))
	drops := "local t; for i = 1, 2000 do t = " + values + " end return #t"
	require.Equal(t, "100004", c.do("EVAL", drops, "0"))
}
