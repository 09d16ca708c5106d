package txn

import (
	tree "github.com/ebbkv/ebb/btree"
)

// Stats are the store's present numbers. While a write transaction is open, the numbers that the
// writer lock guards are those of the last call without one. On a closed store all are those of its
// end.
func (s *Store) Stats() Stats {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	if !s.isOpen() {
		return s.stats.last
	}
	st := s.stats.last
	if tryLock(s.writer) {
		if s.isOpen() {
			if s.canWrite() == nil { // otherwise runs of ended snapshots would count until the next commit
				_, _ = s.reclaimer.reclaim(reclaimStep)
			}
			st.readGuarded(s)
		}
		s.unlockWriter()
	}
	if s.isOpen() {
		st.readOpen(s)
		s.stats.last = st
	}
	return st
}

// readOpen reads the numbers that need no lock, of a store whose pager is open.
func (st *Stats) readOpen(s *Store) {
	st.Readers, st.OldestReaderAge = s.readers.stats(s.now())
	st.FrameBytes = s.pg.Pool.FrameBytes()
	st.PagesRead, st.PagesWritten = s.pg.Counters()
	st.Commits, st.Checkpoints = s.commits.Load(), s.checkpointer.count.Load()
	st.DurableSeq = s.queue.durableCommit()
	st.CacheBytes, st.MemoryBytes = s.o.CacheBytes, s.o.Memory
}

// lastStats keeps the numbers of a session that ends, with the writer lock. removed says that its
// log was removed.
func (s *Store) lastStats(removed bool) {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	s.stats.last.readGuarded(s)
	s.stats.last.readOpen(s)
	if removed {
		s.stats.last.LogBytes = 0
	}
}

// readGuarded reads the numbers that the writer lock guards.
func (st *Stats) readGuarded(s *Store) {
	ps := int64(s.pg.PageSize())
	st.PageSize = int(ps)
	st.FileBytes = s.pg.Alloc.FileBytes()
	st.DiskBytes = s.pg.Alloc.DiskBytes()
	// FreeBytes includes pages that wait for snapshots or a checkpoint.
	st.FreeBytes = int64(s.pg.Alloc.Pages()-s.pg.Alloc.UsedPages()) * ps
	st.PinnedBytes = s.reclaimer.pinnedPages * ps
	st.Seq, st.Epoch = s.head.seq, uint64(s.durable)
	st.TrashTrees = 0
	s.head.trees.from(trashBit, func(TreeID, tree.Tree) bool {
		st.TrashTrees++
		return true
	})
	st.LogBytes = s.foundLog
	if s.log != nil {
		st.Groups = s.log.Groups()
		st.LogBytes = s.log.Bytes()
		st.LogBytesTotal = uint64(s.log.Volume())
	}
}
