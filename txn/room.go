package txn

// On a full disk the main file gives the log what it has at its end and does not need. That it has any is our doing: it grows ahead of need.

// giveRoom makes the main file shorter, and says whether it was longer than it had to be. It is called with the upkeep and the writer
// lock.
func (s *Store) giveRoom() bool {
	given, err := s.pg.GiveRoom()
	if err != nil {
		_ = s.poison(err)
	}
	return given
}

// makeLogRoom is giveRoom for who appends, and has the writer lock. Beside a checkpoint, which has the other one, nobody gives.
func (s *Store) makeLogRoom() bool {
	if !tryLock(s.upkeep) {
		return false
	}
	defer func() { <-s.upkeep }()
	return s.giveRoom()
}

// prepareLog makes sure that the log can go on in a new segment, with the room that give finds if the disk has none.
func (s *Store) prepareLog(give func() bool) error {
	err := s.log.Prepare()
	if isNoSpace(err) && give() {
		err = s.log.Prepare()
	}
	if err != nil {
		return s.logError(err)
	}
	return nil
}
