package txn

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/memlimit"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// Store is one open store. Its parts own their fields and locks: the commit queue, the snapshots, the
// checkpointer, the reclaimer, and the write transaction.
//
// Locks, in the order of locking: checkpointer.compacting (one Compact at a time), checkpointer.mu
// (one checkpoint, close or bulk load at a time), writer (the write transaction, and everything that
// allocates pages), allocMu of its workers, commitQueue.mu, those of the undo log. No lock is held
// during disk I/O, except checkpointer.mu, and the writer lock to reserve space or to spill a
// transaction that is larger than the cache.
type Store struct {
	o     Options
	path  string
	pg    *pager.Pager
	start time.Time // monotonic zero of snapshot ages

	state atomic.Int32
	stickyFailure
	open atomic.Int64 // write transactions begun and not ended, waiting ones included
	// lockWaiters counts goroutines that wait for the writer lock, maintenance included.
	lockWaiters atomic.Int64

	queue        commitQueue
	readers      snapshots
	backups      snapshots // versions whose pages in the file backups read
	checkpointer checkpointer
	writerState
	job jobSlot

	stats struct {
		mu   sync.Mutex
		last Stats // as of the last call of Stats
	}

	// Set by Open, then read-only.
	recovery    Recovery
	foundLog    int64       // bytes of the log of a store opened read-only
	segment     int64       // size of the log's segments
	openedEpoch pager.Epoch // checkpoint that the store was opened from: no page born since has it
	logOrder    bool        // replay applies operations in log order

	commits atomic.Uint64
}

// writerState is what the writer lock guards.
type writerState struct {
	writer      chan struct{} // the lock, with a context
	w           writer
	head        *version            // newest version
	table       tree.Tree           // the tree table as of the last capture
	changed     map[TreeID]struct{} // trees that changed since the tree table was written
	serial      uint64              // last serial of a version or an owner
	stamps      uint64              // see Tx.Stamp
	epoch       pager.Epoch         // that pages are born in: the number of the next checkpoint
	durable     pager.Epoch         // newest durable checkpoint
	started     bool                // the session has a log
	log         *wal.Log            // nil before that; also for goroutines that have held the lock since
	nextSegment uint64
	reclaimer   *reclaimer
	refusal     refusal
}

const (
	stateOpen    = iota
	stateClosing // Close looks for open transactions; the state becomes one of the others
	stateClosed
)

// Defaults and bounds of options.
const (
	DefaultPageSize    = 4096
	MostCacheBytes     = 384 << 20 // the default of CacheBytes, where there is enough memory
	cacheShare         = 4         // of less memory the default is a quarter
	DefaultSegmentSize = 4 << 20
	DefaultMaxTxnBytes = 4 << 30
	minCacheBytes      = 64 << 10
	minBoundSegment    = 64 << 10
)

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Memory == 0 {
		o.Memory = memlimit.Bytes()
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = MostCacheBytes
		if o.Memory > 0 {
			o.CacheBytes = min(o.Memory/cacheShare, MostCacheBytes)
		}
	}
	o.CacheBytes = max(o.CacheBytes, minCacheBytes)
	if o.MaxTxnBytes == 0 {
		o.MaxTxnBytes = DefaultMaxTxnBytes
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = DefaultSegmentSize
		if o.MaxBytes > 0 { // the log counts towards it, and has several segments
			o.SegmentSize = max(min(o.MaxBytes/64/4096*4096, DefaultSegmentSize), minBoundSegment)
		}
	}
	if o.SubmitFrom == 0 {
		o.SubmitFrom = defaultSubmitFrom
	}
	if o.ManyFrom == 0 {
		o.ManyFrom, o.ManyRows = defaultManyFrom, defaultManyRows
	}
	if o.LeavesFrom == 0 {
		o.LeavesFrom = defaultLeavesFrom
	}
	if o.Rand == nil {
		o.Rand = func() uint64 {
			var b [8]byte
			_, _ = rand.Read(b[:]) // never fails: crypto/rand
			return binary.LittleEndian.Uint64(b[:])
		}
	}
	return o
}

func newStore(path string, o Options) *Store {
	s := &Store{
		o: o, path: path, start: time.Now(),
		writerState: writerState{writer: make(chan struct{}, 1), changed: map[TreeID]struct{}{}, serial: 1},
	}
	s.checkpointer.s, s.checkpointer.mu = s, make(chan struct{}, 1)
	s.checkpointer.compacting = make(chan struct{}, 1)
	s.checkpointer.idle.init(o.PackAfter, s.checkpointer.packIfIdle)
	s.notify = o.Events.Failure
	s.w.s, s.w.w = s, &s.w
	return s
}

// now is the time since the store was opened, in nanoseconds: for ages only.
func (s *Store) now() int64 { return int64(time.Since(s.start)) }

func tryLock(l chan struct{}) bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func lock(ctx context.Context, l chan struct{}) error {
	if tryLock(l) {
		return nil
	}
	if err := contextErr(ctx); err != nil {
		return err
	}
	select {
	case l <- struct{}{}:
		return nil
	case <-doneOf(ctx):
		return ctx.Err()
	}
}

func (s *Store) lockWriter(ctx context.Context) error {
	if tryLock(s.writer) {
		return nil
	}
	s.lockWaiters.Add(1)
	defer s.lockWaiters.Add(-1)
	return lock(ctx, s.writer)
}

// HasWaiters says whether a goroutine waits for the writer lock: its holder may then release it
// early.
func (s *Store) HasWaiters() bool { return s.lockWaiters.Load() > 0 }

// Commits counts the commits since the store was opened.
func (s *Store) Commits() uint64 { return s.commits.Load() }

func (s *Store) unlockWriter() { <-s.writer }

func (s *Store) walOptions() wal.Options {
	return wal.Options{
		KeepFree: s.checkpointer.spareSegments, FirstSegmentBytes: s.o.LeastRoom,
		FS: s.o.FS, Path: s.path, StoreID: s.pg.StoreID(), SegmentSize: s.pg.LastMeta().SegmentSize,
		Rand: s.o.Rand, Inline: s.o.Inline, NoDirect: s.o.NoDirect, OnGroup: s.o.Events.Group,
		CheckIdentity: s.pg.CheckIdentity,
		SyncRefs:      s.pg.SyncExtents, FreeSpace: s.checkpointer.makeLogSpace,
	}
}

// startLog creates the log of this session, before its first change. Until then a clean store is
// one file.
//
// Crash order: the segment is durable before the meta page that says "there is a log from here on",
// and that meta page is durable before the first record. So recovery distinguishes a missing
// segment from a clean close. A crash may leave an older meta page: the pages of its state stay
// untouched until this function has overwritten it.
func (s *Store) startLog() error {
	if err := s.pg.CheckIdentity(); err != nil {
		return s.fail(err)
	}
	log, err := wal.Create(s.walOptions(), s.nextSegment, uint32(s.durable))
	if pager.NoSpace(err) && s.checkpointer.makeLogSpace() {
		log, err = wal.Create(s.walOptions(), s.nextSegment, uint32(s.durable))
	}
	if err != nil {
		if pager.NoSpace(err) {
			return s.spaceError(err)
		}
		if errors.Is(err, vfs.ErrNoFiles) {
			return err
		}
		return s.fail(err)
	}
	// The first change may need no page, but its replay does.
	if err := s.pg.Alloc.EnsureReserve(); err != nil {
		return errors.Join(s.spaceError(err), log.Close(true))
	}
	if err := s.beginIn(log); err != nil {
		return errors.Join(err, log.Close(false))
	}
	s.log, s.started = log, true
	s.queue.start(log)
	return nil
}

// beginIn writes the meta page that says "there is a log from here on", of a log without records.
func (s *Store) beginIn(log *wal.Log) error {
	err := s.checkpointer.overwriteMeta(func(m *pager.Meta) {
		m.Clean, m.LogStart, m.LogDurable = false, uint64(log.End()), uint64(log.End())
	})
	if err != nil {
		return s.fail(err)
	}
	log.SetFollows(uint32(s.durable))
	return nil
}

// Sync makes every commit so far durable, those with NoSync too.
func (s *Store) Sync() error {
	s.open.Add(1)
	defer s.open.Add(-1)
	if err := s.canWrite(); err != nil {
		return err
	}
	log := s.queue.sessionLog()
	if log == nil {
		return nil
	}
	if err := log.Sync(); err != nil {
		return s.logError(err)
	}
	s.queue.makeVisible()
	return nil
}

// Failed is the cause of the sticky failure; nil if the store takes writes.
func (s *Store) Failed() error {
	if f := s.failed.Load(); f != nil {
		return f.err
	}
	return nil
}

// Path of the main file.
func (s *Store) Path() string { return s.path }

// PageSize in bytes.
func (s *Store) PageSize() int { return s.pg.PageSize() }

// Recovery describes what Open found.
func (s *Store) Recovery() Recovery { return s.recovery }
