package txn

import "github.com/ebbkv/ebb/pager"

// An older state is superseded when recovery cannot start from it after any crash: from then on its
// pages may be overwritten. There are two ways, and each step uses the one that needs no sync of its
// own (ADR 0042).
//
//	step                       superseded by                  the sync that does it also
//	checkpoint                 Log.Release: the header of     renews the segment for its next use
//	                           its first segment
//	first change of a session  overwriteMeta                  says that there is a log from here on
//	checkpoint on a full disk  overwriteMeta                  the same
//	recovery, before it writes overwriteMeta                  (only if invalidateStaleMeta finds one)
//	recovery without commits   overwriteMeta                  says that no log is needed
//	Close without changes      overwriteMeta                  stores the clock mark
//
// Neither recovery that has replayed commits nor Close supersedes the state that it started from:
// they overwrite none of its pages, and the next session begins with its first change.

// overwriteMeta overwrites the older meta page with a copy of the last one, as changed by change. It
// describes the same state, under a newer epoch: whatever a crash leaves of the two, the state of
// the overwritten page is gone once overwriteMeta returns nil.
func (k *checkpointer) overwriteMeta(change func(m *pager.Meta)) error {
	s := k.s
	m := s.pg.LastMeta()
	m.Epoch = s.epoch
	change(&m)
	if err := s.pg.WriteMeta(m); err != nil {
		return err
	}
	s.durable, s.epoch = m.Epoch, m.Epoch+1
	return nil
}
