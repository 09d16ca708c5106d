package txn

import (
	"context"
	"sync"
	"sync/atomic"
)

// Conditions that start a checkpoint, and waits for one.

// startIfDue starts a checkpoint if the log or the frames have grown past their bounds. The
// checkpoint's goroutine ends with it. The store must have a log.
func (k *checkpointer) startIfDue() {
	k.idle.start()
	if k.due() {
		k.start()
	}
}

// start starts a checkpoint, unless the one started before is still running.
func (k *checkpointer) start() {
	if !k.running.CompareAndSwap(false, true) {
		return
	}
	// Lock here if possible, so that a goroutine that locks it next waits for this checkpoint.
	locked := tryLock(k.mu)
	run := func() {
		defer func() {
			k.running.Store(false)
			k.ended.send()
		}()
		if !locked {
			_ = lock(nil, k.mu)
		}
		defer func() { <-k.mu }()
		if err := k.run(nil); err != nil {
			k.retryAt.Store(k.s.log.Volume() + k.logBound()/8)
		}
	}
	if k.s.o.Inline {
		k.s.open.Add(1)
		defer k.s.open.Add(-1)
		run()
		return
	}
	k.background.run(run)
}

// due is called by committers without the writer lock: the result is approximate.
func (k *checkpointer) due() bool {
	volume := k.s.log.Volume()
	if volume < k.retryAt.Load() {
		return false
	}
	if k.logGrown() > k.logBound() {
		return true
	}
	dirty := k.s.pg.Alloc.DirtyBytes()
	if dirty > k.maxFilled() && k.filledBytes.Load() > dirty/4*3 {
		return true
	}
	// Frames that snapshots hold outlive a checkpoint: they alone start none, or one would follow
	// the other.
	return k.s.pg.Pool.FrameBytes() > k.fullFrames() && dirty > k.s.o.CacheBytes/4
}

// fullFrames is the size of frames that starts a checkpoint: the rest of the cache is for commits
// during the checkpoint.
func (k *checkpointer) fullFrames() int64 { return k.s.o.CacheBytes - k.s.o.CacheBytes/4 }

// Bounds of the log's budget. Replay time sets the upper one: some 5 us a small row.
const (
	minCheckpointBytes = 4 << 20
	maxCheckpointBytes = 256 << 20
	// growthCheckpointBytes is the budget of a store that grows, in which half of the pages in use is
	// less.
	growthCheckpointBytes = 64 << 20
)

// logBound is the budget of the log, the size that starts a checkpoint: half of the pages in use,
// within bounds. Free pages of the file do not count: a file that is longer for once would get a
// longer log, whose checkpoints make it longer still. Pages by which the store has grown since the
// last checkpoint count whole, up to a bound: a load into a small store would have a checkpoint each
// time that the store has doubled, which writes every page again.
func (k *checkpointer) logBound() int64 {
	bytes := k.s.o.CheckpointBytes
	if bytes == 0 {
		used := k.usedBytes.Load()
		grown := max(used-k.capturedBytes.Load(), 0)
		bytes = max(used/2, min(used/2+grown, growthCheckpointBytes), minCheckpointBytes)
		bytes = min(bytes, maxCheckpointBytes)
	}
	if k.s.o.MaxBytes > 0 { // the log takes space from the main file
		bytes = min(bytes, max(k.s.o.MaxBytes/8, 1))
	}
	return bytes
}

// maxFilledBytes of dirty pages start a checkpoint if three quarters of them are leaves that
// ascending puts have filled. Such leaves are written once, early or late: to delay them gains
// nothing, and costs memory and log.
const maxFilledBytes = 16 << 20

// maxFilled is maxFilledBytes, or less with a small MaxBytes. An explicit CheckpointBytes sets this
// bound too.
func (k *checkpointer) maxFilled() int64 {
	if k.s.o.CheckpointBytes > 0 {
		return k.logBound() / 4
	}
	if k.s.o.MaxBytes > 0 {
		return min(k.logBound()/4, maxFilledBytes)
	}
	return maxFilledBytes
}

// maxSpareBytes bounds the retired segments that the log keeps for reuse, as a quarter of its budget
// does.
const maxSpareBytes = 16 << 20

// spareSegments is the number of retired segments that the log keeps: at least one.
func (k *checkpointer) spareSegments() int {
	return max(1, int(min(k.logBound()/4, maxSpareBytes)/k.s.pg.LastMeta().SegmentSize))
}

// logGrown is the size of the log since the last capture, with the pages that it references.
func (k *checkpointer) logGrown() int64 {
	return k.s.log.Volume() - k.logSince.Load() + k.refBytesSince.Load()
}

// paceLog ties the log that grows beside a checkpoint to the part of it that is written, and says
// whether the checkpoint should hurry: when that log is beyond a quarter of the budget. Committers
// may use half of the budget at once, and the other half as the checkpoint goes on.
func (k *checkpointer) paceLog(written float64) (hurry bool) {
	bound := k.logBound()
	k.logLimit.Store(max(bound/2+int64(written*float64(bound/2)), 1))
	k.logLimitMoved.send()
	return k.logGrown() > bound/4
}

// endLogPace releases committers that wait in waitForLog.
func (k *checkpointer) endLogPace() {
	k.logLimit.Store(0)
	k.logLimitMoved.send()
}

// waitForLog waits while the log has grown past what paceLog allows. The caller holds no lock. A
// checkpoint of Options.Inline may run below its caller, which must not wait for it.
func (k *checkpointer) waitForLog(ctx context.Context) error {
	for !k.s.o.Inline && k.logLimit.Load() > 0 {
		moved := k.logLimitMoved.wait()
		limit := k.logLimit.Load()
		if log := k.s.queue.sessionLog(); limit == 0 || log == nil || k.logGrown() <= limit {
			return nil
		}
		if err := await(ctx, moved); err != nil {
			return err
		}
	}
	return nil
}

// waitForFrames waits for the running checkpoint while frames are used up, or, under MaxBytes,
// while the log is, with the pages that it references: for frames until the checkpoint has freed
// some, for the log until it has ended. The caller holds no lock.
func (k *checkpointer) waitForFrames(ctx context.Context) error {
	for k.s.pg.Pool.FrameBytes() > k.s.o.CacheBytes && k.running.Load() {
		framesAvailable := k.s.reclaimer.framesAvailable.wait()
		if k.s.pg.Pool.FrameBytes() <= k.s.o.CacheBytes {
			break
		}
		if free, err := waitFor(ctx, k.mu, framesAvailable); err != nil || free {
			return err
		}
	}
	if k.s.o.MaxBytes == 0 || !k.running.Load() {
		return nil
	}
	if log := k.s.queue.sessionLog(); log == nil ||
		log.Bytes()+k.refBytesBefore.Load()+k.refBytesSince.Load() <= k.logBound() {
		return nil
	}
	_, err := waitFor(ctx, k.mu, nil)
	return err
}

// waitFor waits until a lock was free, or until early, which may be nil, is closed.
func waitFor(ctx context.Context, l, early chan struct{}) (free bool, err error) {
	select {
	case l <- struct{}{}:
		<-l
		return true, nil
	case <-early:
		return false, nil
	case <-doneOf(ctx):
		return false, ctx.Err()
	}
}

// await waits until a channel is closed, or until ctx ends; nil: without bound.
func await(ctx context.Context, event <-chan struct{}) error {
	select {
	case <-event:
		return nil
	case <-doneOf(ctx):
		return ctx.Err()
	}
}

// doneOf is ctx.Done; nil, which blocks, for a nil context.
func doneOf(ctx context.Context) <-chan struct{} {
	if ctx == nil {
		return nil
	}
	return ctx.Done()
}

// A broadcast wakes all its waiters. The zero value is ready for use.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{} // closed by the next send; nil: no waiters
}

func (s *broadcast) wait() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *broadcast) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// waitGroup counts goroutines. Unlike a sync.WaitGroup it lets goroutines start during a wait. The
// zero value has none.
type waitGroup struct {
	n     atomic.Int64
	empty broadcast // sent when n has become 0
}

// run calls f in a goroutine of the group.
func (c *waitGroup) run(f func()) {
	c.n.Add(1)
	go func() {
		defer func() {
			if c.n.Add(-1) == 0 {
				c.empty.send()
			}
		}()
		f()
	}()
}

// wait returns once n has been 0.
func (c *waitGroup) wait() {
	if empty := c.empty.wait(); c.n.Load() > 0 {
		<-empty
	}
}
