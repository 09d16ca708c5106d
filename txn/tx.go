package txn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// Tx is one transaction: a snapshot, and the changes of a write transaction. It belongs to one
// goroutine at a time.
type Tx struct {
	pager.View // of v

	s    *Store
	v    *version      // state that it began from; its own after Commit
	slot *snapshotSlot // holds v
	w    *writer       // nil in a read transaction, and after the end
	err  error         // first I/O or corruption error: the transaction has failed
	done bool
	read bool // read-only
}

// Begin starts a transaction. A write transaction waits for the writer lock, bounded by ctx (nil:
// no bound); a read transaction never waits.
func (s *Store) Begin(ctx context.Context, writable bool) (*Tx, error) {
	tx := new(Tx)
	if !writable {
		return tx, s.BeginRead(tx, time.Now())
	}
	return tx, s.beginWrite(ctx, tx)
}

// BeginRead starts a read transaction in the caller's memory, which must be zero or a transaction
// that has ended. at is the time, for its age; zero if it ends within the call that began it and
// needs none: reading the clock would be a tenth of a get.
func (s *Store) BeginRead(tx *Tx, at time.Time) error {
	now := noAge
	if !at.IsZero() {
		now = int64(at.Sub(s.start))
	}
	v, slot := s.readers.acquire(&s.queue.visible, &s.pg.Undo, now)
	if !s.isOpen() { // after acquire: Close scans the slots after it has changed the state
		slot.release()
		return ErrClosed
	}
	// Field by field: a literal is built elsewhere and copied.
	tx.s, tx.v, tx.slot, tx.w, tx.View = s, v, slot, nil, s.pg.Reader.View(v.base, v.serial)
	tx.err, tx.done, tx.read = nil, false, true
	return nil
}

func (s *Store) beginWrite(ctx context.Context, tx *Tx) error {
	s.open.Add(1)
	if err := s.lockForWrite(ctx); err != nil {
		s.open.Add(-1)
		return err
	}
	w := &s.w
	w.begin()
	*tx = Tx{View: w.View, s: s, v: s.head, w: w}
	w.tx, w.mayUndo = tx, true
	w.mayDelta = int64(s.pg.Alloc.UsedPages())*int64(s.pg.PageSize()) > s.checkpointer.fullFrames()
	return nil
}

// lockForWrite takes the writer lock of a store that can be written, with freed pages reclaimed, once
// there are frames and space.
func (s *Store) lockForWrite(ctx context.Context) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	if err := s.checkpointer.waitForFrames(ctx); err != nil {
		return err
	}
	if err := s.checkpointer.waitForLog(ctx); err != nil {
		return err
	}
	return s.awaitSpare(ctx)
}

// lockHousekept takes the writer lock of a store that can be written, with freed pages reclaimed.
func (s *Store) lockHousekept(ctx context.Context) error {
	if err := s.lockWriter(ctx); err != nil {
		return err
	}
	if err := s.canWrite(); err != nil {
		s.unlockWriter()
		return err
	}
	if _, err := s.reclaimer.reclaim(reclaimStep); err != nil {
		s.unlockWriter()
		return err
	}
	return nil
}

func (s *Store) canWrite() error {
	switch {
	case !s.isOpen():
		return ErrClosed
	case s.failed.Load() != nil:
		return s.failure()
	case s.o.ReadOnly:
		return ErrReadOnlyDB
	}
	return nil
}

// Seq is the commit number of the state that the transaction reads; after Commit, its own.
func (tx *Tx) Seq() uint64 { return tx.v.seq }

// Mark is the clock mark of the state that the transaction began from, or the argument of SetMark.
func (tx *Tx) Mark() int64 {
	if tx.w != nil {
		return tx.w.mark
	}
	return tx.v.mark
}

// SetMark sets the clock mark that is stored with the commit, in milliseconds. The mark is at the
// head of the commit's record: once a part of a large transaction is in the log SetMark has no
// effect, so that the log and a checkpoint have the same mark for a commit.
func (tx *Tx) SetMark(ms int64) {
	if tx.w != nil && tx.w.flushed == 0 {
		tx.w.mark = ms
	}
}

// SetDurability announces the durability of the commit, which decides how large values are logged.
// The default is Sync.
func (tx *Tx) SetDurability(d Durability) {
	if tx.w != nil {
		tx.w.relaxed = d == NoSync
	}
}

// Err is the transaction's first I/O or corruption error.
func (tx *Tx) Err() error { return tx.err }

// end marks the transaction as ended, or about to end: from now on its methods do not use the
// writer, which the next transaction may own. The caller still has to release the lock.
func (tx *Tx) end() (w *writer) {
	w, tx.w = tx.w, nil
	tx.done = true
	return w
}

// check returns the state error that every call returns first.
func (tx *Tx) check() error {
	if tx.done {
		return ErrTxnDone
	}
	return tx.err
}

// recordErr makes an error of the file or the machine sticky: every later call returns it. Errors
// of a full disk and of the caller are not sticky.
func (tx *Tx) recordErr(err error) error {
	if err == nil || errors.Is(err, ErrNoSpace) || errors.Is(err, ErrTxnTooBig) ||
		errors.Is(err, ErrNoTree) ||
		errors.Is(err, ErrReadOnly) || errors.Is(err, tree.ErrOrder) {
		return err
	}
	if tx.err == nil {
		tx.err = err
	}
	return err
}

// Page returns a verified page of the snapshot, with the changes of a write transaction. With Leaf,
// Extent and the methods of View it makes a transaction a btree.Reader.
func (tx *Tx) Page(ref pager.Ref) ([]byte, error) {
	if tx.w != nil {
		return tx.w.Page(ref)
	}
	return tx.View.Page(ref)
}

// Leaf is Page of a leaf that may have a delta.
func (tx *Tx) Leaf(ref pager.Ref) (b, changes []byte, err error) {
	if tx.w != nil {
		return tx.w.Leaf(ref)
	}
	return tx.View.Leaf(ref)
}

// Extent returns the bytes of a large value, valid until the transaction ends. A value that the
// transaction itself has written is copied: after a delete, or a rollback to a savepoint, its pages
// may be reused.
func (tx *Tx) Extent(ref pager.Ref, size int) ([]byte, error) {
	b, err := tx.View.Extent(ref, size)
	if err == nil && tx.w != nil && tx.s.pg.Pool.Owner(ref.Pgid) >= tx.w.firstOwner {
		b = bytes.Clone(b)
	}
	return b, err
}

// tree finds the current root of a tree.
func (tx *Tx) tree(id TreeID) (tree.Tree, bool) {
	return tx.trees().get(id)
}

// Get returns the value of a key, and its tag, 0 for none. The value is valid until the transaction
// ends: a write transaction returns a copy of a value that it may still change. A tree that does
// not exist is empty.
func (tx *Tx) Get(id TreeID, key []byte) (value []byte, tag int64, found bool, err error) {
	if err := tx.check(); err != nil {
		return nil, 0, false, err
	}
	t, _ := tx.tree(id)
	v, found, err := tree.Get(tx, t, key)
	if err != nil || !found {
		return nil, 0, false, tx.recordErr(err)
	}
	if tx.w != nil {
		v.Bytes = tx.w.copyValue(v.Bytes)
	}
	return v.Bytes, v.Tag, true, nil
}

// Info describes the row of a key without touching the bytes of its value.
func (tx *Tx) Info(id TreeID, key []byte) (Info, error) {
	if err := tx.check(); err != nil {
		return Info{}, err
	}
	t, _ := tx.tree(id)
	info, err := tree.GetInfo(tx, t, key)
	return info, tx.recordErr(err)
}

// Rank counts the keys of a tree that are below key; 0 if the tree does not exist. It costs one
// descent.
func (tx *Tx) Rank(id TreeID, key []byte) (rows uint64, err error) {
	if err := tx.check(); err != nil {
		return 0, err
	}
	t, _ := tx.tree(id)
	rows, err = tree.Rank(tx, t, key)
	return rows, tx.recordErr(err)
}

// RowsIn counts the keys of a tree in [lo, hi), where lo is below hi; nil is no bound. It costs two
// descents.
func (tx *Tx) RowsIn(id TreeID, lo, hi []byte) (rows uint64, err error) {
	below := uint64(0)
	if rows = tx.Rows(id); hi != nil {
		rows, err = tx.Rank(id, hi)
	}
	if err == nil && lo != nil {
		below, err = tx.Rank(id, lo)
	}
	return rows - below, err
}

// Rows counts the keys of a tree; 0 if it does not exist.
func (tx *Tx) Rows(id TreeID) uint64 {
	return tx.trees().find(id).t.Rows
}

// trees are those of the transaction, with its changes; none after its end.
func (tx *Tx) trees() *trees {
	switch {
	case tx.w != nil:
		return &tx.w.trees
	case tx.done:
		return &noTrees
	}
	return &tx.v.trees
}

var noTrees trees

// Exists says whether the tree exists.
func (tx *Tx) Exists(id TreeID) bool {
	_, ok := tx.tree(id)
	return ok
}

// Trees lists the trees in order, without dropped ones.
func (tx *Tx) Trees() (ids []TreeID) {
	tx.trees().from(0, func(id TreeID, _ tree.Tree) bool {
		if id < trashBit {
			ids = append(ids, id)
		}
		return id < trashBit
	})
	return ids
}

// Stamp changes whenever the content of the tree does, and identifies one content while the store
// is open: for caches. It is 0 if the tree does not exist.
func (tx *Tx) Stamp(id TreeID) uint64 {
	return tx.trees().find(id).stamp
}

// Rollback ends the transaction and discards its changes. After Commit or Rollback it does nothing.
// If Err is ErrUnknown afterwards, the submitted record could not be revoked: the next Open may
// replay it.
func (tx *Tx) Rollback() {
	if tx.done {
		return
	}
	w := tx.end()
	if w == nil {
		tx.slot.release()
		return
	}
	if pager.NoSpace(tx.err) {
		w.refused = tx.err
	}
	w.giveUp()
}

// giveUp rolls a write transaction back and releases the writer lock, even if a callback of the
// log's groups panics.
func (w *writer) giveUp() {
	defer func() {
		logged := w.flushed > 0
		w.rollback()
		if w.refused != nil {
			w.s.refused(w.refused)
		}
		w.s.unlockWriter()
		if logged { // Its part of the log counts like any other.
			w.s.checkpointer.startIfDue()
		}
		w.s.open.Add(-1)
	}()
	w.revoke()
}

func treeError(id TreeID) error { return fmt.Errorf("%w: %d", ErrNoTree, id) }

// corrupt says that err reports damaged bytes.
func corrupt(err error) bool { return errors.Is(err, badfile.ErrCorrupt) }
