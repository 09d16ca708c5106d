package txn

import (
	"context"
)

// A checkpoint beside commits needs a segment that the log goes on in. On a full disk there is no
// room for one, and what would make room is the checkpoint. This one does without: it writes what
// Close writes and begins the session anew, in the file of a segment that is needless then. Nobody
// commits meanwhile.
//
//	crash ...                                  the files hold                            recovery
//	before the clean meta page is durable      the old meta page, its whole log          as in Close
//	after it, before the log begins anew       the clean page, the log or some of it     as in Close
//	after that                                 the clean page, an empty segment          as in the first change of a session
//	after the meta page of the session         that page, the log behind it              starts from it

// checkpointDiskFull is called with the upkeep lock. The capture is nil if nothing was written.
func (s *Store) checkpointDiskFull(ctx context.Context) (*checkpointState, error) {
	if err := s.lockWriter(ctx); err != nil {
		return nil, err
	}
	defer s.unlockWriter()
	if err := s.canWrite(); err != nil {
		return nil, err
	}
	c, err := s.captureLocked(true)
	if err != nil {
		return nil, err
	}
	if err := s.writeCheckpoint(c, nil); err != nil {
		return c, err
	}
	if err := s.log.RestartInPlace(); err != nil {
		return c, s.logError(err)
	}
	s.logSince.Store(s.log.Volume())
	if err := s.installCheckpoint(c); err != nil {
		return c, err
	}
	if err := s.reclaimFreed(1 << 30); err != nil {
		return c, s.fail(err)
	}
	return c, s.beginIn(s.log)
}
