package main

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// readBolt reads a file of bbolt: each bucket is a family, a nested one, too. The slices of rows are
// valid until the transaction ends, which is when readBolt returns.
func readBolt(
	path string, wait time.Duration,
	put func(foreignRow) error, sequence func(string, uint64) error,
) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: max(wait, time.Millisecond)})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return fmt.Errorf("%s: another process has it open: end it, or wait for it with --wait 10s", path)
	}
	if err != nil {
		return fmt.Errorf("read %s: %v", path, err) // not wrapped: a hint about the store would mislead
	}
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			return readBucket(b, [][]byte{name}, put, sequence)
		})
	})
	return errors.Join(err, db.Close())
}

func readBucket(
	b *bolt.Bucket, path [][]byte,
	put func(foreignRow) error, sequence func(string, uint64) error,
) error {
	family := familyOfBuckets(path)
	var nested [][]byte
	err := b.ForEach(func(key, value []byte) error {
		if value == nil {
			nested = append(nested, bytes.Clone(key))
			return nil
		}
		return put(foreignRow{family: family, key: key, value: value})
	})
	if err != nil {
		return err
	}
	if err := sequence(family, b.Sequence()); err != nil {
		return err
	}
	for _, name := range nested {
		if err := readBucket(b.Bucket(name), append(path[:len(path):len(path)], name), put,
			sequence); err != nil {
			return err
		}
	}
	return nil
}
