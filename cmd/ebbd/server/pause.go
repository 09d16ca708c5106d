package server

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// pause is what CLIENT PAUSE has set: until when commands wait. CLIENT itself, and the commands that
// need no password, do not wait: UNPAUSE comes through.
type pause struct {
	active atomic.Bool // may be set behind the end of the pause
	mu     sync.Mutex  // guards the fields below
	until  time.Time
	all    bool          // also commands that only read
	ended  chan struct{} // closed by end
}

// set begins a pause, or extends the one that there is.
func (p *pause) set(d time.Duration, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	until := now.Add(d)
	if p.until.After(now) {
		all = all || p.all
		if p.until.After(until) {
			until = p.until
		}
	}
	p.until, p.all = until, all
	if p.ended == nil {
		p.ended = make(chan struct{})
	}
	p.active.Store(true)
}

// end ends the pause, if there is one.
func (p *pause) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active.Store(false)
	p.until = time.Time{}
	if p.ended != nil {
		close(p.ended)
		p.ended = nil
	}
}

// left is how long the pause lasts for a command of that kind; 0: it does not wait. ended is closed if
// the pause ends before.
func (p *pause) left(writes bool) (d time.Duration, ended <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d = time.Until(p.until); d <= 0 {
		p.active.Store(false)
		return 0, nil
	}
	if !p.all && !writes {
		return 0, nil
	}
	return d, p.ended
}

// awaitPause waits while the command is paused. The replies before it go out.
func (c *conn) awaitPause(x *execution, cmd *command, err error) {
	if cmd == nil || cmd.name == "client" || cmd.flags&flagNoAuth != 0 {
		return
	}
	for !c.closing && !c.s.isClosing() {
		left, ended := c.s.pause.left(c.needsTurn(cmd, err))
		if left == 0 {
			return
		}
		x.end()
		if c.flush() != nil {
			c.closing = true
			return
		}
		c.out.Unlock() // for messages of subscriptions
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-ended:
		}
		timer.Stop()
		c.out.Lock()
	}
}

func clientPause(r *request) error {
	ms, ok := parseInt(r.args[2])
	if !ok || ms < 0 || ms > int64(1<<53) {
		return replyError("ERR timeout is not an integer or out of range")
	}
	all := true
	switch {
	case len(r.args) > 4:
		return errSyntax
	case len(r.args) == 4:
		mode := strings.ToLower(string(r.args[3]))
		if all = mode == "all"; !all && mode != "write" {
			return errSyntax
		}
	}
	const most = 100 * 365 * 24 * time.Hour // about what a Duration holds
	r.s.pause.set(min(time.Duration(min(ms, most.Milliseconds()))*time.Millisecond, most), all)
	r.w.Simple("OK")
	return nil
}

func clientUnpause(r *request) error {
	r.s.pause.end()
	r.w.Simple("OK")
	return nil
}
