package txn

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// A store that is written to at random has most of its pages twice between two checkpoints, and a log
// beside them. When no commit has come for a while, its files are packed: a checkpoint frees the pages
// of the older state, and free space, retired segments of the log and what the file has grown ahead go
// back to the file system.
//
// Packing writes nothing of its own. A crash in its checkpoint is one in any checkpoint. After that the
// newest state is durable, and what is punched, cut off or removed is part of no state that recovery
// could start from: see the crash orders of checkpointState, ADR 0050 and wal.Log.Release.

// packLeast is what the log must have grown by, or the file be longer by, for packing: a store with a
// small commit now and then is not checkpointed after each.
const packLeast = 1 << 20

// idleTimer calls a function when nothing has been committed for a while. No goroutine waits meanwhile,
// and no timer runs once it was called.
type idleTimer struct {
	after   time.Duration
	timer   *time.Timer // nil: never
	running atomic.Bool
	volume  int64 // of the log when the timer fired last; for fired only, which does not run twice at once
}

func (t *idleTimer) init(after time.Duration, fired func()) {
	if after > 0 {
		t.after, t.timer = after, time.AfterFunc(math.MaxInt64, fired)
		t.timer.Stop()
	}
}

// start starts the timer, unless it runs. Each commit calls it.
func (t *idleTimer) start() {
	if t.timer != nil && !t.running.Load() && t.running.CompareAndSwap(false, true) {
		t.timer.Reset(t.after)
	}
}

func (t *idleTimer) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// packIfIdle packs if the log has not grown since it was called last; else it waits for that again.
func (k *checkpointer) packIfIdle() {
	log := k.s.queue.sessionLog()
	volume := log.Volume()
	idle := volume == k.idle.volume
	k.idle.volume = volume
	k.idle.running.Store(false)
	if !idle || log.Volume() != volume { // the second: a commit that found the timer running
		k.idle.start()
		return
	}
	k.background.run(func() {
		if k.worthPacking() {
			_ = k.pack(nil) // a failure is that of a checkpoint, or fails the store
		}
	})
}

// Pack packs the files now: see the top of this file.
func (s *Store) Pack(ctx context.Context) error {
	s.open.Add(1)
	defer s.open.Add(-1)
	if err := s.canWrite(); err != nil {
		return err
	}
	return s.checkpointer.pack(ctx)
}

// pack is a checkpoint after which only what the newest state needs has room on the disk, unless a commit
// comes meanwhile.
func (k *checkpointer) pack(ctx context.Context) error {
	if err := lock(ctx, k.mu); err != nil {
		return err
	}
	defer func() { <-k.mu }()
	if err := k.run(ctx); err != nil || len(k.compacting) > 0 {
		return err
	}
	if idle, err := k.trimIfIdle(); err != nil || !idle {
		return err
	}
	if err := k.punchHoles(k.s.pg.LastMeta().Pages, true); err != nil {
		return err
	}
	return k.s.logError(k.s.log.Trim())
}

// trimIfIdle cuts off what the file has grown ahead, and says whether the store is idle.
func (k *checkpointer) trimIfIdle() (idle bool, err error) {
	_ = k.s.lockWriter(nil)
	defer k.s.unlockWriter()
	if err := k.s.canWrite(); err != nil || !k.s.started || k.hasUncaptured() {
		return false, err
	}
	if _, err := k.s.reclaimer.reclaim(reclaimAll); err != nil { // what snapshots had that have ended since
		return false, k.s.spaceError(err)
	}
	if _, err := k.s.pg.Alloc.TrimTail(); err != nil {
		return false, k.s.fail(err)
	}
	return true, nil
}

// worthPacking says whether the files are longer than the newest state needs, by a sixteenth of its
// pages, or the log has grown.
func (k *checkpointer) worthPacking() bool {
	_ = k.s.lockWriter(nil)
	defer k.s.unlockWriter()
	if k.s.canWrite() != nil || !k.s.started {
		return false
	}
	excess := int64(k.s.pg.Alloc.Holes.Excess()) * int64(k.s.pg.PageSize())
	return k.logGrown() >= packLeast || excess >= max(packLeast, k.usedBytes.Load()/16)
}
