package txn

import (
	"errors"
	"runtime"
	"time"

	"github.com/ebbkv/ebb/internal/mapfault"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// Close makes all commits durable, leaves one file, and closes it. While transactions are open it
// returns ErrTxnsOpen and the store stays usable. After a failure it writes nothing more. On a disk
// without space for the last checkpoint it keeps the log, and the next Open replays it.
func (s *Store) Close() (err error) {
	if !s.isOpen() {
		return nil
	}
	if s.open.Load() > 0 {
		return ErrTxnsOpen
	}
	s.checkpointer.background.wait()
	_ = lock(nil, s.checkpointer.mu)
	defer func() { <-s.checkpointer.mu }()
	if !s.state.CompareAndSwap(stateOpen, stateClosing) {
		return nil
	}
	if n, _ := s.readers.stats(0); n > 0 || s.open.Load() > 0 {
		s.state.Store(stateOpen)
		return ErrTxnsOpen
	}
	s.state.Store(stateClosed)
	defer func() { // also when a failure callback panics
		err = errors.Join(err, s.pg.Close())
		s.stats.mu.Lock()
		s.stats.last.FrameBytes = 0
		s.stats.mu.Unlock()
	}()
	return s.shut()
}

// isOpen says whether the store is open. It waits for a Close that has not decided yet: such a
// Close may still return ErrTxnsOpen. Close decides as soon as it has looked at the snapshots.
func (s *Store) isOpen() bool {
	for {
		switch s.state.Load() {
		case stateOpen:
			return true
		case stateClosed:
			return false
		}
		runtime.Gosched()
	}
}

// Abandon is Close with read transactions open: their memory stays mapped, and reads of theirs may
// return an error. The caller has rolled back the write transaction; a transaction that waits for
// the writer lock gets ErrClosed.
func (s *Store) Abandon() (err error) {
	s.checkpointer.background.wait()
	_ = lock(nil, s.checkpointer.mu)
	defer func() { <-s.checkpointer.mu }()
	if !s.state.CompareAndSwap(stateOpen, stateClosed) {
		return nil
	}
	defer func() { err = errors.Join(err, s.pg.CloseFile()) }() // as in Close
	return s.shut()
}

// shut ends the session: it writes the last checkpoint and closes the log. The caller holds
// checkpointer.mu and has closed the state.
func (s *Store) shut() error {
	s.checkpointer.idle.stop()
	var last lastCheckpoint
	err := last.shut(s)
	if last.notable() && s.o.Events.Checkpoint != nil {
		s.o.Events.Checkpoint(last.pages, last.took, last.err)
	}
	return err
}

// lastCheckpoint is the result of the checkpoint that Close writes, with those of the compaction
// before it. c is nil if Close wrote none.
type lastCheckpoint struct {
	c     *checkpointState
	pages int
	took  time.Duration
	err   error
}

// notable says whether the checkpoint wrote pages, or failed. If nothing changed since the one
// before it writes only a meta page.
func (l *lastCheckpoint) notable() bool { return l.c != nil && (l.pages > 0 || l.err != nil) }

// write runs closeClean, and measures it.
func (l *lastCheckpoint) write(s *Store) error {
	began := time.Now()
	s.checkpointer.packed = 0
	err := mapfault.Guard(s.finalFault, func() (err error) {
		l.c, err = s.checkpointer.closeClean()
		return err
	})
	if l.pages = s.checkpointer.packed; l.c != nil {
		l.pages += len(l.c.pages.Dirty)
	}
	if l.took, l.err = time.Since(began), err; err == nil {
		s.durable = l.c.meta.Epoch
		if l.notable() {
			s.checkpointer.count.Add(1)
		}
	}
	return err
}

func (l *lastCheckpoint) shut(s *Store) error {
	_ = s.lockWriter(nil)
	defer s.unlockWriter()
	removed := false
	defer func() { s.lastStats(removed) }()
	var errs []error
	full := false
	switch {
	case s.failed.Load() != nil || s.o.ReadOnly:
	case s.started:
		err := l.write(s)
		if full = pager.NoSpace(err) && s.failed.Load() == nil; !full {
			errs = append(errs, err)
		}
	default:
		errs = append(errs, s.checkpointer.storeMark())
	}
	log := s.log
	if err := s.failure(); err != nil && len(errs) == 0 {
		errs = append(errs, err) // the commits may not be durable, even if no call has returned the failure
	}
	if log != nil {
		if f := s.failed.Load(); f != nil {
			log.Fail(f.err)
		}
		clean := s.failed.Load() == nil && errors.Join(errs...) == nil && !full
		err := log.Close(clean)
		if err == nil && clean { // only now: as long as there is a log, the next open may need the space
			removed = true
			err = s.pg.Alloc.TrimFile(true)
		}
		if err != nil && s.failed.Load() == nil {
			if errors.Is(err, wal.ErrFailed) {
				err = s.fail(err) // of a segment that was prepared beside the last commits
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
