package txn

import (
	"fmt"
	"path/filepath"

	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// The format has a limited supply of these numbers, and none is used twice. The store refuses
// changes before the supply ends: acknowledged commits need some numbers for the checkpoints of
// their session, of Close, and of recovery, even if crashes interrupt it again and again.
const (
	lastEpoch   = pager.MaxEpoch - 1<<16
	lastSegment = wal.MaxSegment - 1<<20 // one transaction may fill many
)

// numbersLeft returns the error for a change in a store that has used up its numbers.
func (w *writer) numbersLeft() error {
	s := w.s
	if s.epoch >= lastEpoch {
		return w.usedUp("numbers of checkpoints")
	}
	segment := s.nextSegment
	if s.started {
		segment = uint64(s.log.End()) / uint64(s.segment)
	}
	if segment >= lastSegment {
		return w.usedUp("numbers of log segments")
	}
	return nil
}

func (w *writer) usedUp(what string) error {
	return fmt.Errorf("%w: %s: the store has used all %s that its format has: copy its rows into a new one",
		ErrNoSpace, filepath.Base(w.s.path), what)
}
