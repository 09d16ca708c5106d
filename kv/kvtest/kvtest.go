package kvtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// Open opens a new store in memory; nil options mean what they mean to kv.Open. A store that the test
// has closed itself is not checked.
func Open(t testing.TB, o *kv.Options) *kv.DB {
	t.Helper()
	db, err := kv.OpenMemory(o)
	if err != nil {
		t.Fatalf("kvtest: %v", err)
	}
	t.Cleanup(func() { finish(t, db) })
	return db
}

// finish checks and closes a store.
func finish(t testing.TB, db *kv.DB) {
	t.Helper()
	for p := range db.Check(context.Background()) {
		if p.Kind == "closed" {
			return
		}
		t.Errorf("kvtest: %v", p)
	}
	if err := db.Close(); err != nil {
		t.Errorf("kvtest: %v", err)
	}
}

// Clock is a clock that the test sets. Its method Now is for kv.Options.Clock.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that stands at an instant.
func NewClock(at time.Time) *Clock { return &Clock{now: at} }

// Now returns the instant at which the clock stands.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock ahead, or back if d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Set moves the clock to an instant.
func (c *Clock) Set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = at
}
