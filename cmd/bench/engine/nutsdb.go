package engine

import (
	"bytes"
	"time"

	"github.com/nutsdb/nutsdb"
)

func init() {
	register(
		Engine{Name: "nutsdb", Module: "github.com/nutsdb/nutsdb", Expires: true, OnlyTTL: true,
			Open: openNuts},
	)
}

const nutsBucket = "b"

// nuts keeps keys in memory and values in a log. The defaults, but for merging, which is off,
// because a merge would be another workload. Reading values from mapped files would be faster, but
// that mode panics in Close (1.1.0). Expiry counts in whole seconds. It deletes what has expired by
// the wall clock, with timers of its own, and that cannot be called, so a purge is not measured.
type nuts struct{ db *nutsdb.DB }

func openNuts(c Config) (Store, error) {
	db, err := nutsdb.Open(nutsdb.DefaultOptions, nutsdb.WithDir(c.Dir), nutsdb.WithSyncEnable(c.Durable),
		func(o *nutsdb.Options) { o.MergeInterval = 0 })
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *nutsdb.Tx) error {
		if tx.ExistBucket(nutsdb.DataStructureBTree, nutsBucket) {
			return nil
		}
		return tx.NewBucket(nutsdb.DataStructureBTree, nutsBucket)
	})
	return nuts{db}, err
}

func (s nuts) Client() (Client, error) { return nutsClient(s), nil }
func (s nuts) Close() error            { return s.db.Close() }

type nutsClient struct{ db *nutsdb.DB }

func (c nutsClient) Close() error { return nil }

func (c nutsClient) Put(key, value []byte) error {
	return c.Batch(func(w Writer) error { return w.Put(key, value) })
}

func (c nutsClient) Batch(fn func(Writer) error) error {
	return c.db.Update(func(tx *nutsdb.Tx) error { return fn(nutsWriter{tx}) })
}

func (c nutsClient) Get(key []byte, use func([]byte)) (found bool, err error) {
	err = c.db.View(func(tx *nutsdb.Tx) error {
		found, err = nutsReader{tx}.Get(key, use)
		return err
	})
	return found, err
}

func (c nutsClient) View(fn func(Reader) error) error {
	return c.db.View(func(tx *nutsdb.Tx) error { return fn(nutsReader{tx}) })
}

type nutsWriter struct{ tx *nutsdb.Tx }

func (w nutsWriter) Put(key, value []byte) error {
	return w.tx.Put(nutsBucket, key, value, nutsdb.Persistent)
}
func (w nutsWriter) Delete(key []byte) error { return w.tx.Delete(nutsBucket, key) }

// PutTTL copies the row, as all workloads need: nutsdb keeps the slices for longer than the
// transaction.
func (w nutsWriter) PutTTL(key, value []byte, ttl time.Duration) error {
	return w.tx.Put(nutsBucket, bytes.Clone(key), bytes.Clone(value), uint32(ttl/time.Second))
}

type nutsReader struct{ tx *nutsdb.Tx }

func (r nutsReader) Get(key []byte, use func([]byte)) (bool, error) {
	value, err := r.tx.Get(nutsBucket, key)
	if nutsdb.IsKeyNotFound(err) {
		return false, nil
	}
	if err == nil {
		use(value)
	}
	return err == nil, err
}

func (r nutsReader) Scan(in Range, t *Tally) error {
	it := nutsdb.NewIterator(r.tx, nutsBucket, nutsdb.IteratorOptions{Reverse: in.Reverse})
	defer it.Release()
	for ; it.Valid(); it.Next() {
		value, err := it.Value()
		if err != nil {
			return err
		}
		t.Add(it.Key(), value)
	}
	return nil
}
