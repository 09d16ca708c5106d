package txn

import (
	"fmt"
	"path/filepath"

	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// Numbers of which the format has only so many, and none is used twice. Changes are refused while
// there are some left: what was acknowledged needs a few for the checkpoints of its session, of
// Close and of recovery, also of one that a crash interrupts again and again.
const (
	lastEpoch   = pager.MaxEpoch - 1<<16
	lastSegment = wal.MaxSegment - 1<<20 // a transaction may fill many
)

// numbersLeft is the error of a change of a store that has used up its numbers.
func (s *Store) numbersLeft() error {
	if s.epoch >= lastEpoch {
		return s.usedUp("numbers of checkpoints")
	}
	segment := s.nextSegment
	if s.started {
		segment = uint64(s.log.End()) / uint64(s.segment)
	}
	if segment >= lastSegment {
		return s.usedUp("numbers of log segments")
	}
	return nil
}

func (s *Store) usedUp(what string) error {
	return fmt.Errorf(
		"%w: %s: the store has used all %s that its format has: copy its rows into a new one",
		ErrNoSpace,
		filepath.Base(s.path),
		what,
	)
}
