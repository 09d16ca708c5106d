package pager

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// fileSync is how the file becomes durable, by two who know nothing of each other: the checkpoint,
// and the leader of the log with what the log names, large values and leaves.
//
// An operating system tells of a page that it could not write once, to whoever asks next, and takes
// the page for clean from then on. So they ask in turns, and who comes after a failure is told of
// that one: it may have been about what they wrote.
type fileSync struct {
	mu    sync.Mutex  // held while the disk is busy
	first error       // failure; guarded by mu
	grown atomic.Bool // the file is perhaps longer than a crash would leave it
}

// sync has bytes written to the disk, in one of the file's ways. what they are is for the error.
func (p *Pager) sync(what string, way func() error) error {
	p.fileSync.mu.Lock()
	defer p.fileSync.mu.Unlock()
	if p.fileSync.first != nil {
		return p.fileSync.first
	}
	if err := way(); err != nil {
		p.fileSync.first = fmt.Errorf("sync %s of %s: %w", what, p.name, err)
		p.invalidateVerified()
	}
	return p.fileSync.first
}

// unsynced is the first failure of a sync.
func (p *Pager) unsynced() error {
	p.fileSync.mu.Lock()
	defer p.fileSync.mu.Unlock()
	return p.fileSync.first
}

// SyncExtents makes durable what NewExtent and WriteLeafRun have written, and with it what else was
// written. No lock is needed. A failure is final, for checkpoints too.
func (p *Pager) SyncExtents() error {
	return p.sync("what the log names", func() error {
		// A sync of the data alone need not keep the size (R5). Asked in turn: who comes second
		// must not take for durable what the first is about to sync.
		if p.fileSync.grown.Swap(false) {
			return p.file.Sync()
		}
		return p.file.SyncData()
	})
}

// Claim takes n pages from ref on that a record of the log names: they were written after the state
// that Start was told of, to space which is free there, and are in use from now on. It comes before
// anything is allocated.
func (p *Pager) Claim(ref Ref, n uint64) error {
	pages := uint64(p.fileSize) / uint64(p.pageSize)
	if ref.Pgid < 2 || uint64(ref.Pgid) >= pages || pages-uint64(ref.Pgid) < n {
		return p.corrupt(ref.Pgid, "the log names %d pages in a file of %d", n, pages)
	}
	behind := uint64(ref.Pgid) + n
	if end := p.space.end; behind > end {
		if _, err := p.space.grow(behind - end); err != nil {
			return err
		}
		if err := p.space.setAvail(Pgid(end), behind-end); err != nil {
			return err
		}
		p.end.Store(p.space.end)
	}
	for id := ref.Pgid; uint64(id) < behind; id++ {
		g, i, err := p.space.at(id)
		if err != nil {
			return err
		}
		if g.avail[i/64]&(1<<(i%64)) == 0 {
			return p.corrupt(id, "the log names it as one of %d pages, but it is in use", n)
		}
		p.space.markAllocated(&p.space.avail, g, i)
	}
	return nil
}
