package engine

import (
	"path/filepath"
	"time"
	"unsafe"

	"github.com/tidwall/buntdb"
)

func init() {
	register(
		Engine{Name: "buntdb", Module: "github.com/tidwall/buntdb", Expires: true, OnlyTTL: true,
			Open: openBunt},
	)
}

// bunt holds all rows in memory and appends each commit to a file, synced always where commits are
// durable. It rewrites that file when it has doubled, as it does by default. Strings are made from
// bytes without a copy where it keeps none of them. Its purge runs by the wall clock in a goroutine
// of its own and cannot be called, so it is not measured.
type bunt struct {
	db *buntdb.DB
}

func openBunt(c Config) (Store, error) {
	db, err := buntdb.Open(filepath.Join(c.Dir, "bunt.db"))
	if err != nil {
		return nil, err
	}
	var cfg buntdb.Config
	if err := db.ReadConfig(&cfg); err != nil {
		return nil, err
	}
	cfg.SyncPolicy = buntdb.Never
	if c.Durable {
		cfg.SyncPolicy = buntdb.Always
	}
	return bunt{db}, db.SetConfig(cfg)
}

func (s bunt) Client() (Client, error) { return buntClient(s), nil }
func (s bunt) Close() error            { return s.db.Close() }

type buntClient struct{ db *buntdb.DB }

func (c buntClient) Close() error { return nil }

func (c buntClient) Put(key, value []byte) error {
	return c.Batch(func(w Writer) error { return w.Put(key, value) })
}

func (c buntClient) Batch(fn func(Writer) error) error {
	return c.db.Update(func(tx *buntdb.Tx) error { return fn(buntWriter{tx}) })
}

func (c buntClient) Get(key []byte, use func([]byte)) (found bool, err error) {
	err = c.db.View(func(tx *buntdb.Tx) error {
		found, err = buntReader{tx}.Get(key, use)
		return err
	})
	return found, err
}

func (c buntClient) View(fn func(Reader) error) error {
	return c.db.View(func(tx *buntdb.Tx) error { return fn(buntReader{tx}) })
}

type buntWriter struct{ tx *buntdb.Tx }

func (w buntWriter) Put(key, value []byte) error {
	_, _, err := w.tx.Set(string(key), string(value), nil)
	return err
}

func (w buntWriter) PutTTL(key, value []byte, ttl time.Duration) error {
	_, _, err := w.tx.Set(string(key), string(value), &buntdb.SetOptions{Expires: true, TTL: ttl})
	return err
}

func (w buntWriter) Delete(key []byte) error {
	_, err := w.tx.Delete(string(key))
	return err
}

type buntReader struct{ tx *buntdb.Tx }

func (r buntReader) Get(key []byte, use func([]byte)) (bool, error) {
	value, err := r.tx.Get(unsafe.String(unsafe.SliceData(key), len(key)))
	if err == buntdb.ErrNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	use(unsafe.Slice(unsafe.StringData(value), len(value)))
	return true, nil
}

func (r buntReader) Scan(in Range, t *Tally) error {
	each := func(k, v string) bool {
		t.Add(unsafe.Slice(unsafe.StringData(k), len(k)), unsafe.Slice(unsafe.StringData(v), len(v)))
		return true
	}
	switch {
	case in.Reverse:
		return r.tx.Descend("", each)
	case in.Hi != nil:
		return r.tx.AscendRange("", string(in.Lo), string(in.Hi), each)
	default:
		return r.tx.AscendGreaterOrEqual("", string(in.Lo), each)
	}
}
