package txn

import (
	"slices"
	"sort"
)

// A page that a commit replaced comes back in three steps: the version that does not reach it is visible; no snapshot
// holds a version that does; no durable state does. It comes back early, for pages that stay in memory, when all that is left is the checkpoint under way.
// Everything here is guarded by the writer lock.

// reapStep bounds the runs that are given back in one hold of the writer lock, by each transaction before it begins for one, so that none of
// them waits long. One that frees more than that gives back as many when it commits, or they would come to be ever more.
const reapStep = 2048

// reap moves up to limit freed runs one step on.
func (s *Store) reap(limit int) error {
	for limit > 0 && s.ready.len() > 0 {
		if err := s.release(s.ready.pop()); err != nil {
			return err
		}
		limit--
	}
	oldest := s.retired.oldest()
	if oldest == nil && len(s.pinned) == 0 && len(s.taken) == 0 && s.patched.len() == 0 {
		return nil
	}
	visible := s.visible.Load().serial
	s.returnFrames(s.oldest(visible))
	if len(s.pinned) > 0 {
		if err := s.unpin(); err != nil {
			return err
		}
	}
	for ; limit > 0 && s.patched.len() > 0 && s.patchedSer <= visible; limit-- {
		if err := s.reapBase(); err != nil {
			return err
		}
	}
	for ; limit > 0 && oldest != nil && oldest.serial <= visible; oldest = s.retired.oldest() {
		if err := s.retire(s.retired.shift()); err != nil {
			return err
		}
		limit--
	}
	return nil
}

// reapBase moves one page on that patches changed which a checkpoint has written.
func (s *Store) reapBase() error {
	r := s.patched.pop()
	r.serial = s.patchedSer
	return s.retire(r)
}

// reapUntil gives back what versions up to v have freed, but for what snapshots hold, in steps between which writers get their turn.
// A checkpoint ends with it: who looks at the frames in use, to see whether the next one is due, would take those of pages that are in the file
// for pages that are not.
func (s *Store) reapUntil(v *version) error {
	if err := s.awaitSeen(v); err != nil { // Before that nothing of it can go.
		return err
	}
	for more := true; more; {
		var err error
		if more, err = s.reapStepUntil(v); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) reapStepUntil(v *version) (more bool, err error) {
	_ = s.lockWriter(nil)
	defer s.unlockWriter()
	if err := s.reap(reapStep); err != nil {
		return false, s.poison(err)
	}
	oldest := s.retired.oldest()
	return s.patched.len() > 0 || oldest != nil && oldest.serial <= min(v.serial, s.visible.Load().serial), nil
}

// holders lists the versions that are held, in order, until it is called again.
func (s *Store) holders() []uint64 {
	s.heldBuf = s.readers.held(s.heldBuf[:0])
	return s.heldBuf
}

// retire gives a run back, or hangs it on a snapshot that can reach it: one of a version in [birth, serial).
func (s *Store) retire(r freedRun) error {
	i := sort.Search(len(s.heldBuf), func(i int) bool { return s.heldBuf[i] >= r.birth })
	if i < len(s.heldBuf) && s.heldBuf[i] < r.serial {
		holder := s.heldBuf[i]
		s.pinned[holder] = append(s.pinned[holder], r)
		s.pinnedPages += int64(r.n)
		return nil
	}
	switch {
	case r.n == 0:
		s.pg.ReleaseFrame(r.id, r.birth)
		return nil
	case r.epoch == r.until && !r.named: // no checkpoint ever reached it, and no record that a crash leaves names it
		return s.pg.Unused(r.id, uint64(r.n))
	case r.until <= s.durable || r.until <= s.pg.Captured():
		return s.release(r)
	}
	s.waiting.push(r)
	return nil
}

// release gives a run back that no snapshot and no later checkpoint than the last capture reaches.
func (s *Store) release(r freedRun) error {
	if r.until <= s.durable {
		return s.pg.Release(r.id, uint64(r.n))
	}
	return s.pg.Promise(r.id, uint64(r.n))
}

// unpin looks again at the runs whose snapshot has ended.
func (s *Store) unpin() error {
	for holder, runs := range s.pinned {
		if _, held := slices.BinarySearch(s.heldBuf, holder); held {
			continue
		}
		delete(s.pinned, holder)
		for _, r := range runs {
			s.pinnedPages -= int64(r.n)
			if err := s.retire(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteCapture is told that a checkpoint has been captured: what waited for it may be used early, and when it has ended for
// good. Epochs that end in another way, as with a load that fails, have no checkpoint: what was freed in them waits for a later one.
func (s *Store) noteCapture() {
	s.replaced = 0
	s.ready.takeAll(&s.waiting)
}

// earlyFraction of the frames at most are pages that a transaction has early: it cannot spill them before the checkpoint ends that runs beside it.
const earlyFraction = 8

// earlyShare is how many early pages a transaction may have: all of them no more than pages of the checkpoint under way that commits beside it have
// replaced. A crash before its end leaves the early ones in use and those free, so that the next open has room for what the log
// holds without more from the disk, which may be full.
func (s *Store) earlyShare() uint64 {
	taken := s.pg.EarlyTaken()
	return min(max(s.replaced, taken)-taken, uint64(s.o.CacheBytes/earlyFraction/int64(s.pg.PageSize())))
}
