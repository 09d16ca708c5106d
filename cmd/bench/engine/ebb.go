package engine

import (
	"context"
	"iter"
	"path/filepath"
	"time"

	"github.com/ebbkv/ebb/kv"
)

func init() {
	register(Engine{Name: "ebb", Expires: true, Purges: true, Checkpoints: true, Open: openEbb})
}

// ebb is used as it comes: default options but for the durability that a row asks for.
// CheckpointBytes is set only where a full log is the subject.
type ebb struct {
	db      *kv.DB
	durable bool
}

func openEbb(c Config) (Store, error) {
	o := &kv.Options{Clock: c.Now}
	if !c.Durable {
		o.Durability = kv.NoSync
	}
	if c.KeepLog {
		o.CheckpointBytes = 1 << 30
	}
	db, err := kv.Open(filepath.Join(c.Dir, "bench.ebb"), o)
	if err != nil {
		return nil, err
	}
	return &ebb{db: db, durable: c.Durable}, nil
}

func (e *ebb) Client() (Client, error) {
	return &ebbClient{db: e.db, durable: e.durable, batch: ebbBatch{e.db.NewBatch()}}, nil
}
func (e *ebb) Close() error      { return e.db.Close() }
func (e *ebb) Checkpoint() error { return e.db.Checkpoint(context.Background()) }

func (e *ebb) BulkLoad(rows int, next func(int) (key, value []byte)) error {
	_, err := e.db.BulkLoad(
		context.Background(),
		"default",
		iter.Seq2[[]byte, []byte](func(yield func(k, v []byte) bool) {
			for i := range rows {
				if !yield(next(i)) {
					return
				}
			}
		}),
	)
	return err
}

type ebbClient struct {
	db      *kv.DB
	durable bool
	buf     []byte // of Get
	batch   ebbBatch
}

func (c *ebbClient) Close() error                { return nil }
func (c *ebbClient) Put(key, value []byte) error { return c.db.Put(key, value) }

func (c *ebbClient) Batch(fn func(Writer) error) error {
	c.batch.b.Reset()
	if err := fn(c.batch); err != nil {
		return err
	}
	return c.db.Apply(context.Background(), c.batch.b)
}

func (c *ebbClient) Update(fn func(Writer) error) error {
	return c.db.Update(func(tx *kv.Tx) error { return fn(ebbWriter{tx}) })
}

// Get copies: for small values that costs less than the closure of a View, and GetAppend does not
// allocate.
func (c *ebbClient) Get(key []byte, use func([]byte)) (bool, error) {
	var err error
	c.buf, err = c.db.GetAppend(c.buf[:0], key)
	if err == kv.ErrNotFound {
		return false, nil
	}
	if err == nil {
		use(c.buf)
	}
	return err == nil, err
}

func (c *ebbClient) View(fn func(Reader) error) error {
	return c.db.View(func(tx *kv.Tx) error { return fn(ebbReader{tx}) })
}

func (c *ebbClient) Purge(batch int) (int, error) {
	// Force: the row's clock has jumped forward, to let a million rows expire without waiting for
	// it.
	res, err := c.db.PurgeExpired(context.Background(), kv.PurgeOptions{Batch: batch, Force: true})
	if err == nil && c.durable {
		err = c.db.Sync()
	}
	return int(res.Purged), err
}

type ebbReader struct{ tx *kv.Tx }

func (r ebbReader) Get(key []byte, use func([]byte)) (bool, error) {
	value, err := r.tx.Get(key)
	if err == kv.ErrNotFound {
		return false, nil
	}
	if err == nil {
		use(value)
	}
	return err == nil, err
}

func (r ebbReader) Scan(in Range, t *Tally) error {
	for k, v := range r.tx.Scan(kv.ScanOptions{Lower: in.Lo, Upper: in.Hi, Reverse: in.Reverse}) {
		t.Add(k, v)
	}
	return r.tx.Err()
}

// ebbBatch is a kv.Batch, which is what to use for many writes that read nothing: a kv.Tx does not
// know what comes next.
type ebbBatch struct{ b *kv.Batch }

func (w ebbBatch) Put(key, value []byte) error { w.b.Put(key, value); return nil }
func (w ebbBatch) Delete(key []byte) error     { w.b.Delete(key); return nil }

func (w ebbBatch) PutTTL(key, value []byte, ttl time.Duration) error {
	w.b.PutTTL(key, value, ttl)
	return nil
}

var _ ExpiringWriter = ebbBatch{}

type ebbWriter struct{ tx *kv.Tx }

func (w ebbWriter) Put(key, value []byte) error { return w.tx.Put(key, value) }
func (w ebbWriter) Delete(key []byte) error     { return w.tx.Delete(key) }
