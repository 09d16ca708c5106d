package kv

import (
	"context"
	"errors"
)

// mostTries bounds how often a write is tried that finds no space: others may have taken what each
// checkpoint has made.
const mostTries = 4

// withSpace makes a write, which leaves nothing behind if it fails, again after each checkpoint
// that makes space for it. ctx bounds the waits.
func (db *DB) withSpace(ctx context.Context, write func() error) error {
	for n := 1; ; n++ {
		err := write()
		if n == mostTries || !refused(err) {
			return err
		}
		again, failed := db.awaitSpace(ctx)
		if failed != nil {
			return errors.Join(failed, err)
		}
		if !again {
			return err
		}
	}
}

func (db *DB) awaitSpace(ctx context.Context) (again bool, err error) {
	defer db.leave()
	again, err = db.store.AwaitSpace(ctx)
	return again, fromBelow(err)
}

// refused says that there was no space for a write, which is the same as if it had not been made.
func refused(err error) bool {
	return errors.Is(err, ErrNoSpace) && !errors.Is(err, ErrCommitUnknown) && !errors.Is(err, ErrFailed)
}
