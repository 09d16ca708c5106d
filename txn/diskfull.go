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

// runOnFullDisk is called with checkpointer.mu. The state is nil if nothing was written.
func (k *checkpointer) runOnFullDisk(ctx context.Context) (*checkpointState, error) {
	if err := k.s.lockWriter(ctx); err != nil {
		return nil, err
	}
	defer k.s.unlockWriter()
	if err := k.s.canWrite(); err != nil {
		return nil, err
	}
	c, err := k.captureLocked(true)
	if err != nil {
		return nil, err
	}
	if err := k.write(c, nil); err != nil {
		return c, err
	}
	if err := k.s.log.RestartInPlace(); err != nil {
		return c, k.s.logError(err)
	}
	k.logSince.Store(k.s.log.Volume())
	if err := k.install(c); err != nil {
		return c, err
	}
	if _, err := k.s.reclaimer.reclaim(reclaimAll); err != nil {
		return c, err
	}
	return c, k.s.beginIn(k.s.log)
}
