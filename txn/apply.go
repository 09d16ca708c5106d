package txn

import tree "github.com/ebbkv/ebb/btree"

// Changes that are carried out together.

// A Change puts a row or deletes one.
type Change = tree.Change

// ApplyRows is how many changes Apply waits for at a time.
const ApplyRows = tree.MaxHints

// Apply carries out changes of a tree in their order, as Put and Delete would, and tells in was, if
// that is not nil and has room for all, of the rows that were there. It asks the processor for what
// several rows need at a time, and waits once for all of them. Many of them, whose keys lie
// anywhere, are carried out by several processors. Of many that come in order behind all others, in
// a transaction that aims at NoSync, most are in leaves that the log names.
func (tx *Tx) Apply(id TreeID, changes []Change, was []Info) error {
	if tx.canAppendLeafRun(changes) {
		if behind, err := tx.isPastEnd(id, changes[0].Key); err != nil {
			return err
		} else if behind {
			return tx.applyInOrder(id, changes, was)
		}
	}
	if w := tx.w; w != nil {
		w.directRead = tx.s.useDirectRead(len(changes))
		defer func() { w.directRead = false }()
	}
	if len(changes) >= tx.s.o.ManyFrom {
		if done, err := tx.applyParallel(id, changes, was); done || err != nil {
			return err
		}
	}
	return tx.applyAll(id, changes, was)
}

// directReadFrom is how many changes at a time are so many that the leaves which they meet would
// soon be in memory twice, as the map of the file has them and as they become. They are read for
// being changed, by a call of the system each. It takes as long as to look at one place of the map
// that nobody has looked at, and longer where the system has mapped that with its neighbours: a put
// by itself had better look.
const directReadFrom = 64

func (s *Store) useDirectRead(changes int) bool {
	if s.o.Inline { // The crash bed is to see both.
		return s.stamps%2 == 0
	}
	return changes >= directReadFrom
}

// applyAll is Apply by one hand.
func (tx *Tx) applyAll(id TreeID, changes []Change, was []Info) error {
	for len(changes) > 0 {
		n := min(len(changes), ApplyRows)
		if err := tx.apply(id, changes[:n], was); err != nil {
			return err
		}
		changes = changes[n:]
		if was != nil {
			was = was[n:]
		}
	}
	return nil
}

func (tx *Tx) apply(id TreeID, changes []Change, was []Info) error {
	if tx.check() != nil || !tx.s.started || len(changes) == 1 {
		return tx.applyEach(id, changes, was) // the log may not have to be started
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
	s, err := w.state(id)
	if err != nil {
		return err
	}
	f := w.insertCursor(id)
	var ways tree.PathHints
	if err := ways.Prefetch(w, s.t, f, changes); err != nil {
		return tx.recordErr(err)
	}
	changed := false
	for i := 0; i < len(changes); {
		n, info := f.Append(&s.t, changes[i:]), Info{}
		if n == 0 {
			c := &changes[i]
			before := w.s.pg.Overdraft(c.Delete) // what frees space is not refused
			info, err = ways.Apply(w, &s.t, f, i, c)
			w.s.pg.Overdraft(before)
			if err != nil {
				return tx.abort(err)
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
				return tx.abort(err)
			}
			i++
		}
	}
	w.filled += f.TakeFilledLeaves()
	if changed {
		w.set(id, s.t)
	}
	w.cursorsAt = w.mods
	return nil
}

// logChange adds a change that has been carried out to the redo, unless it is a deletion that found
// nothing.
func (w *writer) logChange(id TreeID, c *Change, found bool) error {
	switch {
	case !c.Delete:
		return w.logPut(id, c.Key, c.Value, c.Tag)
	case found:
		return w.logDelete(id, c.Key)
	case w.submitted.logged:
		w.submitted.pendingOps--
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
