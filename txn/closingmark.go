package txn

import "github.com/ebbkv/ebb/pager"

// The clock mark of a closed store may be newer than that of its last commit: reads raise it, too.
// Close stores it in the clean meta page, which a session with a log writes anyway. A session
// without one writes a meta page of the same state, if the mark is needed.
//
//	crash ...                            the files hold                          recovery
//	before that page is durable          the clean page of before; the other     the mark of before: Close has not returned
//	                                     one as it was, or torn
//	after it                             two clean pages of one state            starts from the newer one: no segment is there
//	after it, and segments of an older   the older page may have its whole log   replays that log to the same commit, and takes the mark of the newer page:
//	log have come back                   again                                   see markBehind
//
// The page that is overwritten is the one that the first change of a session overwrites.

// OnClose has Close ask for the clock mark to store. stored is the mark of the newest commit;
// needed says that the mark must be stored even if nothing else is written. It is for the caller of
// Open, before the store is used.
func (s *Store) OnClose(mark func(stored int64) (mark int64, needed bool)) { s.closingMark = mark }

// markAtClose is the clock mark of the meta page that a Close writes. Writer lock.
func (s *Store) markAtClose() (mark int64, needed bool) {
	if s.closingMark == nil {
		return s.head.mark, false
	}
	return s.closingMark(s.head.mark)
}

// storeMark stores the clock mark of a session that has changed nothing, if it is needed. Upkeep
// and writer lock.
func (s *Store) storeMark() error {
	mark, needed := s.markAtClose()
	if !needed || mark == s.head.mark || s.epoch >= pager.MaxEpoch {
		return nil
	}
	if err := s.pg.CheckIdentity(); err != nil {
		return s.fail(replaced(err))
	}
	m := s.pg.LastMeta()
	m.Epoch, m.ClockMark = s.epoch, mark
	if err := s.pg.WriteMeta(m); err != nil {
		return s.fail(err)
	}
	s.durable, s.epoch = s.epoch, s.epoch+1
	return nil
}

// markBehind is the clock mark that was stored when the log after m had ended with commit seq
// already; ok is false if no meta page tells of one. The newest page does if it is a clean one of
// that commit, or a fence, which keeps the mark of such a page.
func markBehind(m, newest *pager.Meta, seq uint64) (mark int64, ok bool) {
	ok = newest != m && newest.Clean && newest.Seq == seq ||
		sameState(m, newest) && newest.ClockMark != m.ClockMark
	return newest.ClockMark, ok
}

// sameState says that both pages tell of one state, and of one log. It is true of m itself.
func sameState(m, newest *pager.Meta) bool {
	return newest.Clean == m.Clean && newest.LogStart == m.LogStart && newest.Seq == m.Seq
}
