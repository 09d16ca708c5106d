package txn

import (
	"slices"
	"sort"
)

// A page that a commit replaced is reusable once the version without it is visible, no snapshot
// holds a version with it, and no durable state reaches it. Pages that stay in memory may use its
// number already when only the running checkpoint is missing. The writer lock guards everything
// here.

// reclaimStep bounds the runs that are freed in one hold of the writer lock: each transaction frees
// so many before it begins, and none waits long. A commit that frees more runs reclaims as many, or
// the queue would grow without bound.
const reclaimStep = 2048

// reclaimFreed moves up to limit freed runs to their next queue, or frees them.
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

// reclaimBase moves on one base whose delta a checkpoint has merged.
func (s *Store) reclaimBase() error {
	r := s.oldDeltaBases.pop()
	r.serial = s.oldDeltaSerial
	return s.deferFree(r)
}

// reclaimUntil frees the runs that versions up to v have freed, except those that snapshots hold,
// in steps: between two steps the writer lock is free. A checkpoint ends with it, since
// checkpointDue counts frames in use: frames of pages that are in the file would start another
// checkpoint.
func (s *Store) reclaimUntil(v *version) error {
	if err := s.waitVisible(v); err != nil { // before that none of its runs can be freed
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

// heldSnapshots lists the held versions in order. The list is valid until the next call.
func (s *Store) heldSnapshots() []uint64 {
	s.snapshotBuf = s.readers.held(s.snapshotBuf[:0])
	return s.snapshotBuf
}

// deferFree frees a run, or attaches it to a snapshot that can reach it: one of a version in
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
	case r.epoch == r.afterCheckpoint && !r.logReferenced:
		// No checkpoint ever reached it, and no log record references it.
		return s.pg.Unused(r.id, uint64(r.n))
	case r.afterCheckpoint <= s.durable || r.afterCheckpoint <= s.pg.Captured():
		return s.freePages(r)
	}
	s.awaitCheckpoint.push(r)
	return nil
}

// freePages frees a run that no snapshot reaches, and no checkpoint after the last captured one.
func (s *Store) freePages(r deferredFree) error {
	if r.afterCheckpoint <= s.durable {
		return s.pg.Release(r.id, uint64(r.n))
	}
	return s.pg.OfferReusable(r.id, uint64(r.n))
}

// unpin defers the runs again whose snapshot has ended.
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

// markCaptured is called after a capture: runs that wait for the checkpoint may be reused early,
// and are free when it has ended. An epoch that ends without a checkpoint, as with a bulk load that
// fails, leaves its freed runs to a later one.
func (s *Store) markCaptured() {
	s.replacedPages = 0
	s.reusable.takeAll(&s.awaitCheckpoint)
}

// reuseFraction bounds the part of the frames that hold early reused pages of a transaction: it
// cannot spill these before the running checkpoint ends.
const reuseFraction = 8

// mostReusable bounds the pages that are reused early, with those of the transaction that begins: no
// more than commits have replaced of the running checkpoint. A crash before its end leaves the early ones in use and
// the replaced ones free, so that the next open can replay the log without more space from the
// disk, which may be full.
func (s *Store) mostReusable() uint64 {
	share := uint64(s.o.CacheBytes / reuseFraction / int64(s.pg.PageSize()))
	return min(s.replacedPages, s.pg.ReusableInUse()+share)
}
