package txn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"time"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/mapfault"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// Open opens the store at path, creating it unless MustExist or ReadOnly, and recovers it if it was
// not closed cleanly. All that it then shows is durable. A read-only store is recovered in memory,
// and no byte is written.
func Open(path string, o Options) (*Store, error) {
	o = o.withDefaults()
	deadline := time.Now().Add(o.LockTimeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		s, err := open(path, o)
		if !errors.Is(err, ErrLocked) || !time.Now().Before(deadline) {
			return s, err
		}
		time.Sleep(min(pause, time.Until(deadline)))
	}
}

// open tries to open once. Replay in key order may need a few more pages than the original run,
// which a full disk does not have: then the log is replayed in log order. An interrupted recovery
// may be retried.
func open(path string, o Options) (*Store, error) {
	s, err := openReplaying(path, o, false)
	if pager.NoSpace(err) {
		if again, failed := openReplaying(path, o, true); failed == nil {
			return again, nil
		}
	}
	return s, err
}

func openReplaying(path string, o Options, logOrder bool) (*Store, error) {
	created, err := ensure(path, o)
	if err != nil {
		return nil, err
	}
	// The log of the preferred meta page may turn out to be incomplete: the second try starts
	// from the other one, with everything opened again.
	var first error
	for try := 0; try < 2; try++ {
		s := newStore(path, o)
		s.logOrder = logOrder
		again, err := s.load(try, created)
		if err == nil {
			s.recovery.Created = created
			s.recovery.Clean = s.recovery.Clean || created
			return s, nil
		}
		if first == nil {
			first = err
		}
		if !again {
			break
		}
	}
	return nil, first
}

// ensure creates the store file if there is none, and says whether it did.
func ensure(path string, o Options) (created bool, err error) {
	info, err := o.FS.Stat(path)
	switch {
	case err == nil && !info.Mode.IsRegular():
		return false, fmt.Errorf("%w: %s", vfs.ErrNotRegular, path)
	case err == nil && info.Size > 0:
		return false, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	absent := err != nil
	found, scanErr := wal.Files(o.FS, path)
	if scanErr == nil && len(found) > 0 {
		if info, err := o.FS.Stat(path); err == nil && info.Size > 0 {
			return false, nil // another process has created it meanwhile, and has a log already
		}
		return false, badfile.At(path, -1,
			"main file is missing or empty, but log segments are there: %s", found[0])
	}
	if absent && (o.ReadOnly || o.MustExist) {
		return false, err
	}
	if !absent && (o.ReadOnly || o.MustExist) {
		return false, badfile.At(path, 0, "file is empty")
	}
	m := pager.Meta{PageSize: o.PageSize, SegmentSize: o.SegmentSize, NextTree: uint64(firstTree), Seq: 0}
	if m.PageSize == 0 {
		m.PageSize = DefaultPageSize
	}
	if m.PageSize < pager.MinPageSize || m.PageSize > pager.MaxPageSize || m.PageSize&(m.PageSize-1) != 0 {
		return false, fmt.Errorf("%w: %d is not a power of two from %d to %d",
			ErrPageSize, m.PageSize, pager.MinPageSize, pager.MaxPageSize)
	}
	binary.LittleEndian.PutUint64(m.StoreID[:], o.Rand())
	binary.LittleEndian.PutUint64(m.StoreID[8:], o.Rand())
	m.LogStart = uint64(wal.First(m.SegmentSize, 1))
	m.LogDurable = m.LogStart
	if created, err = pager.Create(o.FS, path, m); err != nil {
		return created, noSpace(err)
	}
	return created, nil
}

func noSpace(err error) error {
	if pager.NoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// firstTree reserves lower numbers for trees with a fixed meaning.
const firstTree TreeID = 4

// load opens the files and recovers from the try-th best meta page; again says that a retry with
// another one may succeed.
//
// If it fails, it removes a file that this Open has created, while its lock is held, provided that
// no session has written to the file. Another process may have opened it already: the creator holds
// no lock between creation and load.
func (s *Store) load(try int, created bool) (again bool, err error) {
	pg, metas, err := pager.Open(pager.Options{
		FS: s.o.FS, Path: s.path, ReadOnly: s.o.ReadOnly, NoMap: s.o.NoMap,
		Cache: s.o.CacheBytes, Memory: s.o.Memory, MaxBytes: s.o.MaxBytes,
		Inline: s.o.Inline, SmallGroups: s.o.SmallGroups, CheckPage: tree.CheckPage,
		ApplyDelta: tree.ApplyDelta,
	})
	if err != nil {
		return false, err
	}
	s.pg, s.queue.undo = pg, &pg.Undo
	s.w.View = pg.Reader.View(0, pager.Newest) // for the page size, before the first transaction
	s.reclaimer = &reclaimer{
		stickyFailure: &s.stickyFailure, pg: pg, visible: &s.queue.visible, readers: &s.readers,
		backups: &s.backups,
		pins:    map[uint64][]deferredFree{}, detached: map[uint64]pager.Frames{},
	}
	err = mapfault.Guard(s.Fault, func() (err error) {
		again, err = s.recover(metas, try)
		return err
	})
	if err != nil {
		if created && metas[0] != nil && metas[0].Epoch == 1 && metas[1] == nil {
			err = errors.Join(err, s.o.FS.Remove(s.path))
		}
		err = errors.Join(err, pg.Close())
	}
	return again, err
}

func contextErr(ctx context.Context) error {
	if ctx == nil {
		return nil
	}
	return ctx.Err()
}
