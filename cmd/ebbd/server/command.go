package server

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
	"github.com/ebbkv/ebb/cmd/ebbd/resp"
	"github.com/ebbkv/ebb/kv"
)

type flag uint16

const (
	flagWrite  flag = 1 << iota // runs in a turn
	flagRead                    // needs a transaction
	flagTurn                    // runs in a turn without being a write
	flagNoAuth                  // allowed before authentication
	flagNow                     // runs at once within MULTI, where others are queued
	flagNever                   // an error within MULTI
	flagFast                    // its time does not depend on the size of keys
	flagAdmin
	flagBlocking // may wait for a key
	flagPubSub   // allowed in version 2 for a connection with subscriptions
	flagAlone    // never part of a turn: it may wait for the writer, or for its client
	flagScript   // always has a savepoint: it may fail late, and would run a second time
)

// commandSpec is a row of the command table.
type commandSpec struct {
	name  string
	arity int // arguments with the name; negative: at least as many
	flags flag
	keys  keySpec
	run   func(*request) error
}

type command struct {
	commandSpec
	index int // of its counters
}

// keySpec says which arguments are keys: from first to last (negative: from the end) in steps. With
// numkeys, the argument at that position counts the keys behind it.
type keySpec struct{ first, last, step, numkeys int }

var (
	noKeys         = keySpec{}
	oneKey         = keySpec{first: 1, last: 1, step: 1}
	twoKeys        = keySpec{first: 1, last: 2, step: 1}
	allKeys        = keySpec{first: 1, last: -1, step: 1}
	keysAndTimeout = keySpec{first: 1, last: -2, step: 1}
	pairs          = keySpec{first: 1, last: -1, step: 2}
	targetAndKeys  = keySpec{first: 1, last: 1, step: 1, numkeys: 2}
)

// positions returns the indexes of the keys in args.
func (k keySpec) positions(args [][]byte) (at []int) {
	if k.first > 0 {
		last := k.last
		if last < 0 {
			last += len(args)
		}
		for i := k.first; i <= last && i < len(args); i += k.step {
			at = append(at, i)
		}
	}
	if k.numkeys > 0 && k.numkeys < len(args) {
		n, ok := parseInt(args[k.numkeys])
		for i := k.numkeys + 1; ok && i < len(args) && n > 0; i, n = i+1, n-1 {
			at = append(at, i)
		}
	}
	return at
}

// request is one command on its way through a handler.
type request struct {
	*execution
	cmd  *command
	args [][]byte
	// events are those of the keys, in order.
	events []keyEvent
	// changed are the keys that the command has modified. They count if it succeeds.
	changed [][]byte
}

// execution is what the commands of one pipeline, or of one turn, share.
type execution struct {
	s    *Server
	c    *conn
	w    *resp.Writer
	tx   *kv.Tx // nil until a command needs it
	turn bool
	// careful says that each write has a savepoint, not only a script. Without one, halfway says that
	// a command has failed after its first write: the transaction must not be committed.
	careful, halfway bool
	nested           bool // within EXEC or a script: commands do not block
	inScript         bool
	// waiter is what a command that blocks has become. serving says that it runs again, unserved
	// that there is still no element.
	waiter            *waiter
	serving, unserved bool
	refused           map[*command]int // see refusals

	sp    keyspace.Space
	bound int      // the database of sp and, outside of turns, of tx, plus one; 0: none
	spare *request // for the next command
}

// replyError is an error reply with its code.
type replyError string

func (e replyError) Error() string { return string(e) }

const (
	errSyntax    = replyError("ERR syntax error")
	errNotInt    = replyError("ERR value is not an integer or out of range")
	errNotFloat  = replyError("ERR value is not a valid float")
	errNoKey     = replyError("ERR no such key")
	errIndex     = replyError("ERR index out of range")
	errWrongType = replyError(
		"WRONGTYPE Operation against a key holding the wrong kind of value",
	)
	errDBIndex      = replyError("ERR DB index is out of range")
	errNoAuth       = replyError("NOAUTH Authentication required.")
	errExecAbort    = replyError("EXECABORT Transaction discarded because of previous errors.")
	errOverflow     = replyError("ERR increment or decrement would overflow")
	errInvalidScan  = replyError("ERR invalid cursor")
	errNegativeOnly = replyError("ERR value is out of range, must be positive")
)

func errArity(name string) error {
	return replyError("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command")
}

// lookup finds a command by name, in any case.
func lookup(name []byte) *command {
	var lower [32]byte
	if len(name) > len(lower) {
		return nil
	}
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	return commands[string(lower[:len(name)])]
}

// absent are the commands of Redis that this server does not have, by what they belong to. A prefix
// ends with an asterisk.
var absent = []struct{ names, what string }{
	{"x*", "streams"}, {"geo*", "geo indexes"}, {"pf*", "HyperLogLog"},
	{"sync psync replconf replicaof slaveof failover", "replication: see ebbd backup"},
	{"cluster asking readonly readwrite migrate restore-asking", "cluster"},
	{"waitaof", "WAITAOF: with appendfsync always a write is on disk before its reply"},
	{"function fcall fcall_ro", "functions: see EVAL"}, {"module", "modules"},
	{"bgrewriteaof", "append-only file: the store is compact"},
}

// absentWhat names what a command belongs to that is not there; "": nothing known.
func absentWhat(name string) string {
	for _, group := range absent {
		for known := range strings.FieldsSeq(group.names) {
			start, many := strings.CutSuffix(known, "*")
			if name == known || many && strings.HasPrefix(name, start) {
				return group.what
			}
		}
	}
	return ""
}

func errUnknown(args [][]byte) error {
	var b strings.Builder
	if what := absentWhat(strings.ToLower(string(args[0]))); what != "" && len(args[0]) < 32 {
		return replyError(fmt.Sprintf("ERR unknown command '%s': this server has no %s", args[0], what))
	}
	fmt.Fprintf(&b, "ERR unknown command '%.128s', with args beginning with: ", args[0])
	for i, arg := range args[1:] {
		if b.Len() > 128+64 || i > 20 {
			break
		}
		fmt.Fprintf(&b, "'%.128s' ", arg)
	}
	return replyError(b.String())
}

// isHTTP says whether the first word of a line is one that a browser sends. The lines of a form that a
// web page has it post here could be commands.
func isHTTP(name []byte) bool {
	return bytes.EqualFold(name, []byte("post")) || bytes.EqualFold(name, []byte("host:"))
}

// check finds the command and says whether it may run, or be queued.
func (c *conn) check(args [][]byte) (*command, error) {
	cmd := lookup(args[0])
	switch {
	case cmd == nil && !c.authenticated:
		return nil, errNoAuth
	case cmd == nil:
		return nil, errUnknown(args)
	case cmd.arity > 0 && len(args) != cmd.arity || cmd.arity < 0 && len(args) < -cmd.arity:
		return cmd, errArity(cmd.name)
	case !c.authenticated && cmd.flags&flagNoAuth == 0:
		return cmd, errNoAuth
	case c.w.Version < 3 && cmd.flags&flagPubSub == 0 && c.listening():
		return cmd, replyError("ERR Can't execute '" + cmd.name + "': only (P|S)SUBSCRIBE / " +
			"(P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
	case c.multi && cmd.flags&flagNever != 0:
		return cmd, replyError("ERR Command not allowed inside a transaction")
	}
	return cmd, nil
}

// execute runs one command of the connection, of which cmd and err are what check returns, and
// writes its reply, unless CLIENT REPLY says that it gets none.
func (x *execution) execute(cmd *command, err error, args [][]byte) {
	mark, silent := x.w.Len(), x.c.reply == replySkip
	x.dispatch(cmd, err, args)
	switch {
	case silent && x.c.reply == replySkip: // the command after CLIENT REPLY SKIP
		x.c.reply = replyOn
		x.w.Truncate(mark)
	case x.c.reply != replyOn:
		x.w.Truncate(mark)
	}
}

// dispatch runs a command, or queues it within MULTI.
func (x *execution) dispatch(cmd *command, err error, args [][]byte) {
	c := x.c
	if cmd != nil {
		c.last = cmd
	}
	if cmd == nil && isHTTP(args[0]) {
		x.s.log.Warn("client disconnected: it speaks HTTP", "client", c.id, "address", c.nc.RemoteAddr())
		c.closing = true
		return
	}
	if err != nil {
		if c.multi && cmd != nil && cmd.name == "exec" {
			c.discard()
		} else if c.multi {
			c.multiFailed = true
		}
		x.writeError(err)
		return
	}
	if c.multi && cmd.flags&flagNow == 0 {
		if err := c.enqueue(cmd, args); err != nil {
			x.writeError(err)
			return
		}
		x.w.Simple("QUEUED")
		return
	}
	x.call(cmd, args)
}

// call runs a command. What it wrote before an error is rolled back.
func (x *execution) call(cmd *command, args [][]byte) {
	began := x.s.monotonic()
	r := x.newRequest(cmd, args)
	defer x.endRequest(r)
	mark := x.w.Len()
	sent := 0
	if x.turn {
		x.expired() // a command that failed may have left some
		sent = len(x.s.exec.messages)
	}
	x.sp.TakeEmptied()
	err := x.attempt(r)
	switch {
	case x.serving && (err != nil || x.unserved):
		x.w.Truncate(mark)
		x.unserved = true
		return
	case err != nil:
		if x.turn { // those of the commands of a script
			x.s.exec.messages = x.s.exec.messages[:sent]
		}
		x.w.Truncate(mark)
		x.writeError(err)
	default:
		if len(r.changed) > 0 {
			x.s.modified(x.c.db, r.changed)
		}
		r.notify()
	}
	x.s.commandDone(cmd, args, began, err)
}

// newRequest returns a request; those of EXEC and of scripts have others within them.
func (x *execution) newRequest(cmd *command, args [][]byte) *request {
	r := x.spare
	if x.spare = nil; r == nil {
		r = new(request)
	}
	r.execution, r.cmd, r.args = x, cmd, args
	return r
}

func (x *execution) endRequest(r *request) {
	clear(r.events)
	clear(r.changed)
	*r = request{events: r.events[:0], changed: r.changed[:0]}
	x.spare = r
}

// attempt runs the handler. Savepoints make each page that a later command changes a copy, so in a turn
// only scripts have one: it is run again, carefully, if another command fails after its first write.
func (x *execution) attempt(r *request) (err error) {
	var savepoint kv.Savepoint
	var before int64
	writes := r.cmd.flags&flagWrite != 0
	careful := x.careful || r.cmd.flags&flagScript != 0
	if least, ok := x.refused[r.cmd]; ok && !x.nested && argBytes(r.args) >= least {
		return kv.ErrNoSpace
	}
	if r.cmd.flags&(flagWrite|flagRead) != 0 {
		if err := x.bind(); err != nil {
			return err
		}
	}
	if writes {
		before = x.s.store.Writes()
		if careful {
			savepoint = x.tx.Savepoint()
		}
	}
	defer func() {
		if p := recover(); p != nil {
			x.s.log.Error("command panicked", "command", r.cmd.name, "panic", p,
				"stack", string(debug.Stack()))
			err = replyError("ERR internal error of command '" + r.cmd.name + "'")
		}
		switch {
		case err == nil || !writes || x.s.store.Writes() == before:
		case !careful:
			x.halfway = true
		default:
			x.halfway = false // what commands of a script left is undone, too
			if back := x.tx.RollbackTo(savepoint); back != nil {
				err = errors.Join(err, back)
				x.halfway = x.tx.Err() != nil
			}
			x.s.store.TakeExpired() // their deletion is undone
		}
	}()
	return r.cmd.run(r)
}

// bind gives the space of the connection's database, and begins a read transaction outside of
// turns.
func (x *execution) bind() error {
	if x.tx == nil {
		tx, err := x.s.db.Begin(nil, false)
		if err != nil {
			return err
		}
		x.tx, x.bound = tx, 0
	}
	if x.turn || x.bound != x.c.db+1 { // a turn may exchange the databases
		x.s.space(&x.sp, x.tx, x.c.db)
		x.bound = x.c.db + 1
	}
	return nil
}

// end ends the read transaction, if there is one.
func (x *execution) end() {
	if x.tx != nil && !x.turn {
		_ = x.tx.Rollback() // of a read transaction: ErrTxnDone at most
		x.tx = nil
	}
}

func (x *execution) writeError(err error) {
	x.w.Error(x.s.errorText(err))
}

// errorText returns the reply for an error of a handler or of the store.
func (s *Server) errorText(err error) string {
	var reply replyError
	switch {
	case errors.As(err, &reply):
		return string(reply)
	case errors.Is(err, keyspace.ErrWrongType):
		return string(errWrongType)
	case errors.Is(err, kv.ErrFailed):
		return "MISCONF an earlier write to the disk failed: the server has to be restarted"
	case errors.Is(err, kv.ErrCommitUnknown):
		return "MISCONF a write to the disk failed, and whether it is there is known after a restart " +
			"of the server"
	case errors.Is(err, kv.ErrKeyTooLarge):
		return fmt.Sprintf("ERR key, field or member is longer than this store allows "+
			"(key %d bytes, field or member %d): create the store with a larger --page-size",
			s.db.MaxKeySize()-1, s.db.MaxKeySize()-17)
	case errors.Is(err, kv.ErrValueTooLarge):
		return fmt.Sprintf("ERR string exceeds maximum allowed size (%d bytes)", kv.MaxValueSize-1)
	case errors.Is(err, kv.ErrNoSpace):
		return "OOM command not allowed: the store is at its bound (--max-bytes) or the disk is full"
	case errors.Is(err, kv.ErrTxnTooLarge):
		return "ERR transaction is larger than the store allows"
	case errors.Is(err, kv.ErrClosed):
		return "ERR server is shutting down"
	case errors.Is(err, kv.ErrInvalidTTL):
		return "ERR invalid expire time"
	}
	s.log.Error("command failed", "error", err)
	return "ERR " + err.Error()
}
