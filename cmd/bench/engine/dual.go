package engine

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"
)

// dual gives a store without expiry the one that its users write by hand: the value begins with its instant in
// milliseconds, so that a read needs one look-up, and an index of instant and key tells what is due. Both are written in
// one batch. Rows lie under "d", the index under "i", in one key space: then the same code serves every store.
//
// A put does not look for the index entry of an older value, which would cost a read each time. Entries that no longer
// say the truth stay, and a purge, which reads the row of each entry that is due, drops them.
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
	entrySize = 1 + 8     // of the index, before the key
	permanent = 1<<63 - 1 // the instant of rows without an expiry
)

type dualStore struct {
	Store
	now func() time.Time

	// purging lets no batch come between a purge's look at a row and its deletion.
	purging sync.RWMutex
}

// dualReader is a Reader that also lists the keys of [lo, hi), at most limit of them.
type dualReader interface {
	Reader
	keys(lo, hi []byte, limit int, each func(key []byte)) error
}

func (s *dualStore) Client() (Client, error) {
	c, err := s.Store.Client()
	return &dualClient{Client: c, dualStore: s}, err
}

type dualClient struct {
	Client
	*dualStore
	key []byte // of Get
}

func (c *dualClient) Close() error { return c.Client.Close() }

func rowKey(b, key []byte) []byte { return append(append(b[:0], dualRow), key...) }

func (c *dualClient) Put(key, value []byte) error {
	return c.Batch(func(w Writer) error { return w.Put(key, value) })
}

func (c *dualClient) Batch(fn func(Writer) error) error {
	c.purging.RLock()
	defer c.purging.RUnlock()
	return c.Client.Batch(func(w Writer) error { return fn(&dualWriter{w, c.now()}) })
}

func (c *dualClient) Get(key []byte, use func([]byte)) (live bool, err error) {
	c.key = rowKey(c.key, key)
	now := uint64(c.now().UnixMilli())
	_, err = c.Client.Get(c.key, func(v []byte) {
		if live = binary.BigEndian.Uint64(v) > now; live {
			use(v[8:])
		}
	})
	return live, err
}

// View is not offered: no workload with expiry has a use for it.
func (c *dualClient) View(func(Reader) error) error { return errors.ErrUnsupported }

// Purge deletes what is due in batches.
func (c *dualClient) Purge(batch int) (rows int, err error) {
	for {
		due, n, err := c.purge(batch)
		rows += n
		if err != nil || due < batch {
			return rows, err
		}
	}
}

// purge deletes one batch of index entries that are due, and the rows of those that are true.
func (c *dualClient) purge(batch int) (entries, rows int, err error) {
	c.purging.Lock()
	defer c.purging.Unlock()
	hi := binary.BigEndian.AppendUint64([]byte{dualIndex}, uint64(c.now().UnixMilli())+1)
	var due [][]byte // entries, and the keys of rows
	err = c.Client.View(func(r Reader) error {
		dr := r.(dualReader)
		err := dr.keys([]byte{dualIndex}, hi, batch, func(entry []byte) { due = append(due, append([]byte(nil), entry...)) })
		entries = len(due)
		for _, entry := range due[:entries] {
			if err != nil {
				break
			}
			key := rowKey(nil, entry[entrySize:])
			_, err = dr.Get(key, func(v []byte) {
				if string(v[:8]) == string(entry[1:entrySize]) {
					due = append(due, key)
				}
			})
		}
		return err
	})
	if err != nil || entries == 0 {
		return 0, 0, err
	}
	err = c.Client.Batch(func(w Writer) error {
		for _, key := range due {
			if err := w.Delete(key); err != nil {
				return err
			}
		}
		return nil
	})
	return entries, len(due) - entries, err
}

type dualWriter struct {
	w   Writer
	now time.Time
}

func (w *dualWriter) Put(key, value []byte) error { return w.put(key, value, permanent) }

func (w *dualWriter) PutTTL(key, value []byte, ttl time.Duration) error {
	at := w.now.Add(ttl).UnixMilli()
	if err := w.put(key, value, at); err != nil {
		return err
	}
	entry := binary.BigEndian.AppendUint64(append(make([]byte, 0, entrySize+len(key)), dualIndex), uint64(at))
	return w.w.Put(append(entry, key...), []byte{})
}

func (w *dualWriter) put(key, value []byte, atMs int64) error {
	row := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(value)), uint64(atMs))
	return w.w.Put(rowKey(make([]byte, 0, 1+len(key)), key), append(row, value...))
}

func (w *dualWriter) Delete(key []byte) error { return w.w.Delete(rowKey(nil, key)) }
