package txn

import (
	tree "github.com/ebbkv/ebb/btree"
)

// Stats are the store's numbers at this moment; while a write transaction is open, those that the writer lock guards
// are as they were when somebody last asked without one. On a closed store they are the last ones.
func (s *Store) Stats() Stats {
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	st := s.last
	if !s.isOpen() {
		return st
	}
	if tryLock(s.writer) {
		if s.isOpen() {
			s.guardedStats(&st)
		}
		s.unlockWriter()
	}
	if s.isOpen() {
		st.Readers, st.OldestReaderAge = s.readers.stats(s.now())
		st.FrameBytes = s.pg.FrameBytes()
		st.PagesRead, st.PagesWritten = s.pg.Counters()
	}
	st.CacheBytes, st.MemoryBytes = s.o.CacheBytes, s.o.Memory
	st.Commits, st.Checkpoints = s.commits.Load(), s.checkpoints.Load()
	s.last = st
	return st
}

// guardedStats reads what the writer lock guards.
func (s *Store) guardedStats(st *Stats) {
	ps := int64(s.pg.PageSize())
	st.PageSize = int(ps)
	st.FileBytes = s.pg.FileBytes()
	st.FreeBytes = int64(s.pg.Pages()-s.pg.UsedPages()) * ps // what waits for snapshots or a checkpoint included
	st.PinnedBytes = s.pinnedPages * ps
	st.Seq, st.Epoch = s.head.seq, uint64(s.durable)
	st.DurableSeq = s.visible.Load().seq
	st.TrashTrees = 0
	s.head.trees.from(trashBit, func(TreeID, tree.Tree) bool {
		st.TrashTrees++
		return true
	})
	if s.log != nil {
		st.Groups = s.log.Groups()
		st.LogBytes = s.log.Bytes()
		st.LogBytesTotal = uint64(s.log.Volume())
	}
}
