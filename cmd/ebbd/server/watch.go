package server

import (
	"bytes"
	"slices"
	"sync"
)

// watch is a key that a connection watches. WATCH is part of a turn: when its reply is out, all
// writes before it are visible, and all writes after it find the watch.
type watch struct {
	db      int
	key     []byte
	owner   *conn
	expires int64 // ms; instant at which the key or one of its fields expires; 0: none does
	touched bool
}

type watchedKey struct {
	db  int
	key string
}

// watchTable has the watches of all connections by key.
type watchTable struct {
	mu sync.Mutex
	by map[watchedKey][]*watch
}

func (c *conn) watch(key []byte, expires int64) {
	for _, w := range c.watched {
		if w.db == c.db && bytes.Equal(w.key, key) {
			return
		}
	}
	w := &watch{db: c.db, key: bytes.Clone(key), owner: c, expires: expires}
	c.watched = append(c.watched, w)
	c.s.watches.add([]*watch{w})
}

func (t *watchTable) add(watches []*watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = make(map[watchedKey][]*watch)
	}
	for _, w := range watches {
		at := watchedKey{w.db, string(w.key)}
		t.by[at] = append(t.by[at], w)
	}
}

func (c *conn) unwatch() {
	if len(c.watched) == 0 {
		return
	}
	t := &c.s.watches
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range c.watched {
		at := watchedKey{w.db, string(w.key)}
		rest := slices.DeleteFunc(t.by[at], func(other *watch) bool { return other == w })
		if len(rest) == 0 {
			delete(t.by, at)
		} else {
			t.by[at] = rest
		}
	}
	c.watched = nil
}

// touch marks the watches of modified keys.
func (t *watchTable) touch(db int, keys [][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.by) == 0 {
		return
	}
	for _, key := range keys {
		for _, w := range t.by[watchedKey{db, string(key)}] {
			w.touched = true
		}
	}
}

// keys returns the watched keys of a database.
func (t *watchTable) keys(db int) [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return keysOf(t.by, db)
}

// keysOf returns the keys of a database that a table has.
func keysOf[V any](table map[watchedKey]V, db int) (keys [][]byte) {
	for at := range table {
		if at.db == db {
			keys = append(keys, []byte(at.key))
		}
	}
	return keys
}

// modified records that keys of a database have been modified.
func (s *Server) modified(db int, keys [][]byte) {
	s.watches.touch(db, keys)
	s.exec.wake(db, keys)
	s.changes.Add(int64(len(keys)))
}

// touchReplaced marks the watches of a database that is flushed, or swapped with another one: those
// of keys that are present in one of the databases before.
func (r *request) touchReplaced(db int, before ...int) error {
	for _, key := range r.s.watches.keys(db) {
		for _, n := range before {
			row, err := r.s.store.Space(r.tx, n).Load(key)
			if err != nil {
				return err
			}
			if row.Type != 0 {
				r.s.watches.touch(db, [][]byte{key})
			}
		}
	}
	r.s.changes.Add(1)
	r.s.exec.wake(db, r.s.waits.all(db))
	return nil
}

// intact says whether none of the keys has been modified, or has expired until now.
func (t *watchTable) intact(watches []*watch, now int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(watches, func(w *watch) bool {
		return w.touched || w.expires > 0 && w.expires <= now
	})
}
