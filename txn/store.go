package txn

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/mapfault"
	"github.com/ebbkv/ebb/internal/memlimit"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// Store is one open store: its newest version, the versions that wait to be seen, and the snapshots
// that are held.
//
// Locks, in the order in which they are taken: upkeep (one checkpoint, close or bulk load at a
// time), writer (the one write transaction, and everything that allocates pages), what its hands
// share, queueMu, those of the undo. No lock is held while the disk is busy, except upkeep, and the
// writer lock where space has to be reserved or a transaction is larger than the cache.
type Store struct {
	o     Options
	path  string
	pg    *pager.Pager
	start time.Time // monotonic zero of reader ages

	state  atomic.Int32
	failed atomic.Pointer[failure]
	open   atomic.Int64 // write transactions begun and not ended, waiting ones included
	// lockWaiters counts those who wait for the writer lock, upkeep included.
	lockWaiters atomic.Int64

	visible atomic.Pointer[version]
	readers snapshots

	maintenanceMu chan struct{} // lock with a context
	writer        chan struct{} // lock with a context
	metaWritten   pager.Epoch   // newest checkpoint whose meta page may be in the file; guarded by upkeep

	// The writer lock guards the fields below.
	w       writer
	head    *version
	table   tree.Tree           // the tree table as of the last capture
	changed map[TreeID]struct{} // trees that the tree table does not tell of yet
	serial  uint64              // of versions and owners
	stamps  uint64              // see Tx.Stamp
	epoch   pager.Epoch         // that pages are born in: the number of the next checkpoint
	durable pager.Epoch         // newest durable checkpoint
	// of the checkpoint that the store was opened with, and of no page born since; set by Open,
	// then read-only
	openedEpoch     pager.Epoch
	started         bool          // there is a log
	replacedPages   uint64        // pages of the checkpoint captured that commits have freed since
	freedByVersion  deferredFrees // in the order of the versions that freed them
	awaitCheckpoint deferredFrees // for a checkpoint
	// pages that patches change: for the next checkpoint, which writes the patched ones
	deltaBases        deferredFrees
	oldDeltaBases     deferredFrees // such pages, once it has; empty when it is over
	oldDeltaSerial    uint64        // the first version whose readers ask for none of patched
	reusable          deferredFrees // free, to be counted as such
	reclaimableFrames []reclaimableFrames
	pinnedBySnapshot  map[uint64][]deferredFree
	pinnedPages       int64
	snapshotBuf       []uint64
	packed            int    // pages written by checkpointLocked, for the event of Close
	capturedSer       uint64 // serial of the version that was captured last
	nextSegment       uint64
	logOrder          bool // what replay applies is not sorted; for Open
	obsolete          obsoleteSegments
	refusal           refusal
	segment           int64 // size of the log's segments; set by Open, then read-only

	// queueMu guards the fields below. log is also safe to use for the holder of the writer lock,
	// and for whoever has held it since the log was started.
	queueMu sync.Mutex
	queue   []*version
	log     *wal.Log
	// durableSeq is a commit that is durable, and every newer one that is was when it became
	// visible: see durableCommit.
	durableSeq uint64

	framesAvailable broadcast           // frames came back
	job             atomic.Pointer[job] // of hands, that others may take part in; nil: none
	checkpointing   atomic.Bool         // one was started by a committer
	retryAt         atomic.Int64        // volume of the log before which no failed checkpoint is tried again
	// of checkpoints that committers have started, and of what an Open has left to remove
	background waitGroup

	statsMu sync.Mutex // guards last
	last    Stats      // as of the last call of Stats

	closingMark func(stored int64) (mark int64, needed bool) // see OnClose; set before the store is used

	recovery      Recovery
	foundLog      int64 // bytes of the log beside a store that was opened read-only; set by Open
	commits       atomic.Uint64
	checkpoints   atomic.Uint64
	logSince      atomic.Int64 // volume of the log at the last capture
	refBytesSince atomic.Int64 // bytes of values that the log names since then
	// the same of the records before it, until the checkpoint that was captured there is durable
	refBytesBefore atomic.Int64
	filledBytes    atomic.Int64 // bytes of leaves that rows in order have filled since the last capture
	fileBytes      atomic.Int64 // of the last checkpoint
}

const (
	stateOpen    = iota
	stateClosing // Close looks whether anybody still uses the store; then it is one of the others
	stateClosed
)

// Defaults and bounds of options.
const (
	DefaultPageSize    = 4096
	MostCacheBytes     = 384 << 20 // the default of CacheBytes, where there is enough memory
	cacheShare         = 4         // else the default is a quarter of what there is
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
		if o.MaxBytes > 0 { // the log counts too, and has several segments
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
		maintenanceMu: make(chan struct{}, 1), writer: make(chan struct{}, 1),
		changed: map[TreeID]struct{}{}, pinnedBySnapshot: map[uint64][]deferredFree{}, serial: 1,
	}
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
	if ctx == nil {
		l <- struct{}{}
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
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

// HasWaiters says whether somebody waits for the writer lock. Its holder asks, who can give way.
func (s *Store) HasWaiters() bool { return s.lockWaiters.Load() > 0 }

// Commits counts the commits since the store was opened.
func (s *Store) Commits() uint64 { return s.commits.Load() }

func (s *Store) unlockWriter() { <-s.writer }

func (s *Store) walOptions() wal.Options {
	keep := 0
	if s.o.MaxBytes > 0 { // what the log keeps, the main file cannot have
		keep = max(1, int(s.o.MaxBytes/16/s.pg.LastMeta().SegmentSize))
	}
	return wal.Options{
		KeepFree: keep, FirstSegmentBytes: s.o.LeastRoom,
		FS: s.o.FS, Path: s.path, StoreID: s.pg.StoreID(), SegmentSize: s.pg.LastMeta().SegmentSize,
		Rand: s.o.Rand, Inline: s.o.Inline, NoDirect: s.o.NoDirect, OnGroup: s.o.Events.Group,
		CheckIdentity: func() error { return replaced(s.pg.CheckIdentity()) },
		SyncRefs:      s.pg.SyncExtents, FreeSpace: s.makeLogSpace,
	}
}

// startLog makes the log of this session, with the first change. Until then a clean store is one
// file.
//
// Crash order: the segment is durable before the meta page that says "there is a log from here on",
// and that one is durable before the first record. So a missing segment is told from a clean close,
// and whatever older meta page a crash leaves, the pages of its state are not touched before it is
// overwritten here.
func (s *Store) startLog() error {
	if err := s.pg.CheckIdentity(); err != nil {
		return s.fail(replaced(err))
	}
	if err := s.waitObsolete(); err != nil {
		return err
	}
	log, err := wal.Create(s.walOptions(), s.nextSegment, uint32(s.durable))
	if pager.NoSpace(err) && s.makeLogSpace() {
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
	// Not every change takes a page, but the next open does, if it has to carry one out.
	if err := s.pg.EnsureReserve(); err != nil {
		return errors.Join(s.spaceError(err), log.Close(true))
	}
	if err := s.beginIn(log); err != nil {
		return errors.Join(err, log.Close(false))
	}
	s.queueMu.Lock()
	s.log = log
	s.queueMu.Unlock()
	s.started = true
	return nil
}

// beginIn writes the meta page that says "there is a log from here on" of one that has no record
// yet.
func (s *Store) beginIn(log *wal.Log) error {
	m := s.pg.LastMeta()
	m.Epoch, m.Clean, m.LogStart, m.LogDurable = s.epoch, false, uint64(log.End()), uint64(log.End())
	if err := s.pg.WriteMeta(m); err != nil {
		return s.fail(err)
	}
	s.durable, s.epoch = s.epoch, s.epoch+1
	log.SetFollows(uint32(s.durable))
	return nil
}

func replaced(err error) error {
	if errors.Is(err, pager.ErrReplaced) {
		return fmt.Errorf("%w: %w", ErrReplaced, err)
	}
	return err
}

// Sync makes every commit so far durable, those with NoSync too.
func (s *Store) Sync() error {
	s.open.Add(1)
	defer s.open.Add(-1)
	if err := s.canWrite(); err != nil {
		return err
	}
	log := s.sessionLog()
	if log == nil {
		return nil
	}
	if err := log.Sync(); err != nil {
		return s.logError(err)
	}
	s.makeVisible()
	return nil
}

// sessionLog is the log, nil before the session's first change, for who does not hold the writer
// lock.
func (s *Store) sessionLog() *wal.Log {
	s.queueMu.Lock()
	defer s.queueMu.Unlock()
	return s.log
}

// Failed is the first cause why the store takes no more writes; nil if it is healthy.
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

// MaxKey is the longest key of any tree, in bytes.
func (s *Store) MaxKey() int { return tree.MaxKey(s.pg.PageSize()) }

// ReadOnly says whether the store was opened so.
func (s *Store) ReadOnly() bool { return s.o.ReadOnly }

// Recovery tells what Open found.
func (s *Store) Recovery() Recovery { return s.recovery }

// Close makes everything durable, leaves one file, and lets it go. While transactions are open it
// is ErrTxnsOpen and the store stays usable. After a failure nothing more is written. On a disk
// that is too full for the last checkpoint the log stays too, and the next Open replays it.
func (s *Store) Close() (err error) {
	if !s.isOpen() {
		return nil
	}
	if s.open.Load() > 0 {
		return ErrTxnsOpen
	}
	s.background.wait()
	_ = lock(nil, s.maintenanceMu)
	defer func() { <-s.maintenanceMu }()
	if !s.state.CompareAndSwap(stateOpen, stateClosing) {
		return nil
	}
	if n, _ := s.readers.stats(0); n > 0 || s.open.Load() > 0 {
		s.state.Store(stateOpen)
		return ErrTxnsOpen
	}
	s.state.Store(stateClosed)
	defer func() { // also when a function that is told of a failure panics
		err = errors.Join(err, s.pg.Close())
		s.statsMu.Lock()
		s.last.FrameBytes = 0
		s.statsMu.Unlock()
	}()
	return s.shut()
}

// isOpen says whether the store is open. A Close that is about to find out is waited for: who comes
// meanwhile must not be told of an end that does not follow. That takes no longer than a look at
// the readers.
func (s *Store) isOpen() bool {
	for {
		switch s.state.Load() {
		case stateOpen:
			return true
		case stateClosed:
			return false
		}
		runtime.Gosched()
	}
}

// Abandon is Close that does not mind open read transactions: their memory stays as it is, so that
// what they look at does not vanish under them; a read of theirs may end in an error. The caller
// has rolled back the write transaction; one that waits for the lock gets ErrClosed.
func (s *Store) Abandon() (err error) {
	s.background.wait()
	_ = lock(nil, s.maintenanceMu)
	defer func() { <-s.maintenanceMu }()
	if !s.state.CompareAndSwap(stateOpen, stateClosed) {
		return nil
	}
	defer func() { err = errors.Join(err, s.pg.CloseFile()) }() // as in Close
	return s.shut()
}

// shut ends the session: the last checkpoint, and the log. Upkeep lock; the state is closed.
func (s *Store) shut() error {
	var last lastCheckpoint
	err := s.shutLocked(&last)
	if last.tells() && s.o.Events.Checkpoint != nil {
		s.o.Events.Checkpoint(last.pages, last.took, last.err)
	}
	return err
}

// lastCheckpoint is what became of the checkpoint that Close writes, with those that pack the file
// before it. c is nil if it wrote none.
type lastCheckpoint struct {
	c     *checkpointState
	pages int
	took  time.Duration
	err   error
}

// tells says whether it wrote pages, or failed. After a checkpoint it may have only a meta page to
// write.
func (l *lastCheckpoint) tells() bool { return l.c != nil && (l.pages > 0 || l.err != nil) }

// write is closeClean, timed and counted.
func (l *lastCheckpoint) write(s *Store) error {
	began := time.Now()
	s.packed = 0
	err := mapfault.Guard(s.finalFault, func() (err error) {
		l.c, err = s.closeClean()
		return err
	})
	if l.pages = s.packed; l.c != nil {
		l.pages += len(l.c.pages.Dirty)
	}
	if l.took, l.err = time.Since(began), err; err == nil {
		s.durable = l.c.meta.Epoch
		if l.tells() {
			s.checkpoints.Add(1)
		}
	}
	return err
}

func (s *Store) shutLocked(last *lastCheckpoint) error {
	_ = s.lockWriter(nil)
	defer s.unlockWriter()
	removed := false
	defer func() { s.lastStats(removed) }()
	var errs []error
	if err := s.waitObsolete(); err != nil {
		errs = append(errs, err)
	}
	full := false
	switch {
	case s.failed.Load() != nil || s.o.ReadOnly:
	case s.started:
		err := last.write(s)
		if full = pager.NoSpace(err) && s.failed.Load() == nil; !full {
			errs = append(errs, err)
		}
	case len(errs) == 0:
		errs = append(errs, s.storeMark())
	}
	log := s.log
	if err := s.failure(); err != nil && len(errs) == 0 {
		errs = append(errs, err) // What Close promises was not done, even if nobody has met the failure yet.
	}
	if log != nil {
		if f := s.failed.Load(); f != nil {
			log.Fail(f.err)
		}
		clean := s.failed.Load() == nil && errors.Join(errs...) == nil && !full
		err := log.Close(clean)
		if err == nil && clean { // Not before: as long as the log is there, the next open may need the room.
			removed = true
			err = s.pg.TrimFile(true)
		}
		if err != nil && s.failed.Load() == nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
