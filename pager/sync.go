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

// Claim allocates the n pages from ref on to which a log record refers: they were written after the
// state of Start, to pages that are free in it. It precedes all other allocations.
func (a *Allocator) Claim(ref Ref, n uint64) error {
	pages := uint64(a.Growth.length) / uint64(a.pageSize)
	if ref.Pgid < 2 || uint64(ref.Pgid) >= pages || pages-uint64(ref.Pgid) < n {
		return a.corrupt(ref.Pgid, "the log names %d pages in a file of %d", n, pages)
	}
	until := uint64(ref.Pgid) + n
	if end := a.space.end; until > end {
		if _, err := a.space.grow(until - end); err != nil {
			return err
		}
		set := a.space.setAvail
		if a.space.sparse {
			set = a.space.setHole
			a.Growth.size = max(a.Growth.size, int64(until)*int64(a.pageSize))
		}
		if err := set(Pgid(end), until-end); err != nil {
			return err
		}
		a.end.Store(a.space.end)
	}
	for id := ref.Pgid; uint64(id) < until; id++ {
		g, i, err := a.space.at(id)
		if err != nil {
			return err
		}
		pool := &a.space.avail
		if a.space.sparse { // its bytes are in the file, and so it has room
			pool = &a.space.holes
		}
		if pool.of(g)[i/64]&(1<<(i%64)) == 0 {
			return a.corrupt(id, "the log names it as one of %d pages, but it is in use", n)
		}
		a.space.markAllocated(pool, g, i)
	}
	return nil
}
