package server

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// statistics are counters since the start, or CONFIG RESETSTAT.
type statistics struct {
	connections, rejected   atomic.Int64
	commands, errors, turns atomic.Int64
	bytesRead, bytesWritten atomic.Int64
	hits, misses            atomic.Int64

	perCommand sync.Map // *command -> *commandStats
}

type commandStats struct {
	calls, micros, failed atomic.Int64
}

func (st *statistics) reset() {
	for _, n := range []*atomic.Int64{
		&st.connections, &st.rejected, &st.commands, &st.errors, &st.turns,
		&st.bytesRead, &st.bytesWritten, &st.hits, &st.misses,
	} {
		n.Store(0)
	}
	st.perCommand.Clear()
}

// commandDone counts a command that has run, and notes it if it was slow. Its time includes no wait
// for a turn.
func (s *Server) commandDone(cmd *command, args [][]byte, began time.Duration, err error) {
	took := s.monotonic() - began
	s.stats.commands.Add(1)
	v, ok := s.stats.perCommand.Load(cmd)
	if !ok {
		v, _ = s.stats.perCommand.LoadOrStore(cmd, new(commandStats))
	}
	cs := v.(*commandStats)
	cs.calls.Add(1)
	cs.micros.Add(took.Microseconds())
	if err != nil {
		cs.failed.Add(1)
		s.stats.errors.Add(1)
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
