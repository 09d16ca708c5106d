package pager

// A Backlog is what was written to the file, and the disk has not been told to keep. It has that
// done by a goroutine while more is written: a disk may do little until it is told to, and would be
// waited for at the end. One goroutine at a time uses it.
//
// What is synced is free space until a checkpoint whose own sync covers it, so that nothing depends
// on when it happens.
type BackgroundSync struct {
	p       *Pager
	bytes   int        // since the last sync began
	syncing chan error // of capacity 1; nil: no sync is under way
}

const (
	// backgroundSyncBytes is how many bytes are worth a sync of their own.
	backgroundSyncBytes = 8 << 20
	// maxBackgroundBytes bounds the bytes that are written while a sync is under way: the system is
	// not to be filled with what waits for a slow disk.
	maxBackgroundBytes = 8 * backgroundSyncBytes
)

// NewBackgroundSync makes an empty one. End ends it.
func (p *Pager) NewBackgroundSync() *BackgroundSync { return &BackgroundSync{p: p} }

// Written is told that so many bytes more were written. An error is that of an earlier sync, and
// final as that of SyncExtents is.
func (b *BackgroundSync) Written(bytes int) error {
	if b.p.o.Inline {
		return nil // for the sync of the checkpoint
	}
	b.bytes += bytes
	if b.syncing != nil && (len(b.syncing) > 0 || b.bytes >= maxBackgroundBytes) {
		if err := b.Wait(); err != nil {
			return err
		}
	}
	if b.syncing == nil && b.bytes >= backgroundSyncBytes {
		done := make(chan error, 1)
		b.syncing, b.bytes = done, 0
		go func() { done <- b.p.SyncExtents() }()
	}
	return nil
}

// Wait waits for the sync that is under way, if there is one.
func (b *BackgroundSync) Wait() error {
	if b.syncing == nil {
		return nil
	}
	done := b.syncing
	b.syncing = nil
	return <-done
}
