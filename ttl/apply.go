package ttl

import (
	"slices"

	"github.com/ebbkv/ebb/txn"
)

// A Change puts a row, with its expiry as the tag (0: none), or deletes one.
type Change = txn.Change

// ApplyRows is the number of changes whose pages are prefetched together.
const ApplyRows = txn.ApplyRows

// Apply applies changes in order, as Put and Delete would. It applies them to one tree after the
// other, and waits once for the pages of ApplyRows of them.
func (r Rows) Apply(changes []Change) error {
	e := NewIndexBuffer()
	defer e.Release()
	if err := r.ApplyBuffered(changes, e, false); err != nil {
		return err
	}
	return r.FlushIndexes(e)
}

// ApplyBuffered is Apply without the indexes: their changes are added to e. Until FlushIndexes, or a
// commit with Runs, the family may only be written by ApplyBuffered with the same e, and not read.
// last says that no other call follows: rows without expiries may be left to Runs then.
func (r Rows) ApplyBuffered(changes []Change, e *IndexBuffer, last bool) error {
	timed, expiring := r.HasExpiries() || e.Len() > 0, false
	for i := range changes {
		expiring = expiring || changes[i].Tag != 0
	}
	if !timed && !expiring {
		if last {
			e.rows = changes
			return nil
		}
		return r.Tx.Apply(r.Family.Data(), changes, nil)
	}
	need := applySize(changes)
	if e.Len() > 0 && r.Tx.EnsureTxnBytes(e.logBytes()+need) != nil { // an upper bound of their log bytes
		if err := r.FlushIndexes(e); err != nil {
			return err
		}
	}
	if err := r.Tx.EnsureTxnBytes(need); err != nil {
		if len(changes) <= ApplyRows {
			return err
		}
		for some := range slices.Chunk(changes, ApplyRows) { // fewer rows are estimated more exactly
			if err := r.ApplyBuffered(some, e, false); err != nil {
				return err
			}
		}
		return nil
	}
	if expiring {
		if err := r.createIndexes(); err != nil {
			return err
		}
	}
	was := e.infos(len(changes))
	if err := r.Tx.Apply(r.Family.Data(), changes, was); err != nil {
		return err
	}
	e.add(changes, was)
	return nil
}

func applySize(changes []Change) (size int) {
	for i := range changes {
		if c := &changes[i]; c.Delete {
			size += deleteSize(c.Key)
		} else {
			size += putSize(c.Key, c.Value)
		}
	}
	return size
}

// Runs returns the changes in e that are not applied yet. They are valid until Reset.
func (r Rows) Runs(e *IndexBuffer) ([]txn.Run, error) {
	e.runs = e.runs[:0]
	if len(e.rows) > 0 {
		e.runs = append(e.runs, txn.Run{Tree: r.Family.Data(), Changes: e.rows})
	}
	if e.Len() > 0 {
		if err := r.requireIndexes(); err != nil {
			return nil, err
		}
		e.runs = append(e.runs, txn.Run{Tree: r.Family.KeyIndex(), Changes: e.keys},
			txn.Run{Tree: r.Family.ExpiryIndex(), Changes: e.dueInOrder()})
	}
	return e.runs, nil
}

// FlushIndexes applies the changes in e, and empties it.
func (r Rows) FlushIndexes(e *IndexBuffer) error {
	runs, err := r.Runs(e)
	if err != nil {
		return err
	}
	for _, run := range runs {
		if err := r.Tx.Apply(run.Tree, run.Changes, nil); err != nil {
			return err
		}
	}
	e.Reset()
	return nil
}
