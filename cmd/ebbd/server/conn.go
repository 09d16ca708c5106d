package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebbkv/ebb/cmd/ebbd/resp"
)

const (
	// A pipeline is cut into batches of this many commands and bytes of replies.
	batchCommands = 1024
	flushBytes    = 64 << 10
	retainedBatch = 256 // memory for as many commands stays with the connection
	// writeTimeout is how long a client may take nothing of its replies.
	writeTimeout = 60 * time.Second
)

// conn is a connection.
type conn struct {
	s    *Server
	id   int64
	nc   net.Conn
	rd   *resp.Reader
	w    resp.Writer
	unit unit // its execution is also that of reads

	batch    [][][]byte // commands that run, or memory for the next ones
	now      *nowWriter // nil: see detach
	detached bool       // see detach
	last     *command
	deadline time.Time // of writes: see flush

	out sync.Mutex // held by the connection while it has replies to send, by its inbox while it sends

	// subscribed are the names of subscriptions by kind. Changes hold hub.mu.
	subscribed [subscriptionKinds][]string
	inbox      *inbox // nil before the first subscription
	blocked    atomic.Pointer[waiter]

	sessionState

	mu   sync.Mutex // guards info, which other connections read
	info clientInfo
}

// sessionState is what commands change of a connection.
type sessionState struct {
	db            int
	authenticated bool
	closing       bool // after the replies that are collected
	reply         replyMode

	multi       bool
	multiFailed bool
	queued      []queuedCommand
	queuedBytes int
	watched     []*watch
}

// replyMode is what CLIENT REPLY has set.
type replyMode byte

const (
	replyOn replyMode = iota
	replyOff
	replySkip // the next command has no reply
)

// clientInfo is what CLIENT LIST shows.
type clientInfo struct {
	name, libName, libVersion string
	last                      time.Time
	created                   time.Time
	command                   string
	db, multi, version        int
	watched                   int
	subscribed, patterns      int
}

func newConn(s *Server, nc net.Conn, id int64) *conn {
	c := &conn{s: s, id: id, nc: nc}
	c.w.Version = 2
	c.w.Most = s.o.MaxReplies
	c.authenticated = s.config.password() == ""
	c.rd = resp.NewReader(meteredReader{nc, &s.stats.bytesRead}, s.limits(c.authenticated))
	c.info = clientInfo{created: time.Now(), last: time.Now(), version: 2}
	c.unit.x = execution{s: s, c: c, w: &c.w}
	c.unit.done = make(chan struct{}, 1)
	c.now = newNowWriter(nc)
	return c
}

func (s *Server) limits(authenticated bool) resp.Limits {
	if !authenticated {
		return resp.UnauthenticatedLimits
	}
	l := resp.DefaultLimits
	l.Bulk = s.o.MaxBulk
	return l
}

// serve reads and runs commands until the connection ends.
func (c *conn) serve() {
	defer func() {
		c.unwatch()
		_ = c.nc.Close()
		c.endInbox()
	}()
	for c.serveBatch() {
		if !c.detached {
			c.release()
		}
	}
}

// release ends the use of the commands of a batch.
func (c *conn) release() {
	clear(c.batch) // they may refer to a large buffer
	if cap(c.batch) > retainedBatch {
		c.batch = nil
	}
	c.rd.Release()
}

// serveBatch answers what has arrived; ok false: the connection ends.
func (c *conn) serveBatch() (ok bool) {
	batch, err := c.read()
	c.batch = batch
	c.monitor(batch)
	c.out.Lock()
	if err == nil && c.mayDetach(batch) {
		c.detach(batch)
		return true
	}
	defer c.out.Unlock()
	if len(batch) > 0 {
		c.run(batch)
	}
	if err != nil {
		var protocol resp.ProtocolError
		if errors.As(err, &protocol) {
			c.w.Error("ERR " + err.Error())
		}
		c.closing = true
	}
	if c.w.Overflow() {
		c.s.log.Warn("client disconnected: its replies exceed the bound", "client", c.id)
		return false
	}
	return c.flush() == nil && !c.closing
}

// read returns the commands that have arrived whole, at least one.
func (c *conn) read() (batch [][][]byte, err error) {
	for batch = c.batch[:0]; ; {
		args, ok, err := c.rd.Next()
		switch {
		case err != nil:
			return batch, err
		case ok:
			if batch = append(batch, args); len(batch) < batchCommands {
				continue
			}
			return batch, nil
		case len(batch) > 0:
			return batch, nil
		}
		err = c.receive()
		if c.detached {
			c.attach()
			batch = c.batch[:0]
			if errors.Is(err, os.ErrDeadlineExceeded) {
				continue // it was not idle while the turn ran
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// receive waits for more of what the client sends.
func (c *conn) receive() error {
	if timeout := c.s.o.Timeout; timeout > 0 {
		deadline := time.Now().Add(timeout)
		if c.listening() || len(c.subscribed[monitorKind]) > 0 {
			deadline = time.Time{} // it waits for messages
		}
		_ = c.nc.SetReadDeadline(deadline)
		if c.s.isClosing() {
			return io.EOF
		}
	}
	return c.rd.Fill()
}

// run runs a batch: reads at once, and all from the first write on in a turn.
func (c *conn) run(batch [][][]byte) {
	x := &c.unit.x
	defer c.note()
	for len(batch) > 0 && !c.closing {
		cmd, err := c.check(batch[0])
		if c.s.pause.active.Load() {
			if c.awaitPause(x, cmd, err); c.closing {
				break
			}
		}
		if c.needsTurn(cmd, err) {
			x.end()
			ran, w := c.s.exec.submit(c, batch[:turnLength(batch)])
			batch = batch[ran:]
			if w != nil {
				batch = cloneCommands(batch) // the reader's buffer changes during the wait
				c.await(w)
			}
			continue
		}
		x.execute(cmd, err, batch[0])
		batch = batch[1:]
		if c.w.Len() > flushBytes {
			x.end()
			if c.w.Overflow() || c.flush() != nil {
				c.closing = true
			}
		}
	}
	x.end()
}

// turnLength is the number of commands, from a first one that needs a turn on, that may be in it.
func turnLength(batch [][][]byte) int {
	for i := 1; i < len(batch); i++ {
		if cmd := lookup(batch[i][0]); cmd != nil && cmd.flags&flagAlone != 0 {
			return i
		}
	}
	return len(batch)
}

func cloneCommands(batch [][][]byte) [][][]byte {
	cloned := make([][][]byte, len(batch))
	for i, args := range batch {
		for _, arg := range args {
			cloned[i] = append(cloned[i], bytes.Clone(arg))
		}
	}
	return cloned
}

// needsTurn says whether a command is one of a turn: cmd and err are what check returns.
func (c *conn) needsTurn(cmd *command, err error) bool {
	switch {
	case err != nil:
		return false
	case !c.multi:
		return cmd.flags&(flagWrite|flagTurn) != 0
	case cmd.name != "exec" || c.multiFailed:
		return false
	}
	if len(c.watched) > 0 {
		return true
	}
	for _, q := range c.queued {
		if q.cmd.flags&(flagWrite|flagTurn) != 0 {
			return true
		}
	}
	return false
}

// note keeps what CLIENT LIST shows.
func (c *conn) note() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.info.last = time.Now()
	if c.last != nil {
		c.info.command = c.last.name
	}
	c.info.db, c.info.version, c.info.watched = c.db, c.w.Version, len(c.watched)
	c.info.subscribed, c.info.patterns = len(c.subscribed[channelKind]), len(c.subscribed[patternKind])
	c.info.multi = -1
	if c.multi {
		c.info.multi = len(c.queued)
	}
}

// flush sends the collected replies. A client that takes none of them for a while is disconnected:
// the deadline is set again when it is a second old.
func (c *conn) flush() error { return c.flushFrom(0) }

// flushFrom is flush of replies of which sent bytes are sent.
func (c *conn) flushFrom(sent int) error {
	rest := c.w.Bytes()[sent:]
	if len(rest) == 0 {
		return nil
	}
	c.s.stats.bytesWritten.Add(int64(len(rest)))
	for len(rest) > 0 {
		part := rest[:min(len(rest), 1<<20)]
		if err := c.extendDeadline(); err != nil {
			return err
		}
		n, err := c.nc.Write(part)
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	c.w.Reset()
	return nil
}

// extendDeadline gives the next write of replies its time.
func (c *conn) extendDeadline() error {
	now := time.Now()
	if now.Sub(c.deadline) <= time.Second-writeTimeout {
		return nil
	}
	c.deadline = now.Add(writeTimeout)
	return c.nc.SetWriteDeadline(c.deadline)
}

// interrupt ends the wait for commands: the connection closes after those that have arrived.
func (c *conn) interrupt() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

// setAuthenticated changes what the connection may send.
func (c *conn) setAuthenticated() {
	c.authenticated = true
	c.rd.SetLimits(c.s.limits(true))
}
