package txn

import (
	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// Batches of changes to one tree.

// A Change puts a row or deletes one.
type Change = tree.Change

// ApplyRows is how many changes Apply prefetches and applies at a time.
const ApplyRows = tree.MaxDescent

// Apply applies changes of a tree in their order, as Put and Delete would, and stores the previous
// rows in was, unless that is nil. It prefetches the pages of several changes at a time, and waits
// once for all of them. A large batch with keys in any order is applied in parallel. Of a large
// batch that ascends behind all keys of the tree, in a relaxed transaction, most rows are in leaves
// that the log references.
func (tx *Tx) Apply(id TreeID, changes []Change, was []Info) error {
	if tx.canAppendLeafRun(changes) {
		if pastEnd, err := tx.isPastEnd(id, changes[0].Key); err != nil {
			return err
		} else if pastEnd {
			return tx.applyAll(id, changes, was, true)
		}
	}
	if w := tx.w; w != nil {
		w.directRead = tx.s.o.useDirectRead(len(changes))
		defer func() { w.directRead = false }()
	}
	if len(changes) >= tx.s.o.ManyFrom {
		if done, err := tx.applyParallel(id, changes, was); done || err != nil {
			return err
		}
	}
	return tx.applyAll(id, changes, was, false)
}

// directReadFrom is the batch size from which on cold leaves are read from the file into their new
// frames, by one system call each. Read through the map they would be in memory twice: mapped, and
// as changed copies. The call takes as long as a page fault in the map, and longer where the system
// maps neighbouring pages with it: small batches use the map.
const directReadFrom = 64

func (o *Options) useDirectRead(changes int) bool {
	if o.Choose != nil {
		return o.Choose(2) == 0
	}
	return changes >= directReadFrom
}

// applyAll is Apply without workers. leafRuns says that the changes may ascend behind all keys of
// the tree: as long as they do, what follows the first ones is appended as leaf runs.
func (tx *Tx) applyAll(id TreeID, changes []Change, was []Info, leafRuns bool) error {
	for len(changes) > 0 {
		n := min(len(changes), ApplyRows)
		if err := tx.apply(id, changes[:n], was); err != nil {
			return err
		}
		changes, was = changes[n:], was[min(n, len(was)):]
		if leafRuns = leafRuns && tx.canAppendLeafRun(changes); leafRuns {
			n, err := tx.appendLeafRun(id, changes)
			if err != nil {
				return err
			}
			clear(was[:min(n, len(was))])
			changes, was = changes[n:], was[min(n, len(was)):]
		}
	}
	return nil
}

func (tx *Tx) apply(id TreeID, changes []Change, was []Info) error {
	if tx.check() != nil || !tx.s.started || len(changes) == 1 {
		return tx.applyEach(id, changes, was) // a batch that changes nothing starts no log
	}
	w, err := tx.change()
	if err != nil {
		return err
	}
	size, puts := 0, false
	for i := range changes {
		size += len(changes[i].Key) + len(changes[i].Value)
		puts = puts || !changes[i].Delete
	}
	if err := w.ensureTxnBytes(size); err != nil {
		return err
	}
	if puts {
		w.checkMaxBytes()
	}
	return tx.abort(w.applyChanges(id, changes, was))
}

// applyChanges applies up to ApplyRows changes of a tree and adds them to the redo, for a transaction
// or for replay.
func (w *writer) applyChanges(id TreeID, changes []Change, was []Info) error {
	s, err := w.state(id)
	if err != nil {
		return err
	}
	cursor := w.insertCursor(id)
	if err := tree.Prefetch(w, s.t, cursor, changes); err != nil {
		return err
	}
	changed, purpose := false, w.policy.Purpose
	for i := 0; i < len(changes); {
		n, info := cursor.Append(&s.t, changes[i:]), Info{}
		if n == 0 {
			c := &changes[i]
			if c.Delete {
				w.policy.Purpose = pager.ForDelete
			}
			info, err = cursor.Apply(w, &s.t, c)
			w.policy.Purpose = purpose
			if err != nil {
				return err
			}
			n = 1
		}
		for ; n > 0; n-- {
			c := &changes[i]
			if was != nil {
				was[i] = info
			}
			changed = changed || !c.Delete || info.Found
			if err := w.logChange(id, c, info.Found); err != nil {
				return err
			}
			i++
		}
	}
	w.filled += cursor.TakeFilledLeaves()
	if changed {
		w.set(id, s.t)
	}
	w.cursorsAt = w.mods
	return nil
}

// logChange adds an applied change to the redo, unless it is a deletion that found nothing.
func (w *writer) logChange(id TreeID, c *Change, found bool) error {
	switch {
	case w.noLog:
		w.dirty = true
	case !c.Delete:
		return w.logPut(id, c.Key, c.Value, c.Tag)
	case found:
		return w.logDelete(id, c.Key)
	}
	return nil
}

func (tx *Tx) applyEach(id TreeID, changes []Change, was []Info) error {
	for i := range changes {
		var info Info
		var err error
		if c := &changes[i]; c.Delete {
			info, err = tx.delete(id, c.Key, c.Value)
		} else {
			info, err = tx.Put(id, c.Key, c.Value, c.Tag)
		}
		if err != nil {
			return err
		}
		if was != nil {
			was[i] = info
		}
	}
	return nil
}
