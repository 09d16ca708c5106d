package ttl

import (
	"sync"
	"sync/atomic"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/txn"
)

// Bounds of a queue. A queue at its bounds drops notes: the next reader finds the key again, and a
// purge needs no queue.
const (
	maxNotes     = 1024
	maxNoteBytes = 256 << 10
)

// Queue holds expired keys that readers found, until a short transaction deletes them. It is a hint:
// each note is verified again under the writer lock. The zero value is empty and safe for concurrent
// use.
type Queue struct {
	n    atomic.Int64 // len(notes)
	full atomic.Bool  // the bytes of a key did not fit since the last Take
	mu   sync.Mutex   // guards the fields below, and changes of those above
	// notes in the order of Add; known has the same ones.
	notes []Note
	known map[noteKey]struct{}
	bytes int // of keys
}

type noteKey struct {
	base   txn.TreeID
	expiry int64
	key    string
}

// Len is the number of notes.
func (q *Queue) Len() int { return int(q.n.Load()) }

// Holds says whether there are n notes, or the queue is full.
func (q *Queue) Holds(n int) bool { return q.n.Load() >= int64(n) || q.Full() }

// Full says whether Add drops notes, until some are taken.
func (q *Queue) Full() bool { return q.n.Load() >= maxNotes || q.full.Load() }

// Add queues a key of f. The key is copied.
func (q *Queue) Add(f *cf.Family, key []byte, expiry int64) {
	if q.Full() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, known := q.known[noteKey{f.Base, expiry, string(key)}]; known {
		return
	}
	if len(q.notes) >= maxNotes || q.bytes+len(key) > maxNoteBytes {
		q.full.Store(true)
		return
	}
	if q.known == nil {
		q.known = make(map[noteKey]struct{})
	}
	n := Note{Base: f.Base, Family: f.Name, Key: string(key), Expiry: expiry}
	q.known[noteKey{n.Base, n.Expiry, n.Key}] = struct{}{}
	q.notes = append(q.notes, n)
	q.bytes += len(key)
	q.n.Store(int64(len(q.notes)))
}

// Take removes and returns the first notes, at most max of them.
func (q *Queue) Take(max int) []Note {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(max, len(q.notes))
	taken := q.notes[:n:n]
	q.notes = q.notes[n:]
	if len(q.notes) == 0 {
		q.notes, q.known, q.bytes = nil, nil, 0
	}
	for _, t := range taken {
		delete(q.known, noteKey{t.Base, t.Expiry, t.Key})
		if q.known != nil {
			q.bytes -= len(t.Key)
		}
	}
	q.n.Store(int64(len(q.notes)))
	q.full.Store(false)
	return taken
}
