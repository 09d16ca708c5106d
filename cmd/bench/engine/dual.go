package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"
)

// dual gives a store without expiry the one that its users write by hand: the value begins with its
// instant in milliseconds, so that a read needs one look-up, and an index of instant and key tells
// what is due. Both are written in one batch. Rows lie under "d", the index under "i", in one key
// space: then the same code serves every store.
//
// A put does not look for the index entry of an older value, which would cost a read each time.
// Entries that no longer say the truth stay, and a purge, which reads the row of each entry that is
// due, drops them.
func dual(open func(Config) (Store, error)) func(Config) (Store, error) {
	return func(c Config) (Store, error) {
		c.Bytes += c.Bytes / 2
		s, err := open(c)
		if err != nil {
			return nil, err
		}
		return &dualStore{Store: s, now: c.Now}, nil
	}
}

const (
	dualRow   = 'd'
	dualIndex = 'i'
	instant   = 8           // bytes of one
	entrySize = 1 + instant // of the index, before the key
	permanent = 1<<63 - 1   // the instant of rows without an expiry
)

type dualStore struct {
	Store
	now func() time.Time

	// purging lets no batch come between a purge's look at a row and its deletion. A store of one
	// writer would have it wait for the same time.
	purging sync.RWMutex
}

// dualReader is a Reader that also lists the keys of [lo, hi), at most limit of them.
type dualReader interface {
	Reader
	keys(lo, hi []byte, limit int, each func(key []byte)) error
}

// rangeDeleter is a Writer that deletes [lo, hi) at once.
type rangeDeleter interface {
	deleteRange(lo, hi []byte) error
}

// lazyBatcher is a Client of a store with batches that do not wait for the disk though others do.
// flush waits for all of them.
type lazyBatcher interface {
	lazyBatch(fn func(Writer) error) error
	flush() error
}

func (s *dualStore) Client() (Client, error) {
	inner, err := s.Store.Client()
	c := &dualClient{Client: inner, dualStore: s}
	c.see = func(v []byte) {
		if c.live = int64(binary.BigEndian.Uint64(v)) > c.at; c.live {
			c.use(v[instant:])
		}
	}
	return c, err
}

// dualClient keeps what it needs for a call, so that no call allocates for this layer.
type dualClient struct {
	Client
	*dualStore
	buf  []byte // what a batch or a purge has put together
	rows []dualKey
	due  [][]byte // entries of a purge

	key  []byte // of Get, as the next four
	at   int64
	use  func([]byte)
	live bool
	see  func(v []byte)
}

// dualKey is the key of a row, and the instant that its index entry tells.
type dualKey struct{ key, at []byte }

func (c *dualClient) Close() error { return c.Client.Close() }

// cut returns n bytes that stay as they are until the buffer is used for the next batch.
func (c *dualClient) cut(n int) []byte {
	c.buf = slices.Grow(c.buf, n)
	from := len(c.buf)
	c.buf = c.buf[:from+n]
	return c.buf[from : from+n : from+n]
}

func (c *dualClient) rowKey(key []byte) []byte {
	b := c.cut(1 + len(key))
	b[0] = dualRow
	copy(b[1:], key)
	return b
}

func (c *dualClient) Put(key, value []byte) error {
	return c.Batch(func(w Writer) error { return w.Put(key, value) })
}

func (c *dualClient) Batch(fn func(Writer) error) error {
	c.purging.RLock()
	defer c.purging.RUnlock()
	c.buf = c.buf[:0]
	return c.Client.Batch(func(w Writer) error { return fn(&dualWriter{w, c, c.now()}) })
}

func (c *dualClient) Get(key []byte, use func([]byte)) (bool, error) {
	c.key = append(append(c.key[:0], dualRow), key...)
	c.at, c.use, c.live = c.now().UnixMilli(), use, false
	_, err := c.Client.Get(c.key, c.see)
	return c.live, err
}

// View is not offered: no workload with expiry has a use for it.
func (c *dualClient) View(func(Reader) error) error { return errors.ErrUnsupported }

// Purge deletes what is due in batches.
func (c *dualClient) Purge(batch int) (rows int, err error) {
	commit := c.Client.Batch
	lazy, isLazy := c.Client.(lazyBatcher)
	if isLazy {
		commit = lazy.lazyBatch
	}
	for {
		due, n, err := c.purge(batch, commit)
		rows += n
		switch {
		case err != nil:
			return rows, err
		case due < batch && isLazy:
			return rows, lazy.flush()
		case due < batch:
			return rows, nil
		}
	}
}

// purge deletes one batch of index entries that are due, and the rows of those that are true, in
// the order of their keys.
func (c *dualClient) purge(batch int, commit func(func(Writer) error) error) (entries, rows int, err error) {
	c.purging.Lock()
	defer c.purging.Unlock()
	c.buf, c.due, c.rows = c.buf[:0], c.due[:0], c.rows[:0]
	if err := c.Client.View(func(r Reader) error { return c.look(r.(dualReader), batch) }); err != nil ||
		len(c.due) == 0 {
		return 0, 0, err
	}
	err = commit(func(w Writer) error {
		if err := c.unlist(w); err != nil {
			return err
		}
		for _, row := range c.rows {
			if err := w.Delete(row.key); err != nil {
				return err
			}
		}
		return nil
	})
	return len(c.due), len(c.rows), err
}

// look finds the entries that are due and the rows that they tell the truth about.
func (c *dualClient) look(r dualReader, batch int) error {
	hi := binary.BigEndian.AppendUint64([]byte{dualIndex}, uint64(c.now().UnixMilli())+1)
	err := r.keys([]byte{dualIndex}, hi, batch, func(entry []byte) {
		b := c.cut(len(entry))
		copy(b, entry)
		c.due = append(c.due, b)
		c.rows = append(c.rows, dualKey{c.rowKey(b[entrySize:]), b[1:entrySize]})
	})
	if err != nil {
		return err
	}
	slices.SortFunc(c.rows, func(a, b dualKey) int { return bytes.Compare(a.key, b.key) })
	n := 0
	for _, row := range c.rows {
		holds := false
		if _, err := r.Get(row.key, func(v []byte) { holds = bytes.Equal(v[:instant], row.at) }); err != nil {
			return err
		}
		if holds {
			c.rows[n] = row
			n++
		}
	}
	c.rows = c.rows[:n]
	return nil
}

// unlist deletes the entries, which are all that there are from the first to the last of them.
func (c *dualClient) unlist(w Writer) error {
	if d, ok := w.(rangeDeleter); ok {
		return d.deleteRange(c.due[0], append(c.due[len(c.due)-1], 0))
	}
	for _, entry := range c.due {
		if err := w.Delete(entry); err != nil {
			return err
		}
	}
	return nil
}

type dualWriter struct {
	w   Writer
	c   *dualClient
	now time.Time
}

func (w *dualWriter) Put(key, value []byte) error { return w.put(key, value, permanent) }

func (w *dualWriter) PutTTL(key, value []byte, ttl time.Duration) error {
	at := uint64(w.now.Add(ttl).UnixMilli())
	if err := w.put(key, value, at); err != nil {
		return err
	}
	entry := w.c.cut(entrySize + len(key))
	entry[0] = dualIndex
	binary.BigEndian.PutUint64(entry[1:], at)
	copy(entry[entrySize:], key)
	return w.w.Put(entry, []byte{})
}

func (w *dualWriter) put(key, value []byte, atMs uint64) error {
	row := w.c.cut(instant + len(value))
	binary.BigEndian.PutUint64(row, atMs)
	copy(row[instant:], value)
	return w.w.Put(w.c.rowKey(key), row)
}

func (w *dualWriter) Delete(key []byte) error { return w.w.Delete(w.c.rowKey(key)) }
