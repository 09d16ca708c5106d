package ratecounter

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-chi/httprate"

	"github.com/ebbkv/ebb/kv"
)

// Counter implements httprate.LimitCounter. It is safe for concurrent use. Its commits do not wait
// for the disk: a power cut may lose the last of them, a killed process does not.
type Counter struct {
	db     *kv.DB
	family string
	window atomic.Int64 // time.Duration
}

var _ httprate.LimitCounter = (*Counter)(nil)

// New returns a counter in a family of db, which it creates if absent.
func New(db *kv.DB, family string) (*Counter, error) {
	return &Counter{db: db, family: family}, db.EnsureCF(family, kv.CFOptions{})
}

// Config tells the counter the length of a window.
func (c *Counter) Config(_ int, window time.Duration) { c.window.Store(int64(window)) }

// Increment counts one request.
func (c *Counter) Increment(key string, window time.Time) error { return c.IncrementBy(key, window, 1) }

// IncrementBy counts a number of requests in the window that begins at the given instant.
func (c *Counter) IncrementBy(key string, window time.Time, amount int) error {
	return c.db.Update(func(tx *kv.Tx) error {
		tx.SetDurability(kv.NoSync)
		// The window after this one reads the counter too.
		ttl := max(2*time.Duration(c.window.Load()), time.Millisecond)
		_, err := tx.CF(c.family).Increment(counterKey(key, window), int64(amount), ttl)
		return err
	})
}

// Get returns the counts of two windows, of one snapshot.
func (c *Counter) Get(key string, current, previous time.Time) (now, before int, err error) {
	err = c.db.View(func(tx *kv.Tx) (err error) {
		if now, err = count(tx.CF(c.family), counterKey(key, current)); err != nil {
			return err
		}
		before, err = count(tx.CF(c.family), counterKey(key, previous))
		return err
	})
	return now, before, err
}

func count(f *kv.CF, key []byte) (int, error) {
	value, err := f.Get(key)
	switch {
	case errors.Is(err, kv.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	case len(value) != 8:
		return 0, kv.ErrNotCounter
	}
	return int(int64(binary.BigEndian.Uint64(value))), nil
}

// counterKey is the beginning of the window, then the key.
func counterKey(key string, window time.Time) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(window.UnixNano())), key...)
}
