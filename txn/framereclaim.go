package txn

import (
	"context"
	"time"

	"github.com/ebbkv/ebb/pager"
)

// frameReclaimer recycles the frames of pages that a running checkpoint has written, so that
// concurrent commits do not exhaust the pool. It also tells the checkpoint whether to throttle, and
// lets it take over parts of a parallel apply between two pages. It belongs to the goroutine that
// writes the checkpoint.
//
// A written page is in the file, if only in the page cache: a read finds it there, and a crash
// changes nothing, since no durable page references it before the meta page is written. A frame is
// freed in two steps, like a page: first it is detached, so that later reads do not find it; the
// reclaimer frees it once all snapshots that may read it have ended.
type frameReclaimer struct {
	s       *Store
	c       *checkpointState
	serial  uint64 // of the captured version
	began   int64  // bytes of frames at the start of the checkpoint
	deltas  bool   // there are deltas among the pages
	enough  bool   // frames suffice, as of the last Throttle
	written []pager.Pgid
}

func (k *checkpointer) newFrameReclaimer(c *checkpointState) *frameReclaimer {
	return &frameReclaimer{
		s: k.s, c: c, serial: c.v.serial, began: k.s.pg.Pool.FrameBytes(), deltas: len(c.pages.Deltas) > 0,
	}
}

// Throttle says whether concurrent commits matter more than an early end of the checkpoint. They do
// not when they use up frames much faster than it ends, as bulk loads do, or have nearly used up
// all: a writer that waits for frames gains by a faster checkpoint. Nor do they when the log grows
// long beside it: see paceLog.
//
// A store with deltas is larger than the frames. Its next checkpoint begins when this one ends, and
// writes most leaves again: a load ends sooner, and writes less, if more of its rows arrive between
// two checkpoints.
func (r *frameReclaimer) Throttle(written float64) bool {
	hurry := r.s.checkpointer.paceLog(written)
	frames, bound := r.s.pg.Pool.FrameBytes(), r.s.o.CacheBytes
	if max(frames, r.began) > bound { // a writer waits for frames, and uses none meanwhile
		r.enough = false
		return false
	}
	grown, share := frames-r.began, int64(float64(max(bound-r.began, 0))*(written+1.0/8))
	if r.enough = grown <= share; r.deltas {
		return !hurry && grown <= share/deltasPaced
	}
	return !hurry && (r.enough || grown <= 2*share && frames < bound-bound/16)
}

// deltasPaced is the part of the remaining frames that concurrent commits may use before a
// checkpoint with deltas stops throttling.
const deltasPaced = 4

// reclaimFrameBytes is the size of pages whose frames one hold of the writer lock detaches: commits
// wait for it. If a transaction holds the lock for longer than reclaimFrameWait the checkpoint goes
// ahead: such a transaction spills its own pages.
const (
	reclaimFrameBytes = 1 << 20
	reclaimFrameWait  = 20 * time.Millisecond
)

// PagesWritten gets the pages that are in the file, not yet durable. While frames suffice they keep
// their frames until the checkpoint ends: to copy a page for its next change costs less from a
// frame than from a part of the file that no read has touched.
func (r *frameReclaimer) PagesWritten(ids []pager.Pgid) {
	s := r.s
	r.written = append(r.written, s.pg.Pool.InFrames(ids)...)
	step := max(int(min(reclaimFrameBytes, s.o.CacheBytes/16))/s.pg.PageSize(), 1)
	if r.enough || len(r.written) < step || s.failed.Load() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), reclaimFrameWait)
	defer cancel()
	if s.lockWriter(ctx) != nil {
		return
	}
	defer s.unlockWriter()
	if _, err := s.reclaimer.reclaim(reclaimStep); err != nil || s.reclaimer.oldestRead() < r.serial {
		return // a snapshot may read pages as they were before in-place changes, from frames
	}
	frames := s.pg.Pool.TakeFrames(r.written[:step])
	r.written = r.written[step:]
	idle := s.head == r.c.v
	s.w.begin()
	v := s.w.publishMaintenance()
	if idle {
		r.c.v = v
	}
	s.queue.makeVisible()
	s.reclaimer.detach(frames, v.serial)
}

// Yield lets the checkpoint's goroutine join a parallel apply. That delays the checkpoint; it
// catches up while the batch has no parallel work.
func (r *frameReclaimer) Yield() { r.s.job.join() }
