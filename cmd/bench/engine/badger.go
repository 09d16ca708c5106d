package engine

import (
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/ristretto/v2/z"
)

func init() {
	register(Engine{Name: "badger", Module: "github.com/dgraph-io/badger/v4", Expires: true,
		Open: openBadger})
}

// badgerStore has the defaults but for: no compression, because values do not compress, and with
// that no block cache, which Badger's documentation says is of no use then: tables are mapped; no
// detection of conflicts, because the workloads never write the same row from two transactions; one
// version of each row, which is the default. SyncWrites makes a commit wait for msync.
type badgerStore struct{ db *badger.DB }

func openBadger(c Config) (Store, error) {
	db, err := badger.Open(badger.DefaultOptions(c.Dir).WithLogger(silent{}).WithMetricsEnabled(false).
		WithSyncWrites(c.Durable).WithCompression(options.None).WithBlockCacheSize(0).
		WithDetectConflicts(false))
	if err != nil {
		return nil, err
	}
	return badgerStore{db}, nil
}

func (s badgerStore) Client() (Client, error) { return badgerClient(s), nil }
func (s badgerStore) Close() error            { return s.db.Close() }
func (s badgerStore) Settle() error           { return s.db.Flatten(2) }

// badgerChunk is how many bytes of rows are handed to a stream at a time.
const badgerChunk = 4 << 20

// BulkLoad is Badger's stream writer, which makes tables of sorted rows and writes no log.
func (s badgerStore) BulkLoad(rows int, next func(int) (key, value []byte)) error {
	w := s.db.NewStreamWriter()
	if err := w.Prepare(); err != nil {
		return err
	}
	buf := z.NewBuffer(badgerChunk, "bench")
	defer func() { _ = buf.Release() }()
	for i := range rows {
		k, v := next(i)
		badger.KVToBuffer(&pb.KV{Key: k, Value: v, Version: 1, StreamId: 1}, buf)
		if buf.LenNoPadding() < badgerChunk && i+1 < rows {
			continue
		}
		if err := w.Write(buf); err != nil {
			return err
		}
		buf.Reset()
	}
	return w.Flush()
}

type badgerClient struct{ db *badger.DB }

func (c badgerClient) Close() error { return nil }

func (c badgerClient) Put(key, value []byte) error {
	return c.db.Update(func(tx *badger.Txn) error { return tx.Set(key, value) })
}

func (c badgerClient) Batch(fn func(Writer) error) error {
	return c.db.Update(func(tx *badger.Txn) error { return fn(badgerWriter{tx}) })
}

func (c badgerClient) Get(key []byte, use func([]byte)) (found bool, err error) {
	err = c.db.View(func(tx *badger.Txn) error {
		found, err = badgerReader{tx}.Get(key, use)
		return err
	})
	return found, err
}

func (c badgerClient) View(fn func(Reader) error) error {
	return c.db.View(func(tx *badger.Txn) error { return fn(badgerReader{tx}) })
}

type badgerWriter struct{ *badger.Txn }

func (w badgerWriter) Put(key, value []byte) error { return w.Set(key, value) }

func (w badgerWriter) PutTTL(key, value []byte, ttl time.Duration) error {
	return w.SetEntry(badger.NewEntry(key, value).WithTTL(ttl))
}

type badgerReader struct{ tx *badger.Txn }

func (r badgerReader) Get(key []byte, use func([]byte)) (bool, error) {
	item, err := r.tx.Get(key)
	if err == badger.ErrKeyNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, item.Value(func(v []byte) error {
		use(v)
		return nil
	})
}

// Scan does not prefetch: the values lie beside the keys, and to fetch them early would only copy
// them.
func (r badgerReader) Scan(in Range, t *Tally) error {
	it := r.tx.NewIterator(badger.IteratorOptions{Reverse: in.Reverse, Prefix: commonPrefix(in)})
	defer it.Close()
	start := in.Lo
	if in.Reverse {
		start = in.Hi
	}
	for it.Seek(start); it.Valid(); it.Next() {
		item := it.Item()
		key := item.Key()
		if in.Reverse && in.Hi != nil && string(key) >= string(in.Hi) {
			continue // Seek stops at its key itself.
		}
		if !in.Reverse && in.Hi != nil && string(key) >= string(in.Hi) ||
			in.Reverse && string(key) < string(in.Lo) {
			return nil
		}
		err := item.Value(func(v []byte) error {
			t.Add(key, v)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// commonPrefix lets the iterator leave out tables. It is the prefix that both bounds share.
func commonPrefix(in Range) []byte {
	if in.Reverse { // A seek downwards begins at the end of the prefix only if that is what it is given.
		return nil
	}
	i := 0
	for i < min(len(in.Lo), len(in.Hi)) && in.Lo[i] == in.Hi[i] {
		i++
	}
	return in.Lo[:i]
}
