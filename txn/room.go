package txn

// On a full disk the main file gives the log what it has at its end and does not need. That it has any is our doing: it grows ahead of need.

// giveRoom makes the main file shorter, and says whether it was longer than it had to be. It is called with the upkeep and the writer
// lock. A failure is final.
func (s *Store) giveRoom() (given bool, err error) {
	given, err = s.pg.GiveRoom()
	if err != nil {
		return false, s.poison(err)
	}
	return given, nil
}

// makeLogRoom is giveRoom for who appends, and has the writer lock. Beside a checkpoint, which has the other one, nobody gives. Who
// appends hears of a full disk if this fails, and whoever comes next of the failure.
func (s *Store) makeLogRoom() bool {
	if !tryLock(s.upkeep) {
		return false
	}
	defer func() { <-s.upkeep }()
	given, _ := s.giveRoom()
	return given
}

// prepareLog makes sure that the log can go on in a new segment, with the room that give finds if the disk has none.
func (s *Store) prepareLog(give func() (given bool, err error)) error {
	err := s.log.Prepare()
	if isNoSpace(err) {
		given, failed := give()
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
