package txn

import (
	"context"
)

// When checkpoints begin, and who waits for them.

// maybeCheckpoint starts a checkpoint if the log or the frames have grown past their bounds. The goroutine ends with it.
func (s *Store) maybeCheckpoint() {
	if !s.due() || !s.checkpointing.CompareAndSwap(false, true) {
		return
	}
	// The lock is taken here if it is free, so that whoever waits for it waits for this checkpoint.
	locked := tryLock(s.upkeep)
	run := func() {
		defer s.checkpointing.Store(false)
		if !locked {
			_ = lock(nil, s.upkeep)
		}
		defer func() { <-s.upkeep }()
		if err := s.checkpoint(nil); err != nil {
			s.retryAt.Store(uint64(s.log.End()) + uint64(s.checkpointBytes())/8)
		}
	}
	if s.o.Inline {
		s.open.Add(1)
		defer s.open.Add(-1)
		run()
		return
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		run()
	}()
}

// due is asked by committers, without the writer lock: a rough answer does.
func (s *Store) due() bool {
	end := uint64(s.log.End())
	if end < s.retryAt.Load() {
		return false
	}
	if s.wantRoom.Swap(false) {
		return true
	}
	since, bound := int64(end)-s.logSince.Load(), s.checkpointBytes()
	// Frames that snapshots hold do not go away with a checkpoint: not one after the other for their sake.
	return since > bound || s.pg.FrameBytes() > s.o.CacheBytes-s.o.CacheBytes/4 && since > bound/16
}

// Bounds of the log that a crash leaves to replay: some 5 us a small row.
const (
	minCheckpointBytes = 64 << 20
	maxCheckpointBytes = 256 << 20
)

// checkpointBytes is the log size that starts a checkpoint: half the store, within bounds that replay time sets.
func (s *Store) checkpointBytes() int64 {
	if s.o.CheckpointBytes > 0 {
		return s.o.CheckpointBytes
	}
	bytes := min(max(s.fileBytes.Load()/2, minCheckpointBytes), maxCheckpointBytes)
	if s.o.MaxBytes > 0 {
		bytes = min(bytes, s.o.MaxBytes/8)
	}
	return bytes
}

// pace is what a checkpoint asks, as it is written, whether commits matter more than its early end: as long as the frames that
// commits add leave room for what they will add until it ends. Who is to wait for the checkpoint would rather it hurried.
func (s *Store) pace() func(written float64) (calm bool) {
	began := s.pg.FrameBytes()
	room := float64(max(s.o.CacheBytes-began, 0))
	return func(written float64) bool {
		grown := float64(s.pg.FrameBytes() - began)
		return grown <= room*(written+1.0/8)
	}
}

// makeRoom makes a transaction wait for the running checkpoint while frames are used up, or, under MaxBytes, the log is:
// what the checkpoint is about to release counts until it has. No lock is held.
func (s *Store) makeRoom(ctx context.Context) error {
	full := s.pg.FrameBytes() > s.o.CacheBytes
	if s.o.MaxBytes > 0 && s.checkpointing.Load() {
		s.queueMu.Lock()
		log := s.log
		s.queueMu.Unlock()
		full = full || log != nil && log.Bytes() > s.checkpointBytes()
	}
	if !full || !s.checkpointing.Load() {
		return nil
	}
	if err := lock(ctx, s.upkeep); err != nil {
		return err
	}
	<-s.upkeep
	return nil
}
