package engine

import (
	"bytes"
	"math"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

func init() {
	register(Engine{Name: "bbolt", Module: "go.etcd.io/bbolt", Open: openBolt})
	register(
		Engine{
			Name:    "bbolt-dual",
			Module:  "go.etcd.io/bbolt",
			Expires: true,
			Purges:  true,
			OnlyTTL: true,
			Open:    dual(openBolt),
		},
	)
}

var boltBucket = []byte("b")

// bolt is configured as etcd does: the free list as a map and not written with each commit, because
// both would cost each commit time in proportion to the free pages, and a map large enough that
// growth never remaps under readers. Durable puts from several goroutines go through DB.Batch,
// which shares a commit among them; its delay is short and its size is the number of goroutines, so
// that no call waits for followers that cannot come.
type bolt struct {
	db     *bbolt.DB
	shared bool    // several goroutines
	fill   float64 // of pages, when rows arrive in order
}

func openBolt(c Config) (Store, error) {
	db, err := bbolt.Open(filepath.Join(c.Dir, "bolt.db"), 0o600, &bbolt.Options{
		FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, NoSync: !c.Durable,
		InitialMmapSize: int(min(4*c.Bytes+64<<20, math.MaxInt32)),
	})
	if err != nil {
		return nil, err
	}
	db.MaxBatchSize, db.MaxBatchDelay = c.Clients, time.Millisecond
	b := &bolt{db: db, shared: c.Clients > 1 && c.Durable, fill: bbolt.DefaultFillPercent}
	if c.Sorted {
		b.fill = 1
	}
	return b, b.makeBucket()
}

// makeBucket makes the bucket of a new store; opening an old one must not write.
func (b *bolt) makeBucket() error {
	there := false
	err := b.db.View(func(tx *bbolt.Tx) error {
		there = tx.Bucket(boltBucket) != nil
		return nil
	})
	if err != nil || there {
		return err
	}
	return b.db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(boltBucket)
		return err
	})
}

func (b *bolt) Client() (Client, error) { return boltClient{b}, nil }

// boltChunk is how many rows a transaction of a bulk load has: more, and what it keeps in memory
// costs more than commits do.
const boltChunk = 1000

// BulkLoad is a number of transactions that fill pages whole and do not wait for the disk, and one
// sync.
func (b *bolt) BulkLoad(rows int, next func(int) (key, value []byte)) error {
	b.db.NoSync = true
	var values []byte // bbolt keeps the slices of values until the transaction ends
	for from := 0; from < rows; from += boltChunk {
		values = values[:0]
		err := boltClient{b}.Batch(func(w Writer) error {
			for i := from; i < min(from+boltChunk, rows); i++ {
				k, v := next(i)
				values = append(values, v...)
				if err := w.Put(k, values[len(values)-len(v):]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return b.db.Sync()
}

// Close syncs what was not: the store is durable after it, as the others are.
func (b *bolt) Close() error {
	if b.db.NoSync {
		if err := b.db.Sync(); err != nil {
			return err
		}
	}
	return b.db.Close()
}

type boltClient struct{ *bolt }

func (c boltClient) Close() error { return nil }

func (c boltClient) Put(key, value []byte) error {
	update := c.db.Update
	if c.shared {
		update = c.db.Batch
	}
	return update(func(tx *bbolt.Tx) error { return tx.Bucket(boltBucket).Put(key, value) })
}

func (c boltClient) Batch(fn func(Writer) error) error {
	return c.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(boltBucket)
		bucket.FillPercent = c.fill
		return fn(bucket)
	})
}

func (c boltClient) Get(key []byte, use func([]byte)) (found bool, err error) {
	err = c.db.View(func(tx *bbolt.Tx) error {
		value := tx.Bucket(boltBucket).Get(key)
		if found = value != nil; found {
			use(value)
		}
		return nil
	})
	return found, err
}

// View keeps one cursor for all gets: Bucket.Get would make a new one each time.
func (c boltClient) View(fn func(Reader) error) error {
	return c.db.View(func(tx *bbolt.Tx) error {
		return fn(&boltReader{tx.Bucket(boltBucket).Cursor()})
	})
}

type boltReader struct{ cur *bbolt.Cursor }

func (r *boltReader) Get(key []byte, use func([]byte)) (bool, error) {
	k, v := r.cur.Seek(key)
	if !bytes.Equal(k, key) {
		return false, nil
	}
	use(v)
	return true, nil
}

func (r *boltReader) Scan(in Range, t *Tally) error {
	if in.Reverse {
		for k, v := boltLast(r.cur, in.Hi); k != nil && bytes.Compare(k, in.Lo) >= 0; k, v = r.cur.Prev() {
			t.Add(k, v)
		}
		return nil
	}
	k, v := r.cur.Seek(in.Lo)
	if in.Hi == nil {
		for ; k != nil; k, v = r.cur.Next() {
			t.Add(k, v)
		}
		return nil
	}
	for ; k != nil && bytes.Compare(k, in.Hi) < 0; k, v = r.cur.Next() {
		t.Add(k, v)
	}
	return nil
}

// boltLast goes to the last row below hi.
func boltLast(cur *bbolt.Cursor, hi []byte) (k, v []byte) {
	if hi == nil {
		return cur.Last()
	}
	if k, _ := cur.Seek(hi); k == nil {
		return cur.Last()
	}
	return cur.Prev()
}

func (r *boltReader) keys(lo, hi []byte, limit int, each func(key []byte)) error {
	for k, _ := r.cur.Seek(lo); k != nil && bytes.Compare(k, hi) < 0 && limit > 0; k, _ = r.cur.Next() {
		each(k)
		limit--
	}
	return nil
}
