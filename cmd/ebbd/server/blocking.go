package server

import (
	"bytes"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebbkv/ebb/cmd/ebbd/resp"
	"github.com/ebbkv/ebb/kv"
)

// waiter is a command that waits until one of its keys has an element. When a command of a turn has
// modified one of them, the waiters of the key are served in that turn, in the order in which they
// came: the push and the pop are one transaction. A waiter holds no transaction.
type waiter struct {
	c    *conn
	cmd  *command
	args [][]byte
	keys []watchedKey
	wait time.Duration // 0: for ever
	null func(w *resp.Writer)

	w    resp.Writer // the reply
	x    execution
	done chan struct{} // gets a value when the reply is there

	claimed bool // served by the present turn, or given up; guarded by waitTable.mu
}

// waitTable has the waiters of all connections by key.
type waitTable struct {
	mu    sync.Mutex
	by    map[watchedKey][]*waiter
	count atomic.Int64
}

func (t *waitTable) add(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = make(map[watchedKey][]*waiter)
	}
	for _, at := range w.keys {
		t.by[at] = append(t.by[at], w)
	}
	t.count.Add(1)
}

// claim takes a waiter, so that no other goroutine serves it or gives it up.
func (t *waitTable) claim(w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.claimed {
		return false
	}
	w.claimed = true
	return true
}

func (t *waitTable) unclaim(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.claimed = false
}

// remove forgets a claimed waiter.
func (t *waitTable) remove(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range w.keys {
		rest := slices.DeleteFunc(t.by[at], func(other *waiter) bool { return other == w })
		if len(rest) == 0 {
			delete(t.by, at)
		} else {
			t.by[at] = rest
		}
	}
	t.count.Add(-1)
}

// at returns the waiters of a key.
func (t *waitTable) at(at watchedKey) []*waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.by[at])
}

// all returns the keys of a database that have waiters.
func (t *waitTable) all(db int) [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return keysOf(t.by, db)
}

// block makes the command a waiter, unless it is part of a MULTI: then it replies at once that there
// is no element.
func (r *request) block(keys [][]byte, wait time.Duration, null func(w *resp.Writer)) error {
	switch {
	case r.serving:
		r.unserved = true
		return nil
	case r.nested:
		null(r.w)
		return nil
	}
	w := &waiter{c: r.c, cmd: r.cmd, wait: wait, null: null, done: make(chan struct{}, 1)}
	for _, arg := range r.args {
		w.args = append(w.args, bytes.Clone(arg))
	}
	for _, key := range keys {
		at := watchedKey{r.c.db, string(key)}
		if !slices.Contains(w.keys, at) {
			w.keys = append(w.keys, at)
		}
	}
	w.w.Version, w.w.Most = r.w.Version, r.w.Most
	w.x = execution{s: r.s, c: r.c, w: &w.w, turn: true, nested: true, serving: true}
	r.waiter = w
	r.s.waits.add(w)
	return nil
}

// timeout parses the seconds that a command waits at most.
func (r *request) timeout(i int) (time.Duration, error) {
	seconds, ok := parseFloat(r.args[i])
	switch {
	case !ok:
		return 0, replyError("ERR timeout is not a float or out of range")
	case seconds < 0:
		return 0, replyError("ERR timeout is negative")
	case seconds > math.MaxInt64/1e9:
		return 0, replyError("ERR timeout is out of range")
	case seconds > 0 && seconds < 1e-3:
		return time.Millisecond, nil
	}
	return time.Duration(seconds * 1e9), nil
}

// wake records that a key with waiters may have an element. It runs in the executor.
func (e *executor) wake(db int, keys [][]byte) {
	if e.s.waits.count.Load() == 0 {
		return
	}
	for _, key := range keys {
		e.ready = append(e.ready, watchedKey{db, string(key)})
	}
}

// serve serves the waiters of keys that the last command has modified, and of those that they
// modify in turn; ok false: a command has failed half-way.
func (e *executor) serve(tx *kv.Tx, careful bool) (ok bool) {
	for len(e.ready) > 0 {
		at := e.ready[0]
		e.ready = e.ready[1:]
		for _, w := range e.s.waits.at(at) {
			if !e.s.waits.claim(w) {
				continue
			}
			if w.run(tx, careful) {
				e.served = append(e.served, w)
				continue
			}
			e.s.waits.unclaim(w)
			if w.x.halfway {
				return false
			}
			row, err := e.s.store.Space(tx, at.db).Load([]byte(at.key))
			if err != nil || row.Type == 0 {
				break // nothing is left for those behind it
			}
		}
	}
	return true
}

// run runs the command of a claimed waiter; served false: there is no element of its type.
func (w *waiter) run(tx *kv.Tx, careful bool) (served bool) {
	x := &w.x
	x.tx, x.careful, x.halfway, x.unserved = tx, careful, false, false
	x.call(w.cmd, w.args)
	x.tx = nil
	if x.unserved || x.halfway {
		w.w.Reset()
		return false
	}
	return true
}

// endServed gives waiters their replies after the commit of the turn, or has them wait on.
func (e *executor) endServed(err error) {
	for _, w := range e.served {
		if err != nil {
			w.w.Reset()
			e.s.waits.unclaim(w)
			continue
		}
		e.s.waits.remove(w)
		w.done <- struct{}{}
	}
	e.served, e.ready = e.served[:0], e.ready[:0]
}

// await waits for the reply of a blocked command. The connection is watched: a client that goes
// away, or a shutdown, ends the wait. The messages of its subscriptions go out meanwhile.
func (c *conn) await(w *waiter) {
	if c.flush() != nil {
		c.closing = true
	}
	c.out.Unlock()
	defer c.out.Lock()
	var expired <-chan time.Time
	if w.wait > 0 {
		timer := time.NewTimer(w.wait)
		defer timer.Stop()
		expired = timer.C
	}
	_ = c.nc.SetReadDeadline(time.Time{}) // a blocked client is not idle
	if c.s.isClosing() {
		c.interrupt()
	}
	read := make(chan error, 1)
	go func() { read <- c.fill() }()
	gone := (<-chan error)(read)
	c.blocked.Store(w)
	for waiting := !c.closing; waiting; {
		select {
		case <-w.done:
			waiting = false
		case <-expired:
			if expired = nil; !c.giveUp(w, w.null) { // a turn serves it, and may be rolled back
				expired = time.After(10 * time.Millisecond)
			}
		case err := <-gone:
			gone = nil
			if err != nil {
				c.closing, waiting = true, false
			}
		}
	}
	for c.closing && !c.giveUp(w, w.null) && len(w.done) == 0 {
		time.Sleep(time.Millisecond) // a turn serves it, and may be rolled back
	}
	c.blocked.Store(nil)
	if gone != nil { // the goroutine is to leave the reader
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
		<-read
		_ = c.nc.SetReadDeadline(time.Time{})
		if c.s.isClosing() {
			c.interrupt()
		}
	}
	if !c.closing && c.reply == replyOn {
		c.w.Append(w.w.Bytes())
	}
}

// giveUp ends the wait of a waiter that is not being served, with another reply.
func (c *conn) giveUp(w *waiter, reply func(*resp.Writer)) bool {
	if !c.s.waits.claim(w) {
		return false
	}
	c.s.waits.remove(w)
	reply(&w.w)
	w.done <- struct{}{}
	return true
}

// fill reads what arrives, up to a bound, until the connection fails or the read deadline comes.
func (c *conn) fill() error {
	const most = 64 << 10
	for c.rd.Buffered() < most {
		if err := c.rd.Fill(); err != nil {
			return err
		}
	}
	return nil
}

// clientUnblock is CLIENT UNBLOCK id [TIMEOUT|ERROR].
func clientUnblock(r *request) error {
	id, ok := parseInt(r.args[2])
	switch {
	case !ok:
		return errNotInt
	case len(r.args) > 4 || len(r.args) == 4 && !r.is(3, "timeout") && !r.is(3, "error"):
		return errSyntax
	}
	failed := func(w *resp.Writer) { w.Error("UNBLOCKED client unblocked via CLIENT UNBLOCK") }
	unblocked := int64(0)
	for _, c := range r.s.clients() {
		w := c.blocked.Load()
		if c.id != id || w == nil {
			continue
		}
		reply := w.null
		if r.is(3, "error") {
			reply = failed
		}
		if c.giveUp(w, reply) {
			unblocked = 1
		}
	}
	r.w.Int(unblocked)
	return nil
}
