package txn

import "github.com/ebbkv/ebb/pager"

// On a full disk the main file gives the log what it has at its end and does not need. That it has
// any is our doing: it grows ahead of need.

// giveSpaceBack makes the main file shorter, if it is longer than it has to be, and says whether
// there may be more room now. It is called with the upkeep and the writer lock. A failure is final,
// and after one nothing is cut.
func (s *Store) giveSpaceBack() (given bool, err error) {
	if err := s.failure(); err != nil {
		return false, err
	}
	given, err = s.pg.GiveSpaceBack()
	if err != nil {
		return false, s.fail(err)
	}
	return given, nil
}

// makeLogSpace is giveSpaceBack for who appends, and has the writer lock. Beside a checkpoint,
// which has the other one, nobody gives. Who appends hears of a full disk if this fails, and
// whoever comes next of the failure.
func (s *Store) makeLogSpace() bool {
	if !tryLock(s.maintenanceMu) {
		return false
	}
	defer func() { <-s.maintenanceMu }()
	given, _ := s.giveSpaceBack()
	return given
}

// prepareLog makes sure that the log can go on in a new segment, with what the main file gives if
// the disk has no room. It is called with the upkeep and the writer lock: else who puts would take
// what is given for pages.
func (s *Store) prepareLog() error {
	err := s.log.Prepare()
	if pager.NoSpace(err) {
		given, failed := s.giveSpaceBack()
		if failed != nil {
			return failed
		}
		if given {
			err = s.log.Prepare()
		}
	}
	if err != nil {
		return s.logError(err)
	}
	return nil
}
