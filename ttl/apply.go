package ttl

import (
	"slices"

	"github.com/ebbkv/ebb/txn"
)

// A Change puts a row, with its expiry as the tag and 0 for none, or deletes one.
type Change = txn.Change

// ApplyRows is how many changes Apply takes.
const ApplyRows = txn.ApplyRows

// Apply carries out changes in their order, ApplyRows at most, as Put and Delete would. It goes through one tree after the other, and
// waits once for what all of the rows need there.
func (r Rows) Apply(changes []Change) error {
	e := Hold()
	defer e.Release()
	if err := r.ApplyHeld(changes, e); err != nil {
		return err
	}
	return r.Settle(e)
}

// ApplyHeld is Apply without the indexes: what changes there is added to e. Until it has been settled, the family is written by ApplyHeld
// with the same e only, and not read.
func (r Rows) ApplyHeld(changes []Change, e *Entries) error {
	timed, expiring := r.Timed() || e.Len() > 0, false
	for i := range changes {
		expiring = expiring || changes[i].Tag != 0
	}
	if !timed && !expiring {
		return r.Tx.Apply(r.Family.Data(), changes, nil)
	}
	need := applySize(changes)
	if e.Len() > 0 && r.room(e.logBytes()+need) != nil { // That is more than they take.
		if err := r.Settle(e); err != nil {
			return err
		}
	}
	if err := r.room(need); err != nil {
		return err
	}
	if expiring {
		if err := r.ensure(); err != nil {
			return err
		}
	}
	var buf [ApplyRows]txn.Info
	was := buf[:len(changes)]
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

// Foretell says what Settle is going to do: see txn.Tx.LogAhead. The indexes are there: Settle would find out too late that they are not.
func (r Rows) Foretell(e *Entries) error {
	if e.Len() == 0 {
		return nil
	}
	if err := r.indexed(); err != nil {
		return err
	}
	for i := range e.keys {
		r.Tx.Foretell(r.Family.KeyIndex(), &e.keys[i])
	}
	for _, i := range e.dueInOrder() {
		r.Tx.Foretell(r.Family.ExpiryIndex(), &e.due[i])
	}
	return nil
}

// Settle makes the indexes tell of the rows what e holds, and empties it.
func (r Rows) Settle(e *Entries) error {
	if e.Len() == 0 {
		return nil
	}
	if err := r.indexed(); err != nil {
		return err
	}
	r.Tx.Scout(r.Family.KeyIndex(), len(e.keys), txn.KeysOf(e.keys))
	if err := r.Tx.Apply(r.Family.KeyIndex(), e.keys, nil); err != nil {
		return err
	}
	var buf [ApplyRows]Change
	for some := range slices.Chunk(e.dueInOrder(), len(buf)) {
		for n, i := range some {
			buf[n] = e.due[i]
		}
		if err := r.Tx.Apply(r.Family.ExpiryIndex(), buf[:len(some)], nil); err != nil {
			return err
		}
	}
	e.Reset()
	return nil
}
