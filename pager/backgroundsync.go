package pager

// A BackgroundSync syncs bytes in a goroutine while its caller writes more. A disk may write little
// until it is synced, so that one sync at the end would take long. One goroutine at a time uses it.
//
// The bytes lie in free space until a checkpoint whose own sync covers them, so nothing depends on
// the time of the background sync.
type BackgroundSync struct {
	f       *mainFile
	bytes   int        // written since the last sync began
	syncing chan error // of capacity 1; nil: no sync is under way
}

const (
	// backgroundSyncBytes is how many bytes are worth a sync of their own.
	backgroundSyncBytes = 8 << 20
	// maxBackgroundBytes bounds the bytes that are written during one sync: a slow disk must not
	// fill the page cache with dirty pages.
	maxBackgroundBytes = 8 * backgroundSyncBytes
)

// NewBackgroundSync returns an idle BackgroundSync. Wait ends it.
func (f *mainFile) NewBackgroundSync() *BackgroundSync { return &BackgroundSync{f: f} }

// Written counts bytes that the caller has written. It may return the error of an earlier sync,
// which is final like that of SyncExtents.
func (b *BackgroundSync) Written(bytes int) error {
	if b.f.o.Inline {
		return nil // the sync of the checkpoint covers them
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
		go func() { done <- b.f.SyncExtents() }()
	}
	return nil
}

// Wait waits for the sync that is under way, if any.
func (b *BackgroundSync) Wait() error {
	if b.syncing == nil {
		return nil
	}
	done := b.syncing
	b.syncing = nil
	return <-done
}
