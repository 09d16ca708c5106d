package engine

import (
	"bytes"
	"context"
	"errors"
	"math"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

func init() {
	register(
		Engine{Name: "pebble", Module: "github.com/cockroachdb/pebble/v2", Checkpoints: true,
			Open: openPebble},
	)
	register(
		Engine{
			Name:    "pebble-dual",
			Module:  "github.com/cockroachdb/pebble/v2",
			Expires: true,
			Purges:  true,
			OnlyTTL: true,
			Open:    dual(openPebble),
		},
	)
}

// lsm is Pebble with the options of CockroachDB where they differ from the defaults and matter
// here: memtables of 64 MiB, compaction of the first level from two files on and no stall by it,
// several compactions at a time, bloom filters, large blocks, the newest format. The block cache
// holds the whole set, so that reads cost no system call, as with the mapped files of others.
// Values do not compress, so compression would cost time and give nothing.
type lsm struct {
	db   *pebble.DB
	opts *pebble.Options
	dir  string
	sync *pebble.WriteOptions
}

func openPebble(c Config) (Store, error) {
	o := &pebble.Options{
		Logger: silent{}, FormatMajorVersion: pebble.FormatNewest,
		CacheSize: c.Bytes*2 + 64<<20, MemTableSize: 64 << 20,
		MemTableStopWritesThreshold: 4, BytesPerSync: 512 << 10,
		L0CompactionThreshold: 2, L0StopWritesThreshold: 1000, LBaseMaxBytes: 64 << 20,
		CompactionConcurrencyRange: func() (lower, upper int) { return 1, 3 },
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].BlockSize, o.Levels[i].IndexBlockSize = 32<<10, 256<<10
	}
	if c.KeepLog {
		o.MemTableSize = 128 << 20
	}
	db, err := pebble.Open(c.Dir, o)
	if err != nil {
		return nil, err
	}
	s := &lsm{db: db, opts: o, dir: c.Dir, sync: pebble.NoSync}
	if c.Durable {
		s.sync = pebble.Sync
	}
	return s, nil
}

func (s *lsm) Client() (Client, error) { return &lsmClient{s}, nil }
func (s *lsm) Close() error            { return s.db.Close() }
func (s *lsm) Checkpoint() error       { return s.db.Flush() }

// Settle moves all rows to one level.
func (s *lsm) Settle() error {
	return s.db.Compact(context.Background(), []byte{0}, bytes.Repeat([]byte{math.MaxUint8}, 32), true)
}

// BulkLoad writes a table and links it in.
func (s *lsm) BulkLoad(rows int, next func(int) (key, value []byte)) error {
	name := filepath.Join(s.dir, "load.sst")
	f, err := vfs.Default.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	w := sstable.NewWriter(
		objstorageprovider.NewFileWritable(f),
		s.opts.MakeWriterOptions(6, s.db.TableFormat()),
	)
	for i := range rows {
		if err := w.Set(next(i)); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return s.db.Ingest(context.Background(), []string{name})
}

type lsmClient struct{ *lsm }

func (c *lsmClient) Close() error                { return nil }
func (c *lsmClient) Put(key, value []byte) error { return c.db.Set(key, value, c.sync) }

func (c *lsmClient) Batch(fn func(Writer) error) error     { return c.batch(fn, c.sync) }
func (c *lsmClient) lazyBatch(fn func(Writer) error) error { return c.batch(fn, pebble.NoSync) }
func (c *lsmClient) flush() error                          { return c.db.LogData(nil, c.sync) }

func (c *lsmClient) batch(fn func(Writer) error, sync *pebble.WriteOptions) error {
	b := c.db.NewBatch()
	defer b.Close()
	if err := fn(lsmBatch{b}); err != nil {
		return err
	}
	return b.Commit(sync)
}

// Get is a state of its own without a snapshot: a single read sees one state anyway.
func (c *lsmClient) Get(key []byte, use func([]byte)) (bool, error) { return lsmGet(c.db, key, use) }

func (c *lsmClient) View(fn func(Reader) error) error {
	snapshot := c.db.NewSnapshot()
	defer snapshot.Close()
	r := &lsmReader{Reader: snapshot}
	err := fn(r)
	if r.it != nil {
		err = errors.Join(err, r.it.Close())
	}
	return err
}

func lsmGet(r pebble.Reader, key []byte, use func([]byte)) (bool, error) {
	value, closer, err := r.Get(key)
	if err == pebble.ErrNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	use(value)
	return true, closer.Close()
}

// lsmReader keeps its iterator: to give it other bounds costs less than a new one.
type lsmReader struct {
	pebble.Reader
	it *pebble.Iterator
}

func (r *lsmReader) Get(key []byte, use func([]byte)) (bool, error) {
	return lsmGet(r.Reader, key, use)
}

// within is an iterator over [lo, hi).
func (r *lsmReader) within(lo, hi []byte) (it *pebble.Iterator, err error) {
	if r.it != nil {
		r.it.SetBounds(lo, hi)
		return r.it, nil
	}
	r.it, err = r.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	return r.it, err
}

func (r *lsmReader) Scan(in Range, t *Tally) error {
	it, err := r.within(in.Lo, in.Hi)
	if err != nil {
		return err
	}
	if in.Reverse {
		for ok := it.Last(); ok; ok = it.Prev() {
			t.Add(it.Key(), it.Value())
		}
		return it.Error()
	}
	for ok := it.First(); ok; ok = it.Next() {
		t.Add(it.Key(), it.Value())
	}
	return it.Error()
}

func (r *lsmReader) keys(lo, hi []byte, limit int, each func(key []byte)) error {
	it, err := r.within(lo, hi)
	if err != nil {
		return err
	}
	for ok := it.First(); ok && limit > 0; ok, limit = it.Next(), limit-1 {
		each(it.Key())
	}
	return it.Error()
}

type lsmBatch struct{ *pebble.Batch }

func (b lsmBatch) Put(key, value []byte) error { return b.Set(key, value, nil) }
func (b lsmBatch) Delete(key []byte) error     { return b.Batch.Delete(key, nil) }

func (b lsmBatch) deleteRange(lo, hi []byte) error { return b.Batch.DeleteRange(lo, hi, nil) }
