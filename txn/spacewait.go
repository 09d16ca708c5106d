package txn

import (
	"context"
	"errors"

	"github.com/ebbkv/ebb/pager"
)

// Freed pages are reusable only after a checkpoint. A write transaction begins with a wait for a
// checkpoint if that would free more than is available now, or if the transaction before it was
// refused for lack of space. So ErrNoSpace means that the stored data and the transaction's puts do
// not fit together, not that a checkpoint is missing.
//
// The wait comes before the writer lock, which the checkpoint needs, and a captured state cannot be
// in the middle of a transaction.

// Fewer freed pages do not justify a checkpoint; nor does less than a part of all available pages.
const (
	fewPages    = 32
	fewFraction = 16
)

// refusal describes puts that found no space, since the last put that found some.
type refusal struct {
	pages   int64 // least pages that the last one needed when it began; 0: none was refused
	waiting bool  // there was no checkpoint since
	shrunk  bool  // a transaction without puts was committed since
}

// retryPages is the part of the reserve that the first put after a refused one may use, once rows
// were deleted. Rows that are deleted here and there free no page, or fewer than the deletes copied
// since the last checkpoint, but make space inside leaves: the retry needs pages only for copies
// and a split. It leaves the checkpoint's part of the reserve, and deletes exceed the bound anyway.
const retryPages = 24

// retryBytes is what the next put may have above the bound of the main file.
func (s *Store) retryBytes() int64 {
	if !s.refusal.shrunk {
		return 0
	}
	return retryPages * int64(s.pg.PageSize())
}

// logShare is the part of MaxBytes that the main file never takes, and that a full main file leaves
// to the log: a quarter. A checkpoint begins when half of it is used; the record of a transaction
// of a fifth of MaxBytes fits after one.
func (s *Store) logShare() int64 {
	return max(s.o.MaxBytes/4, s.checkpointer.logBound()+2*s.segment)
}

// loanFraction is the part of MaxBytes by which the main file may go past its part, in place of
// pages that a checkpoint would free. Without it each delete of a random row at the bound, which
// copies a page and frees one, could wait for a checkpoint of its own.
const loanFraction = 32

// setBounds divides MaxBytes between the main file and the log, for puts: the log may have its
// share, or more as long as the main file does not have it. The main file borrows pages of a share
// that is not used. One segment of the share is for the next checkpoint, which makes it whatever
// the bound. Writer lock, and the log is started.
func (s *Store) setBounds() {
	loan := min(s.reclaimer.freedPages()*int64(s.pg.PageSize()), s.o.MaxBytes/loanFraction)
	s.pg.Alloc.SetMaxBytes(s.o.MaxBytes - max(s.logShare()-loan, s.log.Bytes()+s.segment) + s.retryBytes())
	s.log.SetBound(max(s.logShare(), s.o.MaxBytes-s.pg.Alloc.FileBytes()) - s.segment)
}

// freedPages is the number of pages that a checkpoint would free. Writer lock.
func (q *reclaimer) freedPages() int64 { return max(int64(q.pg.Alloc.Unfree())-q.pinnedPages, 0) }

// refused records that the open transaction, already rolled back, found no space. Writer lock.
func (s *Store) refused(err error) {
	missing := int64(1)
	var bound *pager.SpaceError
	if errors.As(err, &bound) {
		missing = max(missing, int64(bound.Missing))
	}
	s.refusal.pages, s.refusal.waiting = max(s.pg.Alloc.Spare(), 0)+missing, true
}

// wantsCheckpoint says that a put may find no space now, but might after a checkpoint. Writer lock,
// and no transaction is open.
func (s *Store) wantsCheckpoint() bool {
	if !s.started || s.o.MaxBytes == 0 && s.refusal.pages == 0 {
		return false
	}
	freed, gain := s.reclaimer.freedPages(), s.reclaimer.freedPages()
	if s.o.MaxBytes > 0 {
		s.setBounds()
		if s.checkpointer.logDue() {
			return true
		}
		bound := s.o.MaxBytes - s.logShare() + s.retryBytes() - s.pg.Alloc.MaxBytes()
		gain += bound / int64(s.pg.PageSize())
	}
	spare := s.pg.Alloc.Spare()
	few := max(fewPages, (max(spare, 0)+gain)/fewFraction)
	if _, _, dropped := s.head.trees.firstTrash(); dropped {
		gain = max(gain, few) // the number is unknown: a checkpoint frees all of their pages
	}
	if r := s.refusal; r.pages > 0 {
		if r.waiting && (max(freed, gain) > 0 || s.log.Volume() > s.checkpointer.logSince.Load()) {
			return true
		}
		if missing := r.pages - spare; gain >= few || missing > 0 && gain >= missing {
			return true
		}
	}
	return gain >= few && freed > spare
}

// logDue says that the log has what starts a checkpoint, transactions that were rolled back included.
func (k *checkpointer) logDue() bool {
	volume := k.s.log.Volume()
	return volume >= k.retryAt.Load() && volume-k.logSince.Load() > k.logBound()
}

// mostAwaited bounds the checkpoints that a transaction waits for: the first may have been running
// already, and other transactions may use the space that the next ones free.
const mostAwaited = 4

// awaitSpare takes the writer lock, after checkpoints that free space if wantsCheckpoint says so.
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
		if err := s.waitForCheckpoint(ctx); err != nil {
			return err
		}
	}
}

// waitForCheckpoint waits for the end of the checkpoint that was started, or else of one that it
// starts. The lock that a checkpoint holds would not do: it is free before the next one can be
// started.
func (s *Store) waitForCheckpoint(ctx context.Context) error {
	ended := s.checkpointer.ended.wait()
	s.checkpointer.start()
	return await(ctx, ended)
}

// AwaitSpace waits for checkpoints that free space, after a transaction was refused, and says
// whether there were any: then a retry may succeed.
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
