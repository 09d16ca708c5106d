package server

import (
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// statistics are counters since the start, or CONFIG RESETSTAT.
type statistics struct {
	connections, rejected   atomic.Int64
	turns, withoutSpace     atomic.Int64
	bytesRead, bytesWritten atomic.Int64
	hits, misses            atomic.Int64

	perCommand []commandStats // by command.index
}

type commandStats struct {
	calls, nanos, failed atomic.Int64
}

// commandCount is what the counters of one command were at one moment.
type commandCount struct {
	name          string
	calls, failed int64
	took          time.Duration
}

// called returns the counts of the commands that have run, in the order of their names.
func (st *statistics) called() (counts []commandCount) {
	for name, cmd := range commands {
		cs := &st.perCommand[cmd.index]
		if calls := cs.calls.Load(); calls > 0 {
			counts = append(counts,
				commandCount{name, calls, cs.failed.Load(), time.Duration(cs.nanos.Load())})
		}
	}
	slices.SortFunc(counts, func(a, b commandCount) int { return strings.Compare(a.name, b.name) })
	return counts
}

// total returns the numbers of commands that have run, and of those that replied with an error.
func (st *statistics) total() (calls, failed int64) {
	for i := range st.perCommand {
		calls += st.perCommand[i].calls.Load()
		failed += st.perCommand[i].failed.Load()
	}
	return calls, failed
}

func (st *statistics) reset() {
	for _, n := range []*atomic.Int64{
		&st.connections, &st.rejected, &st.turns, &st.bytesRead, &st.bytesWritten, &st.hits, &st.misses,
	} {
		n.Store(0)
	}
	for i := range st.perCommand {
		cs := &st.perCommand[i]
		cs.calls.Store(0)
		cs.nanos.Store(0)
		cs.failed.Store(0)
	}
}

// commandDone counts a command that has run, and notes it if it was slow. Its time includes no wait
// for a turn.
func (s *Server) commandDone(cmd *command, args [][]byte, began time.Duration, err error) {
	took := s.monotonic() - began
	cs := &s.stats.perCommand[cmd.index]
	cs.calls.Add(1)
	cs.nanos.Add(int64(took))
	if err != nil {
		cs.failed.Add(1)
	}
	if slower := s.config.slowMicros.Load(); slower >= 0 && took.Microseconds() >= slower {
		s.slow.add(args, took, int(s.config.slowLength.Load()))
	}
}

// found counts a lookup of a key by a read.
func (r *request) found(ok bool) {
	if ok {
		r.s.stats.hits.Add(1)
	} else {
		r.s.stats.misses.Add(1)
	}
}

// meteredReader counts what clients send.
type meteredReader struct {
	io.Reader
	n *atomic.Int64
}

func (m meteredReader) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.n.Add(int64(n))
	return n, err
}

// slowLog keeps the newest slow commands.
type slowLog struct {
	mu      sync.Mutex
	next    int64
	entries []slowEntry // the newest one last
}

type slowEntry struct {
	id   int64
	at   time.Time
	took time.Duration
	args []string
}

func (l *slowLog) add(args [][]byte, took time.Duration, most int) {
	const shownArgs, shownBytes = 32, 128
	e := slowEntry{at: time.Now(), took: took}
	for i, arg := range args {
		if i == shownArgs {
			break
		}
		e.args = append(e.args, string(arg[:min(len(arg), shownBytes)]))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id = l.next
	l.next++
	l.entries = append(l.entries, e)
	if extra := len(l.entries) - most; extra > 0 {
		l.entries = append(l.entries[:0], l.entries[extra:]...)
	}
}

// newest returns at most n entries, the newest one first.
func (l *slowLog) newest(n int) (entries []slowEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.entries) - 1; i >= 0 && len(entries) < n; i-- {
		entries = append(entries, l.entries[i])
	}
	return entries
}

func (l *slowLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

func (l *slowLog) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}
