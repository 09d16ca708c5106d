package txn

import (
	"context"
)

// A checkpoint beside commits needs a new segment for the log. On a full disk there is no space for
// one, and only the checkpoint can free some. This checkpoint needs no segment: it writes what
// Close writes and restarts the session in the file of an obsolete segment. Commits wait for it.
//
//	crash ...                              the files hold                     recovery
//	before the clean meta page is durable  the old meta page, its whole log   as in Close
//	then, before the log restarts          the clean page, the log or a part  as in Close
//	after that                             the clean page, an empty segment   as at a session's first change
//	after the meta page of the session     that page, the log behind it       starts from it

// checkpointDiskFull is called with maintenanceMu. The state is nil if nothing was written.
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
	if _, err := s.reclaimer.reclaim(reclaimAll); err != nil {
		return c, err
	}
	return c, s.beginIn(s.log)
}
