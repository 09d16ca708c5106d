package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	lua "github.com/yuin/gopher-lua"

	"github.com/ebbkv/ebb/cmd/ebbd/resp"
)

const errScriptCommand = "ERR This Redis command is not allowed from script"

// luaCall is redis.call and redis.pcall: it runs a command in the transaction of the script. An error
// of call ends the script unless it is caught; pcall returns it as a table.
func luaCall(r *request, l *lua.LState, raise bool) int {
	reply := commandOf(r, l)
	if t, ok := reply.(*lua.LTable); ok && raise && t.RawGetString("err") != lua.LNil {
		l.Error(t, 1)
	}
	l.Push(reply)
	return 1
}

func luaError(l *lua.LState, text string) lua.LValue {
	t := l.NewTable()
	t.RawSetString("err", lua.LString(text))
	return t
}

// commandOf runs the command of the arguments on the stack.
func commandOf(r *request, l *lua.LState) lua.LValue {
	args := make([][]byte, l.GetTop())
	for i := range args {
		switch v := l.Get(i + 1).(type) {
		case lua.LString:
			args[i] = []byte(v)
		case lua.LNumber:
			args[i] = []byte(luaNumber(float64(v)))
		default:
			return luaError(l, "ERR Lua redis lib command arguments must be strings or integers")
		}
	}
	if len(args) == 0 {
		return luaError(l, "ERR Please specify at least one argument for this redis.call() call")
	}
	const denied = flagNoAuth | flagNever | flagNow | flagTurn | flagAdmin | flagPubSub
	cmd := lookup(args[0])
	switch {
	case cmd == nil:
		return luaError(l, "ERR Unknown Redis command called from script")
	case cmd.arity > 0 && len(args) != cmd.arity || cmd.arity < 0 && len(args) < -cmd.arity:
		return luaError(l, "ERR Wrong number of args calling Redis command from script")
	case cmd.flags&denied != 0 || cmd.name == "client" || cmd.name == "script" || cmd.name == "unwatch":
		return luaError(l, errScriptCommand)
	case cmd.flags&flagWrite != 0 && r.cmd.flags&flagWrite == 0:
		return luaError(l, "ERR Write commands are not allowed from read-only scripts.")
	}
	outer := r.w
	inner := &resp.Writer{Version: 2, Most: r.s.o.MaxReplies}
	r.execution.w = inner
	r.execution.call(cmd, args)
	r.execution.w = outer
	if inner.Overflow() {
		return luaError(l, "ERR the reply exceeds the bound of replies")
	}
	value, _ := fromReply(l, inner.Bytes())
	return value
}

func luaNumber(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e17 {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}

// fromReply turns an encoded reply of version 2 into a value, and returns the bytes behind it.
func fromReply(l *lua.LState, b []byte) (value lua.LValue, rest []byte) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 1 {
		return lua.LFalse, nil // CLIENT REPLY and the like write none
	}
	text, rest := string(b[1:end]), b[end+2:]
	if b[0] == '+' || b[0] == '-' {
		t := l.NewTable()
		t.RawSetString(map[byte]string{'+': "ok", '-': "err"}[b[0]], lua.LString(text))
		return t, rest
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || b[0] != ':' && n < 0:
		return lua.LFalse, rest
	case b[0] == ':':
		return lua.LNumber(n), rest
	case b[0] == '$':
		return lua.LString(rest[:n]), rest[n+2:]
	}
	t := l.CreateTable(int(n), 0)
	for i := range int(n) {
		var element lua.LValue
		element, rest = fromReply(l, rest)
		t.RawSetInt(i+1, element)
	}
	return t, rest
}

// replyLua writes what a script has returned. Tables end at their first nil.
func replyLua(r *request, value lua.LValue, depth int) {
	switch v := value.(type) {
	case lua.LString:
		r.w.BulkString(string(v))
	case lua.LNumber:
		r.w.Int(int64(v))
	case lua.LBool:
		if v {
			r.w.Int(1)
		} else {
			r.w.Null()
		}
	case *lua.LTable:
		replyTable(r, v, depth)
	default:
		r.w.Null()
	}
}

func replyTable(r *request, t *lua.LTable, depth int) {
	const deepest = 64
	if text := t.RawGetString("err"); text.Type() == lua.LTString {
		r.w.Error(oneLine(text.String()))
		return
	}
	if text := t.RawGetString("ok"); text.Type() == lua.LTString {
		r.w.Simple(oneLine(text.String()))
		return
	}
	if f, ok := t.RawGetString("double").(lua.LNumber); ok {
		r.w.Double(float64(f))
		return
	}
	if depth == deepest {
		r.w.Error("ERR reached lua stack limit")
		return
	}
	n := 0
	for t.RawGetInt(n+1) != lua.LNil {
		n++
	}
	r.w.Array(n)
	for i := range n {
		replyLua(r, t.RawGetInt(i+1), depth+1)
	}
}

// jsonLibrary is cjson with encode and decode. cjson.null stands for null.
func jsonLibrary(l *lua.LState) *lua.LTable {
	null := l.NewUserData()
	t := l.NewTable()
	t.RawSetString("null", null)
	l.SetFuncs(t, map[string]lua.LGFunction{
		"encode": func(l *lua.LState) int {
			v, err := toJSON(l.CheckAny(1), null, 0)
			if err == nil {
				var b bytes.Buffer
				encoder := json.NewEncoder(&b)
				encoder.SetEscapeHTML(false)
				if err = encoder.Encode(v); err == nil {
					l.Push(lua.LString(bytes.TrimSuffix(b.Bytes(), []byte("\n"))))
					return 1
				}
			}
			l.RaiseError("%s", err.Error())
			return 0
		},
		"decode": func(l *lua.LState) int {
			var v any
			if err := json.Unmarshal([]byte(l.CheckString(1)), &v); err != nil {
				l.RaiseError("%s", err.Error())
			}
			l.Push(fromJSON(l, v, null))
			return 1
		},
	})
	return t
}

// toJSON returns a value for the encoder: a table with a first element is an array.
func toJSON(value lua.LValue, null lua.LValue, depth int) (any, error) {
	const deepest = 1000
	if depth > deepest {
		//lint:ignore ST1005 the text is that of Redis
		return nil, fmt.Errorf("Cannot serialise, excessive depth")
	}
	switch v := value.(type) {
	case lua.LBool:
		return bool(v), nil
	case lua.LString:
		return string(v), nil
	case lua.LNumber:
		return json.Number(strconv.FormatFloat(float64(v), 'g', 14, 64)), nil
	case *lua.LTable:
		if n := v.Len(); n > 0 {
			list := make([]any, n)
			for i := range n {
				element, err := toJSON(v.RawGetInt(i+1), null, depth+1)
				if err != nil {
					return nil, err
				}
				list[i] = element
			}
			return list, nil
		}
		object, err := map[string]any{}, error(nil)
		v.ForEach(func(key, element lua.LValue) {
			if err == nil {
				object[key.String()], err = toJSON(element, null, depth+1)
			}
		})
		return object, err
	}
	if value == lua.LNil || value == null {
		return nil, nil
	}
	//lint:ignore ST1005 the text is that of Redis
	return nil, fmt.Errorf("Cannot serialise %s: type not supported", value.Type())
}

func fromJSON(l *lua.LState, value any, null lua.LValue) lua.LValue {
	switch v := value.(type) {
	case bool:
		return lua.LBool(v)
	case float64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case []any:
		t := l.CreateTable(len(v), 0)
		for i, element := range v {
			t.RawSetInt(i+1, fromJSON(l, element, null))
		}
		return t
	case map[string]any:
		t := l.CreateTable(0, len(v))
		for key, element := range v {
			t.RawSetString(key, fromJSON(l, element, null))
		}
		return t
	}
	return null
}
