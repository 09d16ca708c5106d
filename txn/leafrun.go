package txn

import (
	"bytes"
	"encoding/binary"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// Ascending puts behind all keys of a tree, in a transaction whose commit waits for no sync, fill
// leaves that are written to the main file at once. The record references these leaves and has the
// other puts in full: a bulk append is written once.
//
//	crash ...                        the files hold                      recovery
//	before the record is in the log  leaves without a reference          ignores them: free space
//	process killed after that        the record and its leaves           reads the leaves
//	power cut before the next sync   the record, or its leaves, or some  ends the log before the first record
//	                                 of them, or torn ones               with a leaf that fails its checksum
//	after the next sync              both: the main file is synced       reads the leaves; a leaf that fails
//	                                 before the log                      its checksum is damage
//
// Recovery copies the leaves: if the killed process had a failed sync, only the page cache may have
// them, and no later sync would write them. Writing them again in place might tear durable pages.
//
// A referenced leaf stays as it is until a checkpoint makes the record obsolete: even the
// transaction that built it copies it to change it, and its page stays allocated.

// Leaves of a run: the least, as the default of Options, and the most.
const (
	defaultLeavesFrom = 4
	leafRunMax        = 32
)

// canAppendLeafRun says whether changes are enough for a leaf run, and whether the first of them
// ascend.
func (tx *Tx) canAppendLeafRun(changes []Change) bool {
	w, s := tx.w, tx.s
	switch {
	case w == nil || tx.check() != nil || !w.relaxed || w.noLog || w.submitted.logged:
		return false
	case len(w.savepoints) > 0 || s.o.MaxBytes > 0 || len(changes) < 2*s.o.LeavesFrom:
		return false
	}
	for i := 1; i < min(len(changes), ApplyRows); i++ {
		if bytes.Compare(changes[i-1].Key, changes[i].Key) >= 0 {
			return false
		}
	}
	return atLeastBytes(changes, s.o.LeavesFrom*s.pg.PageSize())
}

// atLeastBytes says whether keys and values have at least so many bytes together.
func atLeastBytes(changes []Change, bytes int) bool {
	for i := range changes {
		if bytes -= len(changes[i].Key) + len(changes[i].Value); bytes <= 0 {
			return true
		}
	}
	return false
}

func (tx *Tx) isPastEnd(id TreeID, key []byte) (bool, error) {
	t, ok := tx.tree(id)
	if !ok {
		return false, nil // Apply returns the error
	}
	behind, err := tree.IsPastEnd(tx.w, t, key)
	return behind, tx.recordErr(err)
}

// appendLeafRun applies the changes, from the first on, that ascend behind all keys of the tree, if
// the insert cursor is at its last leaf. It returns their number.
func (tx *Tx) appendLeafRun(id TreeID, changes []Change) (n int, err error) {
	w, err := tx.change()
	if err != nil {
		return 0, err
	}
	f := w.insertCursor(id)
	if !f.Beyond(changes[0].Key) {
		return 0, nil
	}
	s, err := w.state(id)
	if err != nil {
		return 0, err
	}
	last := f.LastKey()
	n = f.Append(&s.t, changes)
	for i := range n {
		last = changes[i].Key
		if err := w.logPut(id, last, changes[i].Value, changes[i].Tag); err != nil {
			return 0, tx.abort(err)
		}
	}
	more := 0
	if n < len(changes) && bytes.Compare(last, changes[n].Key) < 0 {
		if more, err = w.buildLeaves(s, changes[n:], last); err != nil {
			return 0, tx.abort(err)
		}
	}
	if n+more > 0 {
		w.set(id, s.t)
	}
	if more == 0 {
		w.cursorsAt = w.mods
	}
	return n + more, nil
}

// buildLeaves builds leaves from the changes, from the first on, that ascend behind the last key of
// the tree, as long as they fill enough leaves. It returns the number of changes.
func (w *writer) buildLeaves(s *treeState, changes []Change, last []byte) (n int, err error) {
	for {
		leaves, rows := w.fullLeaves(changes[n:])
		if leaves < w.s.o.LeavesFrom || w.ensureTxnBytes(leaves*w.PageSize()) != nil {
			return n, nil
		}
		done, err := w.logLeafRun(s, changes[n:], leaves, last)
		if err != nil || !done {
			return n, err
		}
		n += rows
		last = changes[n-1].Key
	}
}

// fullLeaves fills leaves of leafRunBuf from the changes, and returns the number of full leaves and
// of their rows.
func (w *writer) fullLeaves(changes []Change) (leaves, rows int) {
	size := w.PageSize()
	if w.leafRunBuf == nil {
		w.leafRunBuf = make([]byte, leafRunMax*size)
	}
	for leaves < leafRunMax {
		b := w.leafRunBuf[leaves*size:][:size]
		pager.WriteHeader(b, pager.Header{Kind: pager.KindLeaf})
		n, full := tree.FillLeaf(b, changes[rows:])
		if !full {
			break
		}
		leaves, rows = leaves+1, rows+n
	}
	return leaves, rows
}

// logLeafRun writes leaves that fullLeaves built, appends them to the tree and to the redo. If
// there is no contiguous space for them, done is false and nothing was changed.
func (w *writer) logLeafRun(s *treeState, changes []Change, leaves int, last []byte) (done bool, err error) {
	size := w.PageSize()
	run := w.leafRunBuf[:leaves*size]
	first, err := w.s.pg.WriteLeafRun(w.s.epoch, w.firstOwner, run, w.policy)
	switch {
	case first.IsZero() && pager.NoSpace(err):
		return false, nil
	case first.IsZero():
		return false, w.s.spaceError(err)
	}
	for i := range leaves {
		w.allocated.push(pageRun{first.Pgid + pager.Pgid(i), 1})
	}
	w.leafRunPages += uint64(leaves)
	if err != nil {
		return false, w.s.dataError(err)
	}
	w.sums = w.sums[:0]
	for i := range leaves {
		leaf := run[i*size:]
		w.sums = binary.LittleEndian.AppendUint64(w.sums, pager.Checksum(leaf))
		ref := pager.Ref{Pgid: first.Pgid + pager.Pgid(i), Epoch: first.Epoch}
		rows := int(pager.ReadHeader(leaf).Count)
		if err := tree.AppendLeaf(w, &s.t, ref, uint64(rows), last, changes[0].Key); err != nil {
			return false, err
		}
		last, changes = changes[rows-1].Key, changes[rows:]
	}
	w.redo = appendLeaves(w.redo, s.id, first, w.sums)
	w.refBytes += int64(len(run))
	return true, w.logged()
}

// replayLeafRun is logLeafRun for replay: the leaves are in the file, and allocated, and stay until
// the copies are durable.
func (w *writer) replayLeafRun(r redo) error {
	t, ok := w.trees.get(r.id)
	if !ok {
		return treeError(r.id)
	}
	for i := range r.leaves {
		id := r.ref.Pgid + pager.Pgid(i)
		w.s.pg.Pool.SetOwner(id, w.firstOwner)
		w.allocated.push(pageRun{id, 1})
	}
	err := tree.CopyLeafRun(w, &t, r.ref, r.leaves)
	if err == nil {
		w.set(r.id, t)
	}
	return err
}
