package txn

import (
	"context"
	"slices"
	"time"

	"github.com/ebbkv/ebb/pager"
)

// frameReclaimer gives the frames of a checkpoint's pages back as it is written, so that commits
// beside it do not run out of them, tells it whether to hurry, and has it lend a hand. It belongs
// to the goroutine that writes the checkpoint.
//
// What a frame held is in the file then, if only in the page cache: a read finds it there, and a
// crash changes nothing, for nothing durable reaches these pages before the meta page is flipped. A
// frame goes in two steps, like a freed page: first it is taken away from those who ask for it from
// then on; when all who may look at it have ended, it can hold another page.
type frameReclaimer struct {
	s       *Store
	c       *checkpointState
	serial  uint64 // of the version captured
	began   int64  // bytes of frames when the checkpoint began
	patches bool   // there are some among the pages
	enough  bool   // frames, as of the last look
	written []pager.Pgid
}

func (s *Store) newFrameReclaimer(c *checkpointState) *frameReclaimer {
	return &frameReclaimer{
		s:       s,
		c:       c,
		serial:  c.v.serial,
		began:   s.pg.FrameBytes(),
		patches: len(c.pages.Deltas) > 0,
	}
}

// Throttle says that commits matter more than an early end of the checkpoint: unless they use
// frames up much faster than it ends, as loads do, or have nearly done so. Who is about to wait for
// it would rather it hurried.
//
// In a store of patches, which is larger than the frames, the next checkpoint begins when this one
// ends, and writes most leaves again: a load is over sooner, and writes less, if more of its rows
// come between two of them.
func (r *frameReclaimer) Throttle(written float64) bool {
	frames, bound := r.s.pg.FrameBytes(), r.s.o.CacheBytes
	if max(frames, r.began) > bound { // Somebody waits for frames, and uses none up meanwhile.
		r.enough = false
		return false
	}
	grown, share := frames-r.began, int64(float64(max(bound-r.began, 0))*(written+1.0/8))
	if r.enough = grown <= share; r.patches {
		return grown <= share/deltasPaced
	}
	return r.enough || grown <= 2*share && frames < bound-bound/16
}

// deltasPaced is the part of the frames left that commits may use up beside a checkpoint of patches
// before it hurries.
const deltasPaced = 4

// reliefBytes is the size of pages whose frames one hold of the writer lock takes away: commits
// wait for it. A transaction that has the lock for longer than reliefWait is not waited for: it
// writes its own pages early, and the checkpoint had better go on.
const (
	reliefBytes = 1 << 20
	reliefWait  = 20 * time.Millisecond
)

// PagesWritten is told which pages are in the file, and not yet durable there. As long as frames
// suffice they stay until the checkpoint ends: a page that is changed again soon is copied from its
// frame sooner than from a file that nobody has looked at.
func (r *frameReclaimer) PagesWritten(ids []pager.Pgid) {
	s := r.s
	r.written = append(r.written, s.pg.InFrames(ids)...)
	step := max(int(min(reliefBytes, s.o.CacheBytes/16))/s.pg.PageSize(), 1)
	if r.enough || len(r.written) < step || s.failed.Load() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), reliefWait)
	defer cancel()
	if s.lockWriter(ctx) != nil {
		return
	}
	defer s.unlockWriter()
	oldest := s.oldestSnapshot(s.visible.Load().serial)
	s.returnFrames(oldest)
	if oldest < r.serial {
		return // Its readers may ask for pages as they were before they were changed in place: for frames.
	}
	frames := s.pg.TakeFrames(r.written[:step])
	r.written = r.written[step:]
	idle := s.head == r.c.v
	s.w.begin()
	v := s.w.publishMaintenance()
	if idle {
		r.c.v = v
	}
	s.makeVisible()
	s.reclaimableFrames = append(s.reclaimableFrames, reclaimableFrames{frames, v.serial})
}

// Yield has the checkpoint's processor lend a hand. A checkpoint ends so much later: what it would
// have done meanwhile it does while a batch has nothing for hands.
func (r *frameReclaimer) Yield() { r.s.joinJob() }

type reclaimableFrames struct {
	frames pager.Frames
	serial uint64 // the first version whose readers do not look at them
}

// returnFrames makes frames free that were taken away and that no reader of the oldest version
// held, or later, looks at.
func (s *Store) returnFrames(oldest uint64) {
	n := 0
	for n < len(s.reclaimableFrames) && s.reclaimableFrames[n].serial <= oldest {
		s.pg.ReturnFrames(s.reclaimableFrames[n].frames)
		n++
	}
	if n > 0 {
		s.reclaimableFrames = slices.Delete(s.reclaimableFrames, 0, n)
		s.framesAvailable.send()
	}
}

// oldestSnapshot lists the holders, and is the version before which no reader reads, now and from
// now on. visible was loaded before: who comes later comes to that one, or to a later one.
func (s *Store) oldestSnapshot(visible uint64) uint64 {
	if held := s.heldSnapshots(); len(held) > 0 {
		return min(visible, held[0])
	}
	return visible
}
