package pager

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// fileSync serializes the syncs of two independent components: the checkpoint, and the log's
// leader, which syncs the values and leaf runs that records refer to.
//
// An operating system reports a failed page write once, to the next sync, and then considers the
// page clean. So the syncs are serialized, and each sync after a failure returns that failure,
// which may concern its own writes.
type fileSync struct {
	mu    sync.Mutex  // held while the disk is busy
	first error       // first failure; guarded by mu
	grown atomic.Bool // the file's size may not be durable
}

// sync runs one of the file's sync functions. what describes the bytes, for the error.
func (f *mainFile) sync(what string, syncFile func() error) error {
	f.fileSync.mu.Lock()
	defer f.fileSync.mu.Unlock()
	if f.fileSync.first != nil {
		return f.fileSync.first
	}
	if err := syncFile(); err != nil {
		f.fileSync.first = fmt.Errorf("sync %s of %s: %w", what, f.name, err)
		f.invalidateVerified()
	}
	return f.fileSync.first
}

// unsynced is the first failure of a sync.
func (f *mainFile) unsynced() error {
	f.fileSync.mu.Lock()
	defer f.fileSync.mu.Unlock()
	return f.fileSync.first
}

// SyncExtents makes the writes of an ExtentWriter and WriteLeafRun durable, and all earlier ones. It
// takes no lock. A failure is final, for checkpoints too.
func (f *mainFile) SyncExtents() error {
	return f.sync("external references of the log", func() error {
		// A data sync need not keep the size (R5). The serialization keeps a second call from
		// skipping the size while the first is still syncing it.
		if f.fileSync.grown.Swap(false) {
			return f.file.Sync()
		}
		return f.file.SyncData()
	})
}
