package txn

import (
	"context"
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// Rows calls add for each row of a load, and returns its first error, or one of its own.
type Rows func(add func(key, value []byte, tag int64) error) error

// BulkLoad builds tree id from strictly increasing keys, bottom-up and without the log, and makes
// it visible and durable with one checkpoint. fn runs first, in the same transaction; after it the
// tree must exist and be empty. Other writers wait until the load is done: their commits build on
// it and must not become durable before it.
//
// Crash order: no durable page references the load before its meta page is durable, and no later
// log record exists before that.
func (s *Store) BulkLoad(ctx context.Context, fn func(*Tx) error, id TreeID, rows Rows) (n uint64,
	err error) {
	s.open.Add(1)
	defer s.open.Add(-1)
	if err := s.canWrite(); err != nil {
		return 0, err
	}
	if err := s.checkpointer.waitForFrames(ctx); err != nil {
		return 0, err
	}
	if err := lock(ctx, s.checkpointer.mu); err != nil {
		return 0, err
	}
	defer func() { <-s.checkpointer.mu }()
	if err := s.lockForLoad(ctx); err != nil {
		return 0, err
	}
	defer s.unlockWriter()
	w := &s.w
	w.begin()
	tx := &Tx{s: s, v: s.head, w: w}
	w.tx = tx
	done := false
	defer func() {
		tx.end()
		if done {
			return
		}
		if w.allocated.len() > 0 {
			// Pages that the load has written would pass for later pages of this epoch.
			s.epoch++
		}
		w.rollback() // also when fn or rows panics
	}()
	if t, ok := w.trees.get(id); ok && t.Rows > 0 {
		return 0, fmt.Errorf("%w: tree %d is not empty", ErrOrder, id)
	}
	w.noLog = true
	if fn != nil {
		if err := fn(tx); err != nil {
			return 0, err
		}
	}
	if err := tx.check(); err != nil {
		return 0, err
	}
	if err := w.ready(); err != nil {
		return 0, err
	}
	if s.o.MaxBytes > 0 {
		s.setBounds()
	}
	s.log.PrepareEarly() // for the checkpoint of publishLoad
	t, err := w.build(ctx, id, rows)
	if err != nil {
		return 0, err
	}
	w.set(id, t)
	if err := w.validateFreed(); err != nil {
		return 0, err
	}
	if err := s.checkpointer.prepareLog(); err != nil {
		return 0, err
	}
	done = true
	if err := w.publishLoad(); err != nil {
		return 0, err
	}
	return t.Rows, nil
}

// publishLoad commits a load, and makes it durable and visible with a checkpoint.
func (w *writer) publishLoad() error {
	s := w.s
	stopped := true
	defer func() {
		if stopped {
			_ = s.fail(errStopped) // the newest version is not in the log, and perhaps not in the file
		}
	}()
	v := w.commitVersion(s.head.lsn, false, true)
	epoch := s.epoch
	err := s.checkpointer.runLocked()
	stopped = false
	if err != nil {
		err = s.fail(err) // the newest version is not in the log
		if s.checkpointer.metaWritten >= epoch {
			// It may be in the file: recovery decides which meta page counts.
			err = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		return err
	}
	s.queue.reveal(v)
	return nil
}

// lockForLoad is lockForWrite for a caller that holds checkpointer.mu and runs the checkpoint that frees
// space itself.
func (s *Store) lockForLoad(ctx context.Context) error {
	if err := s.lockHousekept(ctx); err != nil || !s.wantsCheckpoint() && !s.mayFree() {
		return err
	}
	s.refusal.waiting = false
	s.unlockWriter()
	if err := s.checkpointer.run(ctx); err != nil && !pager.NoSpace(err) {
		return err
	}
	return s.lockHousekept(ctx)
}

// mayFree says that a checkpoint would make any space under MaxBytes. A load, which reads its rows
// once, cannot find out and begin again. Writer lock.
func (s *Store) mayFree() bool {
	if !s.started || s.o.MaxBytes == 0 {
		return false
	}
	_, _, dropped := s.head.trees.firstTrash()
	return dropped || s.reclaimer.freedPages() > 0
}

func (w *writer) build(ctx context.Context, id TreeID, rows Rows) (tree.Tree, error) {
	t, ok := w.trees.get(id)
	switch {
	case !ok:
		return t, treeError(id)
	case t.Rows > 0:
		return t, fmt.Errorf("%w: tree %d is not empty", ErrOrder, id)
	}
	l := &loader{writer: w, pages: w.s.pg.NewBulkWriter()}
	// Buffered pages of a failed load are dropped, before the rollback frees their numbers.
	defer func() { _ = l.s.dataError(l.pages.Discard()) }()
	b := tree.NewBuilder(l)
	n := 0
	err := rows(func(key, value []byte, tag int64) error {
		if n++; n%1024 == 0 {
			if err := contextErr(ctx); err != nil {
				return err
			}
		}
		return b.Add(key, value, tag)
	})
	if err != nil {
		return t, err
	}
	t, err = b.Finish()
	if err != nil {
		return t, err
	}
	return t, w.s.dataError(l.pages.Finish())
}

// loader is the btree.Writer of a bulk load: it writes pages as they are built, without frames.
type loader struct {
	*writer
	pages *pager.BulkWriter
}

// New leaves the bytes behind the header undefined.
func (l *loader) New(kind pager.Kind, level uint8) (pager.Ref, []byte, error) {
	if l.pages.Full() {
		if err := l.s.dataError(l.pages.Flush()); err != nil {
			return pager.Ref{}, nil, err
		}
	}
	id, b, err := l.pages.New(l.owner, l.policy)
	if err != nil {
		return pager.Ref{}, nil, l.s.spaceError(err)
	}
	l.allocated.push(pageRun{id, 1})
	ref := pager.Ref{Pgid: id, Epoch: l.s.epoch}
	pager.WriteHeader(b, pager.Header{Pgid: ref.Pgid, Epoch: ref.Epoch, Kind: kind, Level: level})
	return ref, b, nil
}
