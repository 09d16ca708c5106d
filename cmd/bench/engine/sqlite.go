package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"time"
)

// sqliteStore is one table without rowids, so that a row is in the index of its key. Write-ahead
// log; synchronous FULL where commits are durable, because NORMAL syncs only at a checkpoint, and
// OFF where they need not be; a cache and a map that hold everything; the log is checkpointed each
// 64 MiB instead of each 4, as in programs that load much. One connection writes, behind a lock of
// Go's, because SQLite's own waits by sleeping; each client has one to read. Statements are
// prepared once and used with RawBytes, which does not copy. With expiry the row has its instant,
// and an index of them.
type sqliteStore struct {
	db      *sql.DB
	conf    Config // of all connections: pragmas are theirs, not the file's
	expires bool

	mu    sync.Mutex // guards write and its statements
	write *sqliteConn
}

const sqliteAutoCheckpoint = 64 << 20 / 4096 // pages

func openSQLite(driver string, expires bool) func(Config) (Store, error) {
	return func(c Config) (Store, error) {
		db, err := sql.Open(driver,
			"file:"+(&url.URL{Path: filepath.Join(c.Dir, "bench.sqlite")}).EscapedPath())
		if err != nil {
			return nil, err
		}
		s := &sqliteStore{db: db, conf: c, expires: expires}
		if err := s.open(); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return s, nil
	}
}

func (s *sqliteStore) open() (err error) {
	if s.write, err = s.connect(); err != nil {
		return err
	}
	schema := "CREATE TABLE IF NOT EXISTS t (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID"
	if s.expires {
		schema = `CREATE TABLE IF NOT EXISTS t (
				k BLOB PRIMARY KEY, v BLOB NOT NULL, e INTEGER NOT NULL) WITHOUT ROWID;
			CREATE INDEX IF NOT EXISTS e ON t (e)`
	}
	if err := s.write.exec(schema); err != nil {
		return err
	}
	return s.write.prepareWrites(s.expires)
}

// connect opens a connection. Each has the cache and the map that hold everything, and checkpoints
// as durably as it commits.
func (s *sqliteStore) connect() (*sqliteConn, error) {
	c := &s.conf
	conn, err := s.db.Conn(context.Background())
	if err != nil {
		return nil, err
	}
	synchronous := "OFF"
	if c.Durable {
		synchronous = "FULL"
	}
	autoCheckpoint := sqliteAutoCheckpoint
	if c.KeepLog {
		autoCheckpoint = 0
	}
	sc := &sqliteConn{conn: conn}
	return sc, sc.exec(
		fmt.Sprintf(`PRAGMA journal_mode = WAL; PRAGMA synchronous = %s; PRAGMA wal_autocheckpoint = %d;
		PRAGMA cache_size = %d; PRAGMA mmap_size = %d; PRAGMA temp_store = MEMORY;
		PRAGMA busy_timeout = 10000`,
			synchronous, autoCheckpoint, -(c.Bytes*2/1024 + 16<<10), c.Bytes*3+64<<20),
	)
}

func (s *sqliteStore) Client() (Client, error) {
	conn, err := s.connect()
	if err != nil {
		return nil, err
	}
	c := &sqliteClient{sqliteStore: s, read: conn}
	get := "SELECT v FROM t WHERE k = ?"
	if s.expires {
		get = "SELECT v FROM t WHERE k = ? AND e > ?"
	}
	c.get, err = conn.conn.PrepareContext(context.Background(), get)
	return c, err
}

func (s *sqliteStore) Close() error { return errors.Join(s.write.close(), s.db.Close()) }

func (s *sqliteStore) Checkpoint() error { // on a connection of its own: the writer goes on meanwhile
	conn, err := s.connect()
	if err != nil {
		return err
	}
	return errors.Join(conn.exec("PRAGMA wal_checkpoint(PASSIVE)"), conn.close())
}

// BulkLoad is one transaction.
func (s *sqliteStore) BulkLoad(rows int, next func(int) (key, value []byte)) error {
	return s.batch(func(w Writer) error {
		for i := range rows {
			if err := w.Put(next(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// batch runs fn in a transaction of the writing connection.
func (s *sqliteStore) batch(fn func(Writer) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.write.run(s.write.begin); err != nil {
		return err
	}
	if err := fn(sqliteWriter{s}); err != nil {
		return errors.Join(err, s.write.run(s.write.rollback))
	}
	return s.write.run(s.write.commit)
}

// sqliteConn is a connection; the statements are those of the one that writes.
type sqliteConn struct {
	conn                              *sql.Conn
	begin, commit, rollback, put, del *sql.Stmt
}

func (c *sqliteConn) exec(text string) error {
	_, err := c.conn.ExecContext(context.Background(), text)
	return err
}

func (c *sqliteConn) prepareWrites(expires bool) (err error) {
	put := "INSERT INTO t VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v"
	if expires {
		put = "INSERT INTO t VALUES (?, ?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v, e = excluded.e"
	}
	for _, s := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&c.begin, "BEGIN IMMEDIATE"}, {&c.commit, "COMMIT"}, {&c.rollback, "ROLLBACK"},
		{&c.put, put}, {&c.del, "DELETE FROM t WHERE k = ?"},
	} {
		if *s.stmt, err = c.conn.PrepareContext(context.Background(), s.text); err != nil {
			return err
		}
	}
	return nil
}

func (c *sqliteConn) run(s *sql.Stmt, args ...any) error {
	_, err := s.ExecContext(context.Background(), args...)
	return err
}

func (c *sqliteConn) close() error {
	var errs []error
	for _, s := range []*sql.Stmt{c.begin, c.commit, c.rollback, c.put, c.del} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(append(errs, c.conn.Close())...)
}

type sqliteWriter struct{ *sqliteStore }

func (w sqliteWriter) Put(key, value []byte) error {
	if w.expires {
		return w.write.run(w.write.put, key, value, int64(permanent))
	}
	return w.write.run(w.write.put, key, value)
}

func (w sqliteWriter) PutTTL(key, value []byte, ttl time.Duration) error {
	return w.write.run(w.write.put, key, value, w.conf.Now().Add(ttl).UnixMilli())
}

func (w sqliteWriter) Delete(key []byte) error { return w.write.run(w.write.del, key) }
