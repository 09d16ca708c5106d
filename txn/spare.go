package txn

import (
	"context"
	"errors"

	"github.com/ebbkv/ebb/pager"
)

// What commits free can be used again only after a checkpoint. A write transaction that begins, and
// finds that less is to be had at once than such a checkpoint would free, or that one before it was
// refused for want of space, begins with the wait for it. So ErrNoSpace says that what is stored
// and what the transaction puts do not fit together, not that a checkpoint is missing.
//
// The wait comes before the writer lock is taken, since a checkpoint needs that, and since its
// captured state cannot be in the middle of a transaction.

// fewPages freed are no reason for a checkpoint; nor is less than a part of all that could be had.
const (
	fewPages    = 32
	fewFraction = 16
)

// refusal is what is known of puts that found no space, since the last one that did.
type refusal struct {
	pages   int64 // that the last one would have needed when it began, at least; 0: none was refused
	waiting bool  // no checkpoint has come since
}

// mainBound is how much of MaxBytes the main file may have. The log keeps room for what starts a
// checkpoint, so that a full main file does not stop it.
func (s *Store) mainBound() int64 {
	return s.o.MaxBytes - max(s.log.Bytes()+s.segment, s.checkpointBytes()+2*s.segment)
}

// refused notes that the open transaction, which has given back what it took, found no space.
// Writer lock.
func (s *Store) refused(err error) {
	missing := int64(1)
	var bound *pager.SpaceError
	if errors.As(err, &bound) {
		missing = max(missing, int64(bound.Missing))
	}
	s.refusal = refusal{pages: max(s.pg.Spare(), 0) + missing, waiting: true}
}

// wantsCheckpoint says that a put may find no space now, and might after a checkpoint. Writer lock,
// and no transaction is open.
func (s *Store) wantsCheckpoint() bool {
	if !s.started || s.o.MaxBytes == 0 && s.refusal.pages == 0 {
		return false
	}
	if s.o.MaxBytes > 0 {
		s.pg.SetMaxBytes(s.mainBound())
	}
	spare, freed := s.pg.Spare(), max(int64(s.pg.Unfree())-s.pinnedPages, 0)
	if s.o.MaxBytes > 0 {
		freed += max(s.log.Bytes()-s.checkpointBytes()-s.segment, 0) / int64(s.pg.PageSize())
	}
	few := max(fewPages, (max(spare, 0)+freed)/fewFraction)
	if _, _, dropped := s.head.trees.firstTrash(); dropped {
		freed = max(freed, few) // their number is not known: a checkpoint gives all of them back
	}
	if r := s.refusal; r.pages > 0 {
		if r.waiting && (freed > 0 || s.log.Volume() > s.logSince.Load()) {
			return true
		}
		if missing := r.pages - spare; freed >= few || missing > 0 && freed >= missing {
			return true
		}
	}
	return freed >= few && freed > spare
}

// mostAwaited is how many checkpoints a transaction waits for: the first may have been under way,
// and others may take what the next ones free.
const mostAwaited = 4

// awaitSpare takes the writer lock, after checkpoints that make space, if there are any to be had.
func (s *Store) awaitSpare(ctx context.Context) error {
	for n := 0; ; n++ {
		if err := s.lockHousekept(ctx); err != nil {
			return err
		}
		if n == mostAwaited || !s.wantsCheckpoint() {
			return nil
		}
		s.refusal.waiting = false
		s.unlockWriter()
		s.startCheckpoint()
		if _, err := waitFor(ctx, s.maintenanceMu, nil); err != nil {
			return err
		}
	}
}

// AwaitSpace waits for checkpoints that make space, after a transaction was refused, and says
// whether there was one to wait for: then it may be tried again.
func (s *Store) AwaitSpace(ctx context.Context) (again bool, err error) {
	s.open.Add(1)
	defer s.open.Add(-1)
	if err := s.lockHousekept(ctx); err != nil {
		return false, err
	}
	again = s.wantsCheckpoint()
	s.unlockWriter()
	if !again {
		return false, nil
	}
	if err := s.awaitSpare(ctx); err != nil {
		return false, err
	}
	s.unlockWriter()
	return true, nil
}
