//go:build lmdb

package engine

import (
	"bytes"
	"errors"
	"path/filepath"

	"github.com/PowerDNS/lmdb-go/lmdb"
)

func init() {
	register(Engine{Name: "lmdb", Module: "github.com/PowerDNS/lmdb-go", Open: openLMDB})
	register(
		Engine{
			Name:    "lmdb-dual",
			Module:  "github.com/PowerDNS/lmdb-go",
			Expires: true,
			Purges:  true,
			OnlyTTL: true,
			Open:    dual(openLMDB),
		},
	)
}

// lmdbStore writes with write(2) where commits wait for the disk or rows come in order, and through
// the map where neither is so: each is the faster way there, tried with every row that writes. Read
// transactions are kept and renewed by each client, values are read in place, and rows that come in
// order are appended. It is C behind cgo: each call pays for that, as it does in any Go
// program.
type lmdbStore struct {
	env     *lmdb.Env
	dbi     lmdb.DBI
	durable bool
	flags   uint // of puts
}

const lmdbMapSize = 64 << 30 // of addresses, not of memory: the map cannot grow while it is used

func openLMDB(c Config) (Store, error) {
	env, err := lmdb.NewEnv()
	if err != nil {
		return nil, err
	}
	flags := uint(lmdb.NoTLS | lmdb.NoSubdir | lmdb.NoReadahead)
	if !c.Durable {
		flags |= lmdb.NoSync
		if !c.Sorted {
			flags |= lmdb.WriteMap
		}
	}
	err = errors.Join(
		env.SetMapSize(lmdbMapSize),
		env.SetMaxReaders(256),
		env.Open(filepath.Join(c.Dir, "data.mdb"), flags, 0o600),
	)
	if err != nil {
		return nil, errors.Join(err, env.Close())
	}
	s := &lmdbStore{env: env, durable: c.Durable}
	if c.Sorted {
		s.flags = lmdb.Append
	}
	open := func(tx *lmdb.Txn) (err error) {
		s.dbi, err = tx.OpenRoot(0)
		return err
	}
	return s, env.View(open)
}

// Close syncs what was not, so that the store is durable after it.
func (s *lmdbStore) Close() error {
	if s.durable {
		return s.env.Close()
	}
	return errors.Join(s.env.Sync(true), s.env.Close())
}

// lmdbChunk is how many rows a transaction of a bulk load has: more, and its list of dirty pages
// costs more than commits do.
const lmdbChunk = 10_000

// BulkLoad is a number of transactions that append and do not wait for the disk, and one sync.
func (s *lmdbStore) BulkLoad(rows int, next func(int) (key, value []byte)) error {
	if err := s.env.SetFlags(lmdb.NoSync); err != nil {
		return err
	}
	for from := 0; from < rows; from += lmdbChunk {
		err := s.env.Update(func(tx *lmdb.Txn) error {
			cur, err := tx.OpenCursor(s.dbi)
			if err != nil {
				return err
			}
			defer cur.Close()
			for i := from; i < min(from+lmdbChunk, rows); i++ {
				k, v := next(i)
				if err := cur.Put(k, v, lmdb.Append); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return s.env.Sync(true)
}

func (s *lmdbStore) Client() (Client, error) {
	tx, err := s.env.BeginTxn(nil, lmdb.Readonly)
	if err != nil {
		return nil, err
	}
	tx.RawRead = true
	tx.Reset()
	return &lmdbClient{s, tx}, nil
}

type lmdbClient struct {
	*lmdbStore
	tx *lmdb.Txn // to read
}

func (c *lmdbClient) Close() error {
	c.tx.Abort()
	return nil
}

func (c *lmdbClient) Put(key, value []byte) error {
	return c.env.Update(func(tx *lmdb.Txn) error { return tx.Put(c.dbi, key, value, c.flags) })
}

func (c *lmdbClient) Batch(fn func(Writer) error) error {
	return c.env.Update(func(tx *lmdb.Txn) error { return fn(lmdbWriter{tx, c.dbi, c.flags}) })
}

func (c *lmdbClient) Get(key []byte, use func([]byte)) (found bool, err error) {
	if err := c.tx.Renew(); err != nil {
		return false, err
	}
	defer c.tx.Reset()
	return lmdbGet(c.tx, c.dbi, key, use)
}

func lmdbGet(tx *lmdb.Txn, dbi lmdb.DBI, key []byte, use func([]byte)) (bool, error) {
	value, err := tx.Get(dbi, key)
	if lmdb.IsNotFound(err) {
		return false, nil
	}
	if err == nil {
		use(value)
	}
	return err == nil, err
}

func (c *lmdbClient) View(fn func(Reader) error) error {
	if err := c.tx.Renew(); err != nil {
		return err
	}
	defer c.tx.Reset()
	cur, err := c.tx.OpenCursor(c.dbi)
	if err != nil {
		return err
	}
	defer cur.Close()
	return fn(lmdbReader{c.tx, c.dbi, cur})
}

type lmdbWriter struct {
	tx    *lmdb.Txn
	dbi   lmdb.DBI
	flags uint
}

func (w lmdbWriter) Put(key, value []byte) error { return w.tx.Put(w.dbi, key, value, w.flags) }
func (w lmdbWriter) Delete(key []byte) error     { return w.tx.Del(w.dbi, key, nil) }

type lmdbReader struct {
	tx  *lmdb.Txn
	dbi lmdb.DBI
	cur *lmdb.Cursor
}

func (r lmdbReader) Get(key []byte, use func([]byte)) (bool, error) {
	return lmdbGet(r.tx, r.dbi, key, use)
}

func (r lmdbReader) Scan(in Range, t *Tally) error {
	each := func(k, v []byte) bool {
		t.Add(k, v)
		return true
	}
	if in.Reverse {
		return r.walk(in.Hi, lmdb.Last, lmdb.Prev, func(k, v []byte) bool {
			return bytes.Compare(k, in.Lo) >= 0 && each(k, v)
		})
	}
	if in.Hi == nil {
		return r.walk(in.Lo, lmdb.First, lmdb.Next, each)
	}
	return r.walk(
		in.Lo,
		lmdb.First,
		lmdb.Next,
		func(k, v []byte) bool { return bytes.Compare(k, in.Hi) < 0 && each(k, v) },
	)
}

// walk visits rows from start on; nil is the end that the op at names. A walk back begins below
// start.
func (r lmdbReader) walk(start []byte, at, step uint, visit func(k, v []byte) bool) error {
	var k, v []byte
	var err error
	switch {
	case start == nil:
		k, v, err = r.cur.Get(nil, nil, at)
	case step == lmdb.Next:
		k, v, err = r.cur.Get(start, nil, lmdb.SetRange)
	default:
		if _, _, err = r.cur.Get(start, nil, lmdb.SetRange); lmdb.IsNotFound(err) {
			k, v, err = r.cur.Get(nil, nil, lmdb.Last)
		} else if err == nil {
			k, v, err = r.cur.Get(nil, nil, lmdb.Prev)
		}
	}
	for err == nil && visit(k, v) {
		k, v, err = r.cur.Get(nil, nil, step)
	}
	if lmdb.IsNotFound(err) {
		return nil
	}
	return err
}

func (r lmdbReader) keys(lo, hi []byte, limit int, each func(key []byte)) error {
	return r.walk(lo, lmdb.First, lmdb.Next, func(k, _ []byte) bool {
		if limit == 0 || bytes.Compare(k, hi) >= 0 {
			return false
		}
		limit--
		each(k)
		return true
	})
}
