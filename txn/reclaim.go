package txn

import (
	"slices"
	"sort"
)

// A page that a commit replaced comes back in three steps: the version that does not reach it is
// visible; no snapshot holds a version that does; no durable state does. It comes back early, for
// pages that stay in memory, when all that is left is the checkpoint under way. Everything here is
// guarded by the writer lock.

// reclaimStep bounds the runs that are given back in one hold of the writer lock, by each
// transaction before it begins for one, so that none of them waits long. One that frees more than
// that gives back as many when it commits, or they would come to be ever more.
const reclaimStep = 2048

// reclaimFreed moves up to limit freed runs one step on.
func (s *Store) reclaimFreed(limit int) error {
	for limit > 0 && s.reusable.len() > 0 {
		if err := s.freePages(s.reusable.pop()); err != nil {
			return err
		}
		limit--
	}
	oldest := s.freedByVersion.oldest()
	if oldest == nil && len(s.pinnedBySnapshot) == 0 && len(s.reclaimableFrames) == 0 &&
		s.oldDeltaBases.len() == 0 {
		return nil
	}
	visible := s.visible.Load().serial
	s.returnFrames(s.oldestSnapshot(visible))
	if len(s.pinnedBySnapshot) > 0 {
		if err := s.unpin(); err != nil {
			return err
		}
	}
	for ; limit > 0 && s.oldDeltaBases.len() > 0 && s.oldDeltaSerial <= visible; limit-- {
		if err := s.reclaimBase(); err != nil {
			return err
		}
	}
	for ; limit > 0 && oldest != nil && oldest.serial <= visible; oldest = s.freedByVersion.oldest() {
		if err := s.deferFree(s.freedByVersion.shift()); err != nil {
			return err
		}
		limit--
	}
	return nil
}

// reclaimBase moves one page on that patches changed which a checkpoint has written.
func (s *Store) reclaimBase() error {
	r := s.oldDeltaBases.pop()
	r.serial = s.oldDeltaSerial
	return s.deferFree(r)
}

// reclaimUntil gives back what versions up to v have freed, but for what snapshots hold, in steps
// between which writers get their turn. A checkpoint ends with it: who looks at the frames in use,
// to see whether the next one is due, would take those of pages that are in the file for pages that
// are not.
func (s *Store) reclaimUntil(v *version) error {
	if err := s.waitVisible(v); err != nil { // Before that nothing of it can go.
		return err
	}
	for more := true; more; {
		var err error
		if more, err = s.reclaimStepUntil(v); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) reclaimStepUntil(v *version) (more bool, err error) {
	_ = s.lockWriter(nil)
	defer s.unlockWriter()
	if err := s.reclaimFreed(reclaimStep); err != nil {
		return false, s.fail(err)
	}
	oldest := s.freedByVersion.oldest()
	return s.oldDeltaBases.len() > 0 ||
		oldest != nil && oldest.serial <= min(v.serial, s.visible.Load().serial), nil
}

// heldSnapshots lists the versions that are held, in order, until it is called again.
func (s *Store) heldSnapshots() []uint64 {
	s.snapshotBuf = s.readers.held(s.snapshotBuf[:0])
	return s.snapshotBuf
}

// deferFree gives a run back, or hangs it on a snapshot that can reach it: one of a version in
// [birth, serial).
func (s *Store) deferFree(r deferredFree) error {
	i := sort.Search(len(s.snapshotBuf), func(i int) bool { return s.snapshotBuf[i] >= r.birth })
	if i < len(s.snapshotBuf) && s.snapshotBuf[i] < r.serial {
		holder := s.snapshotBuf[i]
		s.pinnedBySnapshot[holder] = append(s.pinnedBySnapshot[holder], r)
		s.pinnedPages += int64(r.n)
		return nil
	}
	switch {
	case r.n == 0:
		s.pg.ReleaseFrame(r.id, r.birth)
		return nil
	case r.epoch == r.afterCheckpoint && !r.logReferenced: // no checkpoint ever reached it, and no record that a crash leaves names it
		return s.pg.Unused(r.id, uint64(r.n))
	case r.afterCheckpoint <= s.durable || r.afterCheckpoint <= s.pg.Captured():
		return s.freePages(r)
	}
	s.awaitCheckpoint.push(r)
	return nil
}

// freePages gives a run back that no snapshot and no later checkpoint than the last capture
// reaches.
func (s *Store) freePages(r deferredFree) error {
	if r.afterCheckpoint <= s.durable {
		return s.pg.Release(r.id, uint64(r.n))
	}
	return s.pg.OfferReusable(r.id, uint64(r.n))
}

// unpin looks again at the runs whose snapshot has ended.
func (s *Store) unpin() error {
	for holder, runs := range s.pinnedBySnapshot {
		if _, held := slices.BinarySearch(s.snapshotBuf, holder); held {
			continue
		}
		delete(s.pinnedBySnapshot, holder)
		for _, r := range runs {
			s.pinnedPages -= int64(r.n)
			if err := s.deferFree(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// markCaptured is told that a checkpoint has been captured: what waited for it may be used early,
// and when it has ended for good. Epochs that end in another way, as with a load that fails, have
// no checkpoint: what was freed in them waits for a later one.
func (s *Store) markCaptured() {
	s.replacedPages = 0
	s.reusable.takeAll(&s.awaitCheckpoint)
}

// reuseFraction of the frames at most are pages that a transaction has early: it cannot spill them
// before the checkpoint ends that runs beside it.
const reuseFraction = 8

// reuseShare is how many early pages a transaction may have: all of them no more than pages of the
// checkpoint under way that commits beside it have replaced. A crash before its end leaves the
// early ones in use and those free, so that the next open has room for what the log holds without
// more from the disk, which may be full.
func (s *Store) reuseShare() uint64 {
	taken := s.pg.EarlyTaken()
	return min(max(s.replacedPages, taken)-taken, uint64(s.o.CacheBytes/reuseFraction/int64(s.pg.PageSize())))
}
