package txn

import "github.com/ebbkv/ebb/pager"

// On a full disk the main file gives the log the space at its end that it does not need. There is
// such space because the file grows ahead of need.

// giveSpaceBack shortens the main file, if it is longer than necessary, and says whether the disk
// may have space now. The caller holds checkpointer.mu and the writer lock. A failure is final, and
// after one nothing is cut.
func (k *checkpointer) giveSpaceBack() (given bool, err error) {
	if err := k.s.failure(); err != nil {
		return false, err
	}
	given, err = k.s.pg.Alloc.GiveSpaceBack()
	if err != nil {
		return false, k.s.fail(err)
	}
	return given, nil
}

// makeLogSpace is giveSpaceBack for a log append, with the writer lock held. During a checkpoint,
// which holds checkpointer.mu, it does nothing. If giveSpaceBack fails, the append returns that the
// disk is full, and later calls return the failure.
func (k *checkpointer) makeLogSpace() bool {
	if !tryLock(k.mu) {
		return false
	}
	defer func() { <-k.mu }()
	given, _ := k.giveSpaceBack()
	return given
}

// prepareLog makes sure that the log has a next segment, with space of the main file if the disk is
// full. The caller holds checkpointer.mu and the writer lock: otherwise a put could allocate the
// space for pages.
func (k *checkpointer) prepareLog() error {
	err := k.s.log.Prepare()
	if pager.NoSpace(err) {
		given, failed := k.giveSpaceBack()
		if failed != nil {
			return failed
		}
		if given {
			err = k.s.log.Prepare()
		}
	}
	return k.s.logError(err)
}
