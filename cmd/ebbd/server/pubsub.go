package server

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebbkv/ebb/cmd/ebbd/resp"
)

// Kinds of subscriptions.
const (
	channelKind = iota
	patternKind
	shardKind
	monitorKind // of MONITOR: one subscription without a name
	subscriptionKinds
)

// mostPushed bounds the messages that wait for one subscriber.
const mostPushed = 32 << 20

// hub has the subscriptions of all connections. Its lock is held while a message is handed out, so
// all subscribers get messages in one order.
type hub struct {
	mu    sync.Mutex
	by    [subscriptionKinds]map[string][]*conn // in the order in which they came
	count atomic.Int64                          // 0: a message has no receiver

	monitors atomic.Int64 // 0: no connection monitors
}

// inbox has the messages for one subscriber. Its goroutine sends them between the replies of the
// connection.
type inbox struct {
	mu      sync.Mutex
	w       resp.Writer
	wake    chan struct{}
	ended   chan struct{} // closed when the connection ends
	stopped chan struct{} // closed when the goroutine has ended
}

// subscribe adds a subscription, unless the connection has it, and returns the number of channels
// and patterns, or of shard channels, that it has.
func (c *conn) subscribe(kind int, name string) int {
	h := &c.s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by[kind] == nil {
		h.by[kind] = make(map[string][]*conn)
	}
	if !slices.Contains(c.subscribed[kind], name) {
		c.subscribed[kind] = append(c.subscribed[kind], name)
		h.by[kind][name] = append(h.by[kind][name], c)
		h.counter(kind).Add(1)
	}
	if c.inbox == nil {
		c.inbox = &inbox{wake: make(chan struct{}, 1), ended: make(chan struct{}),
			stopped: make(chan struct{})}
		go c.sendPushed(c.inbox)
	}
	c.pushVersion()
	return c.subscriptions(kind)
}

func (h *hub) counter(kind int) *atomic.Int64 {
	if kind == monitorKind {
		return &h.monitors
	}
	return &h.count
}

// pushVersion has messages encoded in the present version of the protocol.
func (c *conn) pushVersion() {
	if c.inbox != nil {
		c.inbox.mu.Lock()
		c.inbox.w.Version = c.w.Version
		c.inbox.mu.Unlock()
	}
}

// listening says whether the connection has subscriptions.
func (c *conn) listening() bool {
	return c.inbox != nil && c.subscriptions(channelKind)+len(c.subscribed[shardKind]) > 0
}

// subscriptions counts shard channels, or channels and patterns.
func (c *conn) subscriptions(kind int) int {
	if kind == shardKind {
		return len(c.subscribed[shardKind])
	}
	return len(c.subscribed[channelKind]) + len(c.subscribed[patternKind])
}

func (c *conn) unsubscribe(kind int, name string) int {
	h := &c.s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(c.subscribed[kind], name); i >= 0 {
		c.subscribed[kind] = slices.Delete(c.subscribed[kind], i, i+1)
		rest := slices.DeleteFunc(h.by[kind][name], func(other *conn) bool { return other == c })
		if len(rest) == 0 {
			delete(h.by[kind], name)
		} else {
			h.by[kind][name] = rest
		}
		h.counter(kind).Add(-1)
	}
	return c.subscriptions(kind)
}

func (c *conn) unsubscribeAll() {
	for kind := range c.subscribed {
		for len(c.subscribed[kind]) > 0 {
			c.unsubscribe(kind, c.subscribed[kind][0])
		}
	}
}

// endInbox ends the goroutine of the inbox. Messages that wait are dropped with the connection.
func (c *conn) endInbox() {
	c.unsubscribeAll()
	if c.inbox != nil {
		close(c.inbox.ended)
		<-c.inbox.stopped
		c.inbox = nil
	}
}

// receivers returns how many times a message would be delivered.
func (h *hub) receivers(kind int, channel []byte) (n int) {
	if h.count.Load() == 0 {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n = len(h.by[kind][string(channel)])
	if kind == channelKind {
		for pattern, conns := range h.by[patternKind] {
			if match([]byte(pattern), channel) {
				n += len(conns)
			}
		}
	}
	return n
}

// publish delivers a message to the subscribers of a channel, and of patterns that match it.
func (h *hub) publish(kind int, channel, message []byte) {
	if h.count.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	word := "message"
	if kind == shardKind {
		word = "smessage"
	}
	for _, c := range h.by[kind][string(channel)] {
		c.push(func(w *resp.Writer) {
			w.Push(3)
			w.BulkString(word)
			w.Bulk(channel)
			w.Bulk(message)
		})
	}
	if kind != channelKind {
		return
	}
	for pattern, conns := range h.by[patternKind] {
		if !match([]byte(pattern), channel) {
			continue
		}
		for _, c := range conns {
			c.push(func(w *resp.Writer) {
				w.Push(4)
				w.BulkString("pmessage")
				w.BulkString(pattern)
				w.Bulk(channel)
				w.Bulk(message)
			})
		}
	}
}

// push puts a message into the inbox. A subscriber that is too slow is disconnected.
func (c *conn) push(write func(w *resp.Writer)) {
	box := c.inbox
	box.mu.Lock()
	defer box.mu.Unlock()
	if box.w.Len() > mostPushed {
		_ = c.nc.Close()
		return
	}
	write(&box.w)
	select {
	case box.wake <- struct{}{}:
	default:
	}
}

// sendPushed sends the messages of the inbox until the connection ends.
func (c *conn) sendPushed(box *inbox) {
	defer close(box.stopped)
	var sent []byte
	for {
		select {
		case <-box.ended:
			return
		case <-box.wake:
		}
		c.out.Lock()
		box.mu.Lock()
		sent = append(sent[:0], box.w.Bytes()...)
		box.w.Reset()
		box.mu.Unlock()
		c.s.stats.bytesWritten.Add(int64(len(sent)))
		err := c.nc.SetWriteDeadline(time.Now().Add(writeTimeout))
		if err == nil {
			_, err = c.nc.Write(sent)
		}
		c.out.Unlock()
		if err != nil {
			_ = c.nc.Close() // ends the connection's own goroutine
		}
		if cap(sent) > 1<<20 {
			sent = nil
		}
	}
}
