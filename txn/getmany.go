package txn

import tree "github.com/ebbkv/ebb/btree"

// GetManyKeys is the largest number of keys of one GetMany.
const GetManyKeys = tree.MaxDescent

// A Lookup is the result of Get for one key of a batch: the value in Bytes, and the Tag.
type Lookup = tree.Lookup

// GetMany is Get of up to GetManyKeys keys of one tree: found[i] is the result for keys[i]. It
// overlaps the cache misses of their pages.
func (tx *Tx) GetMany(id TreeID, keys [][]byte, found *[GetManyKeys]Lookup) error {
	if err := tx.check(); err != nil {
		return err
	}
	t, ok := tx.tree(id)
	if !ok {
		clear(found[:len(keys)])
		return nil
	}
	if err := tree.GetMany(tx, t, keys, found); err != nil {
		return tx.recordErr(err)
	}
	if tx.w == nil {
		return nil
	}
	for i := range keys {
		if found[i].Found {
			found[i].Bytes = tx.w.copyValue(found[i].Bytes)
		}
	}
	return nil
}
