package txn

import (
	"fmt"
	"sync/atomic"
)

// A stickyFailure is the first failure of a store: it writes nothing more until it is opened again.
// Snapshots stay readable.
type stickyFailure struct {
	failed atomic.Pointer[failure]
	notify func(error) // gets the first failure; nil: no callback
}

type failure struct{ err error }

// fail makes the first failure sticky, and returns it.
func (f *stickyFailure) fail(err error) error {
	if f.failed.CompareAndSwap(nil, &failure{err}) && f.notify != nil {
		f.notify(err)
	}
	return f.failure()
}

func (f *stickyFailure) failure() error {
	first := f.failed.Load()
	if first == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrFailed, first.err)
}

// dataError converts the error of a write to the main file: the first failed write fails the store.
func (f *stickyFailure) dataError(err error) error {
	if err == nil || corrupt(err) {
		return err
	}
	return f.fail(err)
}
