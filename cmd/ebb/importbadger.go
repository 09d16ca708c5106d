package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// readBadger reads the live rows of a directory of Badger, with their expiries, into one family. It
// opens the directory read-only, which Badger allows after a clean close only.
func readBadger(path string, _ time.Duration, put func(foreignRow) error,
	sequence func(string, uint64) error) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("read: %v", err) // not wrapped: a hint about the store would mislead
	}
	db, err := badger.Open(badger.DefaultOptions(path).WithReadOnly(true).WithLogger(nil))
	if err != nil {
		return fmt.Errorf("read %s: %v", path, err)
	}
	err = db.View(func(tx *badger.Txn) error {
		rows := tx.NewIterator(badger.DefaultIteratorOptions)
		defer rows.Close()
		for rows.Rewind(); rows.Valid(); rows.Next() {
			item := rows.Item()
			value, err := item.ValueCopy(nil)
			if err != nil {
				return fmt.Errorf("read %s: %v", path, err)
			}
			r := foreignRow{key: item.KeyCopy(nil), value: value, metadata: item.UserMeta() != 0}
			if at := item.ExpiresAt(); at != 0 {
				r.expiry = time.Unix(int64(at), 0)
			}
			if err := put(r); err != nil {
				return err
			}
		}
		return sequence("", 0) // which stores the last rows
	})
	return errors.Join(err, db.Close())
}
