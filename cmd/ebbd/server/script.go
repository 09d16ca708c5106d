package server

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"time"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

const (
	scriptBytes = 128 << 10 // longest script: its parser goes as deep as the script nests
	scriptCount = 4096      // scripts that are known by their hash
)

// scriptTable has the scripts that EVAL and SCRIPT LOAD have brought, by the SHA-1 of their text. It
// is not stored: EVALSHA of an unknown one is NOSCRIPT, and clients send the text again.
type scriptTable struct {
	mu      sync.Mutex
	by      map[string]*lua.FunctionProto
	running map[*lua.LState]context.CancelCauseFunc
}

const (
	errScriptMemory = replyError(
		"OOM script has taken too much memory: it was ended, and its writes are undone")
	errScriptKilled = replyError("ERR script was ended by SCRIPT KILL, and its writes are undone")
)

func errScriptTime(limit time.Duration) error {
	return replyError(fmt.Sprintf("ERR script has run for %v: it was ended, and its writes are undone",
		limit))
}

// run notes a script that runs until ended is called, or SCRIPT KILL, its time or its memory ends it.
func (t *scriptTable) run(l *lua.LState, o *Options) (ctx context.Context, ended func()) {
	killable, kill := context.WithCancelCause(context.Background())
	ctx, cancel := context.WithTimeoutCause(killable, o.ScriptTime, errScriptTime(o.ScriptTime))
	go watchHeap(ctx, o.ScriptBytes, func() { kill(errScriptMemory) })
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running == nil {
		t.running = make(map[*lua.LState]context.CancelCauseFunc)
	}
	t.running[l] = kill
	return ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.running, l)
		cancel()
		kill(nil)
	}
}

// watchHeap calls end if the heap holds so many bytes more than at first, until ctx ends. The interpreter
// does not count what its values take. What other goroutines allocate meanwhile counts, too, but not
// what is garbage.
func watchHeap(ctx context.Context, most int, end func()) {
	before := heapBytes()
	over := func() bool { return heapBytes() > before+uint64(most) }
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if over() {
			if runtime.GC(); over() {
				end()
			}
		}
	}
}

// heapBytes is the size of the objects in the heap, the garbage that is not collected yet included.
func heapBytes() uint64 {
	sample := [1]metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample[:])
	return sample[0].Value.Uint64()
}

// kill ends the scripts that run.
func (t *scriptTable) kill() (some bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, kill := range t.running {
		kill(errScriptKilled)
	}
	return len(t.running) > 0
}

// load compiles a script, unless it is known.
func (t *scriptTable) load(text []byte) (sha string, proto *lua.FunctionProto, err error) {
	sum := sha1.Sum(text)
	sha = hex.EncodeToString(sum[:])
	if proto := t.get(sha); proto != nil {
		return sha, proto, nil
	}
	if len(text) > scriptBytes {
		return "", nil, replyError("ERR script is longer than 128 KiB")
	}
	chunk, err := parse.Parse(strings.NewReader(string(text)), "@user_script")
	if err == nil {
		proto, err = lua.Compile(chunk, "@user_script")
	}
	if err != nil {
		return "", nil, replyError("ERR Error compiling script (new function): " + oneLine(err.Error()))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = make(map[string]*lua.FunctionProto)
	}
	for other := range t.by {
		if len(t.by) < scriptCount {
			break
		}
		delete(t.by, other)
	}
	t.by[sha] = proto
	return sha, proto, nil
}

func (t *scriptTable) get(sha string) *lua.FunctionProto {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.by[strings.ToLower(sha)]
}

func (t *scriptTable) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.by)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// evalCommand is EVAL, EVALSHA and their _RO forms. The script is one command: it runs in a turn, its
// writes are one transaction, and if it fails, none of them stays.
func evalCommand(r *request) error {
	n, ok := parseInt(r.args[2])
	switch {
	case !ok:
		return errNotInt
	case n < 0:
		return replyError("ERR Number of keys can't be negative")
	case n > int64(len(r.args)-3):
		return replyError("ERR Number of keys can't be greater than number of args")
	case r.inScript:
		return replyError("ERR This Redis command is not allowed from script")
	}
	var proto *lua.FunctionProto
	if strings.HasPrefix(r.cmd.name, "evalsha") {
		if proto = r.s.scripts.get(string(r.args[1])); proto == nil {
			return replyError("NOSCRIPT No matching script. Please use EVAL.")
		}
	} else {
		var err error
		if _, proto, err = r.s.scripts.load(r.args[1]); err != nil {
			return err
		}
	}
	keys, argv := r.args[3:3+n], r.args[3+n:]
	return runScript(r, proto, keys, argv)
}

// runScript runs a compiled script in a state of its own, which has no way to files, processes or
// other scripts.
func runScript(r *request, proto *lua.FunctionProto, keys, argv [][]byte) error {
	db, nested := r.c.db, r.nested
	r.nested, r.inScript = true, true
	defer func() { r.c.db, r.nested, r.inScript = db, nested, false }()
	l := newState(r)
	defer l.Close()
	ctx, ended := r.s.scripts.run(l, &r.s.o)
	defer ended()
	l.SetContext(ctx)
	l.SetGlobal("KEYS", luaStrings(l, keys))
	l.SetGlobal("ARGV", luaStrings(l, argv))
	err := l.CallByParam(lua.P{Fn: l.NewFunctionFromProto(proto), NRet: 1, Protect: true})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return scriptError(err)
	}
	if err := r.bind(); err != nil { // a script may have selected another database
		return err
	}
	replyLua(r, l.Get(-1), 0)
	return nil
}

// scriptError is the reply for an error that the script has not caught: that of a command as it was.
func scriptError(err error) error {
	if api, ok := err.(*lua.ApiError); ok {
		if t, ok := api.Object.(*lua.LTable); ok {
			if text := t.RawGetString("err"); text.Type() == lua.LTString {
				return replyError(oneLine(text.String()))
			}
		}
		return replyError("ERR " + oneLine(api.Object.String()))
	}
	return replyError("ERR " + oneLine(err.Error()))
}

func luaStrings(l *lua.LState, list [][]byte) *lua.LTable {
	t := l.CreateTable(len(list), 0)
	for _, b := range list {
		t.Append(lua.LString(b))
	}
	return t
}

// newState returns a state with the libraries of scripts.
func newState(r *request) *lua.LState {
	l := lua.NewState(lua.Options{SkipOpenLibs: true, RegistryMaxSize: 1 << 20, MinimizeStackMemory: true})
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenTable, lua.OpenString, lua.OpenMath} {
		l.Push(l.NewFunction(open))
		l.Call(0, 0)
	}
	for _, name := range []string{"dofile", "loadfile", "print", "require", "module",
		"collectgarbage", "_printregs"} {
		l.SetGlobal(name, lua.LNil)
	}
	boundStrings(l, r.s.o.MaxBulk)
	redis := l.NewTable()
	l.SetFuncs(redis, map[string]lua.LGFunction{
		"call":         func(l *lua.LState) int { return luaCall(r, l, true) },
		"pcall":        func(l *lua.LState) int { return luaCall(r, l, false) },
		"error_reply":  func(l *lua.LState) int { return luaReply(l, "err") },
		"status_reply": func(l *lua.LState) int { return luaReply(l, "ok") },
		"sha1hex": func(l *lua.LState) int {
			sum := sha1.Sum([]byte(l.CheckString(1)))
			l.Push(lua.LString(hex.EncodeToString(sum[:])))
			return 1
		},
		"log": func(l *lua.LState) int {
			r.s.log.Debug("script", "text", l.CheckString(2))
			return 0
		},
		"replicate_commands": func(l *lua.LState) int { l.Push(lua.LTrue); return 1 },
	})
	for i, level := range []string{"DEBUG", "VERBOSE", "NOTICE", "WARNING"} {
		redis.RawSetString("LOG_"+level, lua.LNumber(i))
	}
	redis.RawSetString("REDIS_VERSION", lua.LString(redisVersion))
	l.SetGlobal("redis", redis)
	l.SetGlobal("cjson", jsonLibrary(l))
	return l
}

// boundStrings bounds what one call of string.rep makes.
func boundStrings(l *lua.LState, most int) {
	library := l.GetGlobal("string").(*lua.LTable)
	rep := library.RawGetString("rep").(*lua.LFunction)
	library.RawSetString("rep", l.NewFunction(func(l *lua.LState) int {
		text, n := l.CheckString(1), l.CheckInt(2)
		if n > 0 && len(text) > most/n {
			l.RaiseError("string is too long")
		}
		l.Push(rep)
		l.Push(lua.LString(text))
		l.Push(lua.LNumber(n))
		l.Call(2, 1)
		return 1
	}))
}

func luaReply(l *lua.LState, field string) int {
	text := l.CheckString(1)
	if field == "err" && !strings.Contains(text, " ") {
		text = "ERR " + text
	}
	t := l.NewTable()
	t.RawSetString(field, lua.LString(strings.TrimPrefix(text, "-")))
	l.Push(t)
	return 1
}

// scriptCommand is SCRIPT.
func scriptCommand(r *request) error {
	switch sub := r.word(1); {
	case sub == "LOAD" && len(r.args) == 3:
		sha, _, err := r.s.scripts.load(r.args[2])
		if err != nil {
			return err
		}
		r.w.BulkString(sha)
	case sub == "EXISTS" && len(r.args) > 2:
		r.w.Array(len(r.args) - 2)
		for _, sha := range r.args[2:] {
			r.intOf(r.s.scripts.get(string(sha)) != nil)
		}
	case sub == "FLUSH" && flushMode(r, 2) == nil:
		r.s.scripts.clear()
		r.w.Simple("OK")
	case sub == "KILL" && len(r.args) == 2:
		if !r.s.scripts.kill() {
			return replyError("NOTBUSY No scripts in execution right now.")
		}
		r.w.Simple("OK")
	case sub == "HELP":
		return help(r, "EXISTS <sha1> [<sha1> ...]", "FLUSH [ASYNC|SYNC]", "KILL", "LOAD <script>")
	default:
		return errSubcommand(r)
	}
	return nil
}
