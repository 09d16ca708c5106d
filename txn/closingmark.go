package txn

import "github.com/ebbkv/ebb/pager"

// The clock mark of a closed store may be newer than that of its last commit, since reads raise it
// too. Close stores it in the clean meta page, which a session with a log writes anyway. A session
// without a log writes a meta page of the same state, if the mark is needed.
//
//	crash ...                     the files hold                       recovery
//	before that page is durable   the earlier clean page; the other    takes the earlier mark: Close
//	                              one as it was, or torn               has not returned
//	after it                      two clean pages of one state         starts from the newer one: there
//	                                                                   is no segment
//	after it, and segments of an  the older page may have its whole    replays that log to the same commit,
//	older log have come back      log again                            with the newer mark: see markBehind
//
// The new page overwrites the slot that the first change of a session would overwrite.

// OnClose sets the function that gives Close the clock mark to store. stored is the mark of the
// newest commit; needed says that Close must store the mark even if it writes nothing else. The
// caller of Open calls OnClose before it uses the store.
func (s *Store) OnClose(mark func(stored int64) (mark int64, needed bool)) {
	s.checkpointer.closingMark = mark
}

// markAtClose is the clock mark of the meta page that Close writes. Writer lock.
func (k *checkpointer) markAtClose() (mark int64, needed bool) {
	if k.closingMark == nil {
		return k.s.head.mark, false
	}
	return k.closingMark(k.s.head.mark)
}

// storeMark stores the clock mark of a session without changes, if it is needed. The caller holds
// checkpointer.mu and the writer lock.
func (k *checkpointer) storeMark() error {
	mark, needed := k.markAtClose()
	if !needed || mark == k.s.head.mark || k.s.epoch >= pager.MaxEpoch {
		return nil
	}
	if err := k.s.pg.CheckIdentity(); err != nil {
		return k.s.fail(err)
	}
	if err := k.overwriteMeta(func(m *pager.Meta) { m.ClockMark = mark }); err != nil {
		return k.s.fail(err)
	}
	return nil
}

// markBehind is the clock mark that was stored after the log behind m had ended with commit seq; ok
// is false if no meta page has one. The newest page has one if it is a clean page of that commit,
// or a copy of m that invalidateStaleMeta wrote, which keeps the mark of such a page.
func markBehind(m, newest *pager.Meta, seq uint64) (mark int64, ok bool) {
	ok = newest != m && newest.Clean && newest.Seq == seq ||
		sameState(m, newest) && newest.ClockMark != m.ClockMark
	return newest.ClockMark, ok
}

// sameState says that both pages describe one state and one log. It is true of m itself.
func sameState(m, newest *pager.Meta) bool {
	return newest.Clean == m.Clean && newest.LogStart == m.LogStart && newest.Seq == m.Seq
}
