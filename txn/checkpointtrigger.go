package txn

import (
	"context"
	"sync"
)

// When checkpoints begin, and who waits for them.

// maybeCheckpoint starts a checkpoint if the log or the frames have grown past their bounds. The
// goroutine ends with it. It is for who knows that there is a log.
func (s *Store) maybeCheckpoint() {
	if s.checkpointDue() {
		s.startCheckpoint()
	}
}

// startCheckpoint starts a checkpoint unless one was started that has not ended.
func (s *Store) startCheckpoint() {
	if !s.checkpointing.CompareAndSwap(false, true) {
		return
	}
	// The lock is taken here if it is free, so that whoever waits for it waits for this checkpoint.
	locked := tryLock(s.maintenanceMu)
	run := func() {
		defer s.checkpointing.Store(false)
		if !locked {
			_ = lock(nil, s.maintenanceMu)
		}
		defer func() { <-s.maintenanceMu }()
		if err := s.checkpoint(nil); err != nil {
			s.retryAt.Store(s.log.Volume() + s.checkpointBytes()/8)
		}
	}
	if s.o.Inline {
		s.open.Add(1)
		defer s.open.Add(-1)
		run()
		return
	}
	s.background.run(run)
}

// checkpointDue is asked by committers, without the writer lock: a rough answer does.
func (s *Store) checkpointDue() bool {
	volume := s.log.Volume()
	if volume < s.retryAt.Load() {
		return false
	}
	since, bound := volume-s.logSince.Load()+s.refBytesSince.Load(), s.checkpointBytes()
	if since > bound {
		return true
	}
	dirty := s.pg.DirtyBytes()
	if dirty > s.maxFilled() && s.filledBytes.Load() > dirty/4*3 {
		return true
	}
	// Frames that snapshots hold do not go away with a checkpoint: not one after the other for
	// their sake.
	return s.pg.FrameBytes() > s.fullFrames() && dirty > s.o.CacheBytes/4
}

// fullFrames is how many bytes of frames start a checkpoint: what is left of the bound is for those
// who write meanwhile.
func (s *Store) fullFrames() int64 { return s.o.CacheBytes - s.o.CacheBytes/4 }

// Bounds of the log that a crash leaves to replay: some 5 us a small row.
const (
	minCheckpointBytes = 64 << 20
	maxCheckpointBytes = 256 << 20
)

// checkpointBytes is the log size that starts a checkpoint: half the store, within bounds that
// replay time sets.
func (s *Store) checkpointBytes() int64 {
	bytes := s.o.CheckpointBytes
	if bytes == 0 {
		bytes = min(max(s.fileBytes.Load()/2, minCheckpointBytes), maxCheckpointBytes)
	}
	if s.o.MaxBytes > 0 { // What the log may have, the main file cannot.
		bytes = min(bytes, max(s.o.MaxBytes/8, 1))
	}
	return bytes
}

// maxFilledBytes of pages start a checkpoint if three quarters of them are leaves that rows in
// order have filled. These are written once, whenever that is: to wait with them gains nothing, and
// takes memory and log.
const maxFilledBytes = 16 << 20

// maxFilled is that many bytes, or fewer where the log is bound to little. Who sets a bound of the
// log sets this one.
func (s *Store) maxFilled() int64 {
	bytes := s.checkpointBytes() / 4
	if s.o.CheckpointBytes == 0 {
		bytes = min(bytes, maxFilledBytes)
	}
	return bytes
}

// waitForFrames makes a transaction wait for the running checkpoint while frames are used up, or,
// under MaxBytes, the log is, or pages are kept that it names: for frames until the checkpoint has
// given some back, for the log until it has ended. No lock is held.
func (s *Store) waitForFrames(ctx context.Context) error {
	for s.pg.FrameBytes() > s.o.CacheBytes && s.checkpointing.Load() {
		relieved := s.framesAvailable.wait()
		if s.pg.FrameBytes() <= s.o.CacheBytes {
			break
		}
		if over, err := waitFor(ctx, s.maintenanceMu, relieved); err != nil || over {
			return err
		}
	}
	if s.o.MaxBytes == 0 || !s.checkpointing.Load() {
		return nil
	}
	if log := s.sessionLog(); log == nil ||
		log.Bytes()+s.refBytesBefore.Load()+s.refBytesSince.Load() <= s.checkpointBytes() {
		return nil
	}
	_, err := waitFor(ctx, s.maintenanceMu, nil)
	return err
}

// waitFor waits until whoever holds a lock has let it go, or until early, which may be nil, is
// closed.
func waitFor(ctx context.Context, l, early chan struct{}) (free bool, err error) {
	var done <-chan struct{}
	if ctx != nil {
		done = ctx.Done()
	}
	select {
	case l <- struct{}{}:
		<-l
		return true, nil
	case <-early:
		return false, nil
	case <-done:
		return false, ctx.Err()
	}
}

// A signal wakes all who wait for it. The zero signal is ready for use.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{} // closed by the next send; nil: nobody has asked
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

// waitGroup counts goroutines. Others may come to it while somebody waits for it to be empty, which
// a sync.WaitGroup does not allow. Its zero value is an empty one.
type waitGroup struct {
	mu    sync.Mutex // guards the fields below
	n     int
	empty chan struct{} // closed when n comes to 0; nil: nobody waits
}

// run calls f in a goroutine of the crew.
func (c *waitGroup) run(f func()) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	go func() {
		defer c.leave()
		f()
	}()
}

func (c *waitGroup) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.empty != nil {
		close(c.empty)
		c.empty = nil
	}
}

// wait returns when there was a moment without anybody.
func (c *waitGroup) wait() {
	c.mu.Lock()
	if c.n > 0 && c.empty == nil {
		c.empty = make(chan struct{})
	}
	empty := c.empty
	c.mu.Unlock()
	if empty != nil {
		<-empty
	}
}
