package ttl

import "github.com/ebbkv/ebb/txn"

// A Change puts a row, with its expiry as the tag and 0 for none, or deletes one.
type Change = txn.Change

// ApplyRows is how many changes Apply takes.
const ApplyRows = txn.ApplyRows

// Apply carries out changes in their order, ApplyRows at most, as Put and Delete would. It goes through one tree after the other, and
// waits once for what all of the rows need there.
func (r Rows) Apply(changes []Change) error {
	timed, expiring := r.Timed(), false
	for i := range changes {
		expiring = expiring || changes[i].Tag != 0
	}
	if !timed && !expiring {
		return r.Tx.Apply(r.Family.Data(), changes, nil)
	}
	if err := r.room(applySize(changes)); err != nil {
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
	return r.reindexAll(changes, was)
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

// reindexAll is reindex for each of the changes: was are the rows that were there.
func (r Rows) reindexAll(changes []Change, was []txn.Info) error {
	var keys [ApplyRows]Change
	var due [2 * ApplyRows]Change
	var buf [2 * ApplyRows * 32]byte // Longer keys are allocated.
	rows, k, d := buf[:0], 0, 0
	row := func(expiry int64, key []byte) []byte {
		from := len(rows)
		rows = appendDue(rows, expiry, key)
		return rows[from:len(rows):len(rows)]
	}
	for i := range changes {
		key, old, expiry := changes[i].Key, was[i].Tag, changes[i].Tag
		if old == expiry {
			continue
		}
		if old != 0 {
			due[d] = Change{Key: row(old, key), Delete: true}
			d++
		}
		if expiry == 0 {
			keys[k] = Change{Key: key, Delete: true}
			k++
			continue
		}
		due[d] = Change{Key: row(expiry, key)}
		keys[k] = Change{Key: key, Value: due[d].Key[:expirySize]}
		k, d = k+1, d+1
	}
	if k == 0 {
		return nil
	}
	if err := r.indexed(); err != nil {
		return err
	}
	if err := r.Tx.Apply(r.Family.KeyIndex(), keys[:k], nil); err != nil {
		return err
	}
	return r.Tx.Apply(r.Family.ExpiryIndex(), due[:d], nil)
}
