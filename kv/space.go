package kv

import (
	"context"
	"errors"
)

// mostTries bounds the tries of a write that finds no space: other writes may have used the space
// that each checkpoint made.
const mostTries = 4

// withSpace runs a write that rolls back on failure, again after each checkpoint that makes space
// for it. ctx bounds the waits.
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
	defer db.notifyShutdown()
	again, err = db.store.AwaitSpace(ctx)
	return again, fromBelow(err)
}

// refused says that a write found no space and was rolled back.
func refused(err error) bool {
	return errors.Is(err, ErrNoSpace) && !errors.Is(err, ErrCommitUnknown) && !errors.Is(err, ErrFailed)
}
