package txn

import (
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// Files that nothing needs once a store has been opened: segments of a log that was replayed, or
// that an unsynced removal brought back, and a half made main file. To remove a segment takes the
// system milliseconds, for the pages that it has in its cache. So only the first one goes within
// Open, which ends the chain; the others go while the store is read already. The start of the log
// waits for that, and with it whatever changes the store or needs room on the disk. So does Close.
//
// Crash: the next Open finds some of them, as after a crash within Open, and removes them. Should a
// power cut bring back all, they lead to the state that the meta page tells of, and nothing has
// been written over the state that they begin from.

// removeObsolete removes them, or as many as do not wait for removeObsoleteInBackground.
func (s *Store) removeObsolete(found *wal.ScanResult) error {
	if s.o.ReadOnly {
		s.foundLog = found.FileBytes()
		return nil
	}
	names := found.Obsolete(wal.First(s.pg.LastMeta().SegmentSize, s.nextSegment))
	now := len(names)
	if !s.o.Inline {
		now = min(now, 1)
	}
	if err := found.Remove(names[:now]); err != nil {
		return err
	}
	s.obsolete.found, s.obsolete.names = found, names[now:]
	return pager.RemoveTemp(s.o.FS, s.path)
}

// obsoleteSegments is what leftovers has left. It belongs to the holder of the writer lock.
type obsoleteSegments struct {
	found *wal.ScanResult
	names []string
	ended chan error // of capacity 1: what became of the goroutine; nil: there is none
}

// removeObsoleteInBackground has a goroutine remove them, that ends with it. It is for Open.
func (s *Store) removeObsoleteInBackground() {
	r := &s.obsolete
	if len(r.names) == 0 {
		return
	}
	all, ended := *r, make(chan error, 1)
	r.ended = ended
	s.background.run(func() { ended <- all.remove(s.pg) })
}

// remove removes them one by one, as long as their names are the store's.
func (r *obsoleteSegments) remove(pg *pager.Pager) error {
	for i := range r.names {
		if pg.CheckIdentity() != nil { // Who changes the store hears of that; these may be somebody else's by now.
			return nil
		}
		if err := r.found.Remove(r.names[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// waitObsolete waits until they are gone. What could not be removed is tried again, each time
// somebody asks.
func (s *Store) waitObsolete() error {
	r := &s.obsolete
	if r.ended != nil {
		err := <-r.ended
		r.ended = nil
		if err == nil {
			*r = obsoleteSegments{}
		}
	}
	err := r.remove(s.pg) // of what that has not removed, if anything
	if err == nil {
		*r = obsoleteSegments{}
	}
	return err
}
