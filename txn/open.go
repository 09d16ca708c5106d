package txn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// Open opens the store at path, creating it unless MustExist or ReadOnly, and recovers it if it was not closed cleanly.
// What it shows afterwards is durable; a read-only store is recovered in memory and no byte is written.
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

func open(path string, o Options) (*Store, error) {
	created, err := ensure(path, o)
	if err != nil {
		return nil, err
	}
	// The meta page that recovery would rather start from may turn out not to have its log any more: a second try with
	// the other one, on everything opened afresh.
	var first error
	for try := 0; try < 2; try++ {
		s := newStore(path, o)
		again, err := s.load(try)
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
	if created {
		first = errors.Join(first, o.FS.Remove(path)) // an Open that failed leaves no file behind
	}
	return nil, first
}

// ensure makes the store file if there is none, and says so.
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
		return false, badfile.At(path, -1, "main file is missing or empty, but log segments are there: %s", found[0])
	}
	if absent && (o.ReadOnly || o.MustExist) {
		return false, fmt.Errorf("open %s: %w", path, err)
	}
	if !absent && o.ReadOnly {
		return false, badfile.At(path, 0, "file is empty")
	}
	m := pager.Meta{PageSize: o.PageSize, SegmentSize: o.SegmentSize, NextTree: uint64(firstTree), Seq: 0}
	if m.PageSize == 0 {
		m.PageSize = DefaultPageSize
	}
	if m.PageSize < pager.MinPageSize || m.PageSize > pager.MaxPageSize || m.PageSize&(m.PageSize-1) != 0 {
		return false, fmt.Errorf("%w: %d is not a power of two from %d to %d", ErrPageSize, m.PageSize, pager.MinPageSize, pager.MaxPageSize)
	}
	binary.LittleEndian.PutUint64(m.StoreID[:], o.Rand())
	binary.LittleEndian.PutUint64(m.StoreID[8:], o.Rand())
	m.LogStart = uint64(wal.First(m.SegmentSize, 1))
	m.LogDurable = m.LogStart
	if err := pager.Create(o.FS, path, m); err != nil {
		return false, noSpace(err)
	}
	return true, nil
}

func noSpace(err error) error {
	if isNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// firstTree leaves room below for trees with a fixed meaning.
const firstTree TreeID = 4

// load opens the files and recovers from the try-th best meta page; again says that another one is worth a try.
func (s *Store) load(try int) (again bool, err error) {
	pg, metas, err := pager.Open(pager.Options{
		FS: s.o.FS, Path: s.path, ReadOnly: s.o.ReadOnly, NoMap: s.o.NoMap, Cache: s.o.CacheBytes, MaxBytes: s.o.MaxBytes,
		CheckPage: tree.CheckPage,
	})
	if err != nil {
		switch {
		case errors.Is(err, pager.ErrNotStore):
			return false, fmt.Errorf("%w: %s", ErrNotDB, s.path)
		case errors.Is(err, pager.ErrVersion):
			return false, fmt.Errorf("%w: %w", ErrVersion, err)
		}
		return false, err
	}
	s.pg = pg
	again, err = s.recover(metas, try)
	if err != nil {
		err = errors.Join(err, pg.Close())
	}
	return again, err
}

// recover chooses a meta page, replays the log after it, and makes durable what that showed.
//
// It starts from the oldest meta page whose log is complete (R4): after a failed sync the newest may exist only in the
// page cache, and the oldest state's pages are untouched as long as its log is there. What it writes goes to pages
// which that state does not use, and to the other meta page; so a crash on the way is a crash before.
func (s *Store) recover(metas [2]*pager.Meta, try int) (again bool, err error) {
	var order []*pager.Meta
	for _, m := range metas {
		if m != nil {
			order = append(order, m)
		}
	}
	slices.SortFunc(order, func(a, b *pager.Meta) int { return int(int64(a.Epoch) - int64(b.Epoch)) })
	newest := order[len(order)-1]
	if s.o.PageSize != 0 && s.o.PageSize != newest.PageSize {
		return false, fmt.Errorf("%w: the store has pages of %d bytes, the options ask for %d", ErrPageSize, newest.PageSize, s.o.PageSize)
	}
	if len(order) == 2 && (order[0].StoreID != order[1].StoreID || order[0].PageSize != order[1].PageSize) {
		return false, badfile.Page(s.path, 0, 0, "the two meta pages belong to different stores")
	}
	if newest.Epoch == 1 && !s.o.ReadOnly {
		// No session has written to this store: its name may not be durable yet, and a segment whose name is would then
		// be all that a crash leaves.
		if err := s.o.FS.SyncDir(filepath.Dir(s.path)); err != nil {
			return false, fmt.Errorf("sync directory of %s: %w", s.path, err)
		}
	}
	found, err := wal.Scan(wal.Options{
		FS: s.o.FS, Path: s.path, StoreID: newest.StoreID, SegmentSize: newest.SegmentSize, Rand: s.o.Rand, NoDirect: s.o.NoDirect,
	})
	if err != nil {
		return false, err
	}
	var candidates []*pager.Meta
	var reasons []error
	for _, m := range order {
		err := usable(m, newest, found)
		switch {
		case err == nil:
			candidates = append(candidates, m)
		case corrupt(err):
			reasons = append(reasons, err)
		default:
			return false, err
		}
	}
	if len(candidates) == 2 {
		// Replay writes to pages that the newer state may use. So there is no way back to that one from half a replay.
		err := proveLog(candidates[0], newest, found)
		switch {
		case corrupt(err):
			reasons, candidates = append(reasons, err), candidates[1:]
		case err != nil:
			return false, err
		}
	}
	if try >= len(candidates) {
		return false, errors.Join(append(lostMeta(s.path, metas, newest), reasons...)...)
	}
	touched, err := s.recoverFrom(candidates[try], newest, len(order) == 2, found)
	return corrupt(err) && !touched && try+1 < len(candidates), err
}

// lostMeta names the meta page that is not valid, if one is: where the other one's log is gone, that page is what is
// damaged, and the log is where it should be. The second page of a store that no session has written to is empty.
func lostMeta(path string, metas [2]*pager.Meta, newest *pager.Meta) (errs []error) {
	for slot, m := range metas {
		if m == nil && newest.Epoch > 1 {
			errs = append(errs, badfile.Page(path, uint64(slot), int64(slot)*int64(newest.PageSize), "meta page is not valid"))
		}
	}
	return errs
}

// proveLog reads the log after m to its end without applying it.
func proveLog(m, newest *pager.Meta, found *wal.Found) error {
	if noLog(m, newest, found) {
		return nil
	}
	seq := m.Seq
	_, err := found.Replay(wal.LSN(m.LogStart), durableLog(m, newest, found), func(payload []byte, _ wal.LSN) error {
		seq++
		return nil
	})
	if err != nil {
		return err
	}
	return sameEnd(m, newest, found, seq)
}

// retried says that the newest meta page is of an earlier try of this very recovery: closed cleanly, with a log that
// begins where no segment has been yet.
func retried(m, newest *pager.Meta, found *wal.Found) bool {
	return newest != m && newest.Clean && found.Next() <= newest.LogStart/uint64(newest.SegmentSize)
}

// durableLog is the position up to which the log after m was durable for certain. A page of an earlier try tells of no
// position in this log, only of the commit that it ends with: see sameEnd.
func durableLog(m, newest *pager.Meta, found *wal.Found) wal.LSN {
	if retried(m, newest, found) {
		return wal.LSN(m.LogDurable)
	}
	return wal.LSN(max(m.LogDurable, newest.LogDurable))
}

// sameEnd holds the last commit that replay found against what an earlier try of the recovery found.
func sameEnd(m, newest *pager.Meta, found *wal.Found, seq uint64) error {
	if retried(m, newest, found) && seq != newest.Seq {
		return badfile.At("log", -1, "it ends with commit %d, an earlier recovery found commit %d", seq, newest.Seq)
	}
	return nil
}

// noLog says that m tells of a store that was closed, and that no segment of a later session is there.
func noLog(m, newest *pager.Meta, found *wal.Found) bool {
	segments := found.Segments()
	none := len(segments) == 0 || segments[len(segments)-1].Number < m.LogStart/uint64(m.SegmentSize)
	return m.Clean && m == newest && none
}

// usable says why recovery cannot start from m; nil if it can.
func usable(m, newest *pager.Meta, found *wal.Found) error {
	if noLog(m, newest, found) {
		return nil
	}
	return found.Chain(wal.LSN(m.LogStart))
}

// recoverFrom makes the state of m, and the log after it, the store's. touched says that the file may have
// changed; two, that both meta pages are valid.
func (s *Store) recoverFrom(m, newest *pager.Meta, two bool, found *wal.Found) (touched bool, err error) {
	if err := s.pg.Start(m); err != nil {
		return false, err
	}
	v := &version{
		serial: 1, seq: m.Seq, base: m.Epoch, mark: m.ClockMark, nextID: TreeID(m.NextTree), trash: m.NextTrash,
	}
	s.table = tree.Tree{Root: m.Root, Depth: m.RootDepth, Rows: m.RootRows}
	if err := s.loadTrees(v); err != nil {
		return false, err
	}
	s.segment = m.SegmentSize
	s.head = v
	s.visible.Store(v)
	s.durable, s.epoch = newest.Epoch, newest.Epoch+1
	s.nextSegment = max(found.Next(), m.LogStart/uint64(m.SegmentSize), newest.LogStart/uint64(m.SegmentSize))
	s.fileBytes.Store(int64(m.Pages) * int64(m.PageSize))
	s.recovery = Recovery{MetaEpoch: uint64(m.Epoch), Seq: m.Seq, Clean: true}
	if noLog(m, newest, found) {
		err := s.leftovers(found)
		if err == nil && !s.o.ReadOnly {
			// No segment is left. The log goes on where this page says: a crash that leaves a new segment, but no page
			// that tells of it, must find the segment where the chain begins.
			s.nextSegment = m.LogStart / uint64(m.SegmentSize)
		}
		return false, err
	}
	if two {
		if newest, err = s.fence(m, newest); err != nil {
			return true, noSpace(err)
		}
	}
	// An epoch that no page of an earlier try can have: a page of that try would pass for one of this.
	s.epoch = newest.Epoch + 2
	s.recovery.Clean = false
	w := &s.w
	w.begin()
	w.silent = true
	s.pg.Overdraft(true) // what fitted once shall not be refused now
	tail, err := found.Replay(wal.LSN(m.LogStart), durableLog(m, newest, found), func(payload []byte, lsn wal.LSN) error {
		if err := s.replay(w, payload); err != nil {
			if errors.Is(err, errBadRedo) || isNoTree(err) {
				return badfile.At(s.path+" (log)", int64(lsn), "record at LSN %d: %v", lsn, err)
			}
			return err
		}
		s.recovery.CommitsReplayed++
		return nil
	})
	if err != nil {
		return true, noSpace(err)
	}
	if err := sameEnd(m, newest, found, s.head.seq); err != nil {
		return true, err
	}
	s.recovery.BytesDropped = tail.Dropped
	s.recovery.BytesReplayed = int64(tail.End) - int64(m.LogStart)
	if tail.Commits > 0 && newest.LogStart == m.LogStart && m.Clean && !newest.Clean {
		// The newer page says the same as this one, and records were written after it: it is durable. Its place is
		// kept and this one's is used, so that no page is left that knows nothing of a log.
		s.pg.Prefer(newest)
	}
	v2 := w.upkeep()
	s.advance()
	s.recovery.Seq = v2.seq
	if s.o.ReadOnly {
		return true, nil
	}
	if err := s.settleRecovery(); err != nil {
		return true, noSpace(err)
	}
	return true, s.leftovers(found)
}

// fence takes the place of a meta page that is older than m and whose log is not complete. That it is not may be true of
// this boot only: segments whose removal or recycling failed to become durable come back with a power cut, and recovery
// would then start from the older page, whose state's pages are about to be overwritten here. The fence says what m says.
// One that is found may exist in the page cache only, and is written again. It returns the newest meta page.
func (s *Store) fence(m, newest *pager.Meta) (*pager.Meta, error) {
	found := newest.Clean == m.Clean && newest.LogStart == m.LogStart && newest.Seq == m.Seq // true of m itself
	if !found || s.o.ReadOnly {
		return newest, nil
	}
	same := *m
	same.Epoch = newest.Epoch + 1
	if err := s.pg.WriteMeta(same); err != nil {
		return nil, err
	}
	same = s.pg.LastMeta()
	s.durable = same.Epoch
	return &same, nil
}

// settleRecovery makes the replayed state durable: its pages first, then a clean meta page. Only then may the log go.
func (s *Store) settleRecovery() error {
	if err := s.saveTrees(); err != nil {
		return err
	}
	pages, err := s.pg.CaptureState(s.epoch)
	if err != nil {
		return err
	}
	if err := s.pg.Write(pages, nil); err != nil {
		return err
	}
	meta := s.pg.LastMeta()
	meta.Epoch, meta.Clean, meta.Pages, meta.FreeDir = s.epoch, true, pages.Pages, pages.FreeDir
	meta.Root, meta.RootDepth, meta.RootRows = s.table.Root, s.table.Depth, s.table.Rows
	meta.NextTree, meta.NextTrash = uint64(s.head.nextID), s.head.trash
	meta.Seq, meta.ClockMark = s.head.seq, s.head.mark
	meta.LogStart = uint64(wal.First(meta.SegmentSize, s.nextSegment))
	meta.LogDurable = meta.LogStart
	if err := s.pg.WriteMeta(meta); err != nil {
		return err
	}
	for _, ref := range pages.Freed {
		s.waiting = append(s.waiting, freedRun{id: ref.Pgid, n: 1, epoch: ref.Epoch, until: s.epoch})
	}
	s.epoch++
	c := &capture{pages: pages, meta: meta, v: s.head}
	s.capturedSer = s.head.serial
	return s.published(c)
}

// leftovers removes files that nothing needs: segments that an unsynced removal brought back, a half made main file.
func (s *Store) leftovers(found *wal.Found) error {
	if s.o.ReadOnly {
		return nil
	}
	if err := found.Remove(wal.First(s.pg.LastMeta().SegmentSize, s.nextSegment)); err != nil {
		return err
	}
	return pager.RemoveTemp(s.o.FS, s.path)
}

// loadTrees reads the tree table.
func (s *Store) loadTrees(v *version) error {
	r := tableReader{s: s, base: v.base}
	var c tree.Cursor
	c.Reset(r, s.table)
	rows := uint64(0)
	for ok := c.First(); ok; ok = c.Next() {
		key, row := c.Key(), c.Value()
		if len(key) != 8 {
			return badfile.Page(s.path, uint64(s.table.Root.Pgid), -1, "tree table has a key of %d bytes", len(key))
		}
		t, err := decodeTree(row)
		if err != nil {
			return badfile.Page(s.path, uint64(s.table.Root.Pgid), -1, "%v", err)
		}
		s.stamps++
		v.trees.set(treeState{TreeID(binary.BigEndian.Uint64(key)), t, s.stamps})
		rows++
	}
	if err := c.Err(); err != nil {
		return err
	}
	if _, ok := v.trees.get(CatalogTree); !ok {
		if rows > 0 {
			return badfile.Page(s.path, uint64(s.table.Root.Pgid), -1, "tree table lacks the catalog")
		}
		v.trees.set(treeState{id: CatalogTree}) // a new store
		s.changed[CatalogTree] = struct{}{}
	}
	return nil
}

// tableReader reads pages of a durable state.
type tableReader struct {
	s    *Store
	base pager.Epoch
}

func (r tableReader) PageSize() int                                  { return r.s.pg.PageSize() }
func (r tableReader) Page(ref pager.Ref) ([]byte, error)             { return r.s.pg.Page(ref, r.base) }
func (r tableReader) Extent(ref pager.Ref, size int) ([]byte, error) { return r.s.pg.Extent(ref, size) }

var errBadRedo = errors.New("redo does not decode")

// replay applies one commit to the state before it. The clock is not looked at.
func (s *Store) replay(w *writer, payload []byte) error {
	if len(payload) < redoHead {
		return fmt.Errorf("%w: %d bytes", errBadRedo, len(payload))
	}
	seq := binary.LittleEndian.Uint64(payload)
	mark := int64(binary.LittleEndian.Uint64(payload[8:]))
	if seq != s.head.seq+1 {
		return fmt.Errorf("%w: commit %d follows commit %d", errBadRedo, seq, s.head.seq)
	}
	for rest := payload[redoHead:]; len(rest) > 0; {
		if err := w.spill(); err != nil {
			return err
		}
		r, more, err := decodeRedo(rest)
		if err != nil {
			return fmt.Errorf("%w: %w", errBadRedo, err)
		}
		if err := w.apply(r); err != nil {
			return err
		}
		rest = more
	}
	h := *s.head // nobody has seen it yet: the version of a store that is being opened
	h.seq, h.mark = seq, mark
	s.head = &h
	return nil
}

func (w *writer) apply(r redo) error {
	if r.id >= trashBit || r.id == 0 {
		return fmt.Errorf("%w: tree %d", errBadRedo, r.id)
	}
	key := r.op == opPut || r.op == opPutTag || r.op == opDelete || r.op == opSetTag
	if key && (len(r.key) == 0 || len(r.key) > tree.MaxKey(w.PageSize()) || len(r.value) > tree.MaxValue) {
		return fmt.Errorf("%w: key of %d bytes, value of %d", errBadRedo, len(r.key), len(r.value))
	}
	var err error
	switch r.op {
	case opPut, opPutTag:
		_, err = w.put(r.id, r.key, r.value, r.tag)
	case opDelete:
		_, err = w.delete(r.id, r.key)
	case opRange:
		_, err = w.deleteRange(r.id, r.key, r.value)
	case opSetTag:
		_, err = w.setTag(r.id, r.key, r.tag)
	case opNextTree:
		w.nextID = max(w.nextID, r.id)
	default:
		err = w.shape(r.op, r.id)
	}
	return err
}

func contextErr(ctx context.Context) error {
	if ctx == nil {
		return nil
	}
	return ctx.Err()
}
