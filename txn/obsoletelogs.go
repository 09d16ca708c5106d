package txn

import (
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// After an open some files are obsolete: segments of a log that was replayed, or that an unsynced
// removal brought back, and a half-made main file. To remove a segment takes the system
// milliseconds, for its pages in the page cache. So Open removes only the first segment, which ends
// the chain, and a goroutine removes the others while the store is read. startLog waits for the
// goroutine, and so do all changes, everything that needs space on the disk, and Close.
//
// Crash: the next Open finds some of them, as after a crash within Open, and removes them. If a
// power cut brings all of them back, replay gives the state of the meta page, and no page of the
// state that it starts from was overwritten.

// removeObsolete removes the obsolete files that do not wait for removeObsoleteInBackground.
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

// obsoleteSegments are the segments that removeObsolete left. The holder of the writer lock owns
// it.
type obsoleteSegments struct {
	found *wal.ScanResult
	names []string
	ended chan error // of capacity 1: result of the goroutine; nil: there is none
}

// removeObsoleteInBackground starts a goroutine that removes the other segments. Open calls it.
func (s *Store) removeObsoleteInBackground() {
	r := &s.obsolete
	if len(r.names) == 0 {
		return
	}
	all, ended := *r, make(chan error, 1)
	r.ended = ended
	s.background.run(func() { ended <- all.remove(s.pg) })
}

// remove removes the segments one by one, as long as the path is that of this store.
func (r *obsoleteSegments) remove(pg *pager.Pager) error {
	for i := range r.names {
		if pg.CheckIdentity() != nil { // these may belong to another store now; changes return the error
			return nil
		}
		if err := r.found.Remove(r.names[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// waitObsolete waits until the segments are removed. It retries segments that could not be removed,
// on each call.
func (s *Store) waitObsolete() error {
	r := &s.obsolete
	if r.ended != nil {
		err := <-r.ended
		r.ended = nil
		if err == nil {
			*r = obsoleteSegments{}
		}
	}
	err := r.remove(s.pg) // the rest, if the goroutine failed
	if err == nil {
		*r = obsoleteSegments{}
	}
	return err
}
