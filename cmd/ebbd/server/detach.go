package server

import (
	"net"
	"syscall"
)

// A connection whose commands are all writes of one turn is detached from them: it waits for what the
// client sends next while the turn runs, and the executor sends the replies. Its goroutine wakes once
// for a command then, not twice. A client that does not take its replies at once gets them from a
// goroutine of its own, so the executor waits for none.
//
// Until attach, the connection holds out, and leaves everything but its reader to the executor.

// mayDetach says whether a batch is one of writes only, and followed by no command yet.
func (c *conn) mayDetach(batch [][][]byte) bool {
	if c.now == nil || c.multi || !c.authenticated || c.s.pause.active.Load() ||
		len(batch) == batchCommands {
		return false
	}
	for _, args := range batch {
		cmd := lookup(args[0])
		if cmd == nil || cmd.flags&(flagWrite|flagBlocking|flagAlone) != flagWrite {
			return false
		}
	}
	return len(batch) > 0
}

// detach gives a batch to a turn. The executor unlocks out.
func (c *conn) detach(batch [][][]byte) {
	c.detached = true
	c.s.exec.enqueue(c, batch)
}

// attach waits until the replies of a detached batch are sent.
func (c *conn) attach() {
	<-c.unit.done
	c.detached = false
	c.release()
}

// answer sends the replies of a detached connection. It runs in the executor.
func (c *conn) answer() {
	c.note()
	replies, sent := c.w.Bytes(), 0
	if len(replies) <= flushBytes && !c.w.Overflow() && c.extendDeadline() == nil {
		sent = c.now.write(replies)
	}
	c.s.stats.bytesWritten.Add(int64(sent))
	if sent < len(replies) || c.w.Overflow() {
		go func() {
			if c.w.Overflow() || c.flushFrom(sent) != nil {
				_ = c.nc.Close() // ends the connection's own goroutine
			}
			c.endAnswer()
		}()
		return
	}
	c.w.Reset()
	c.endAnswer()
}

func (c *conn) endAnswer() {
	c.out.Unlock()
	c.unit.done <- struct{}{}
}

// nowWriter writes what the system takes at once.
type nowWriter struct {
	raw     syscall.RawConn
	attempt func(fd uintptr) (done bool)
	b       []byte
	n       int
}

// newNowWriter returns nil if nc is not a connection of the system, as with TLS.
func newNowWriter(nc net.Conn) *nowWriter {
	sc, ok := nc.(syscall.Conn)
	if !ok || !canWriteNow {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	w := &nowWriter{raw: raw}
	w.attempt = func(fd uintptr) bool {
		w.n = writeNow(fd, w.b)
		return true // do not wait
	}
	return w
}

// write returns how many bytes the system has taken. The next write reports an error.
func (w *nowWriter) write(b []byte) (n int) {
	w.b, w.n = b, 0
	_ = w.raw.Write(w.attempt)
	w.b = nil
	return w.n
}
