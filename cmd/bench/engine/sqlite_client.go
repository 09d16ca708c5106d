package engine

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

// sqliteClient reads on a connection of its own, and writes on the one that all share.
type sqliteClient struct {
	*sqliteStore
	read  *sqliteConn
	get   *sql.Stmt
	scans map[string]*sql.Stmt // by text
}

func (c *sqliteClient) Close() error {
	err := c.get.Close()
	for _, s := range c.scans {
		err = errors.Join(err, s.Close())
	}
	return errors.Join(err, c.read.close())
}

// Put is an implicit transaction: one statement instead of three.
func (c *sqliteClient) Put(key, value []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sqliteWriter{c.sqliteStore}.Put(key, value)
}

func (c *sqliteClient) Batch(fn func(Writer) error) error { return c.batch(fn) }

func (c *sqliteClient) Get(key []byte, use func([]byte)) (found bool, err error) {
	args := [2]any{key}
	n := 1
	if c.expires {
		args[1], n = c.conf.Now().UnixMilli(), 2
	}
	rows, err := c.get.QueryContext(context.Background(), args[:n]...)
	if err != nil {
		return false, err
	}
	var value sql.RawBytes
	if found = rows.Next(); found {
		if err := rows.Scan(&value); err != nil {
			return false, errors.Join(err, rows.Close())
		}
		use(value)
	}
	return found, errors.Join(rows.Err(), rows.Close())
}

func (c *sqliteClient) View(fn func(Reader) error) error {
	if err := c.read.exec("BEGIN"); err != nil {
		return err
	}
	return errors.Join(fn(sqliteReader{c}), c.read.exec("COMMIT"))
}

type sqliteReader struct{ *sqliteClient }

func (r sqliteReader) Scan(in Range, t *Tally) error {
	var where []string
	var args []any
	if in.Lo != nil {
		where, args = append(where, "k >= ?"), append(args, in.Lo)
	}
	if in.Hi != nil {
		where, args = append(where, "k < ?"), append(args, in.Hi)
	}
	text := "SELECT k, v FROM t"
	if len(where) > 0 {
		text += " WHERE " + strings.Join(where, " AND ")
	}
	text += " ORDER BY k"
	if in.Reverse {
		text += " DESC"
	}
	stmt, err := r.statement(text)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(context.Background(), args...)
	if err != nil {
		return err
	}
	var k, v sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&k, &v); err != nil {
			return errors.Join(err, rows.Close())
		}
		t.Add(k, v)
	}
	return errors.Join(rows.Err(), rows.Close())
}

// statement prepares a text once.
func (c *sqliteClient) statement(text string) (stmt *sql.Stmt, err error) {
	if c.scans[text] == nil {
		if c.scans == nil {
			c.scans = map[string]*sql.Stmt{}
		}
		c.scans[text], err = c.read.conn.PrepareContext(context.Background(), text)
	}
	return c.scans[text], err
}

// Purge deletes with the help of the index of instants.
func (c *sqliteClient) Purge(batch int) (rows int, err error) {
	for {
		n, err := c.purge(batch)
		rows += n
		if err != nil || n < batch {
			return rows, err
		}
	}
}

func (c *sqliteClient) purge(batch int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const text = "DELETE FROM t WHERE k IN (SELECT k FROM t WHERE e <= ? LIMIT ?)"
	res, err := c.write.conn.ExecContext(context.Background(), text, c.conf.Now().UnixMilli(), batch)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}
