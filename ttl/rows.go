package ttl

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/txn"
)

// Rows is one family in one transaction, as keys with expiries. The row of a key in the data tree
// has the key's expiry as its tag, or none: a read costs one descent and never reads an index,
// whatever the family holds.
//
//	I1  a row (key -> expiry) in the key index exists exactly if the row (expiry, key) exists.
//	I2  each row of the key index has a row in the data tree with its expiry as the tag; no other
//	    row has a tag.
//	I3  values of the key index are 8 bytes, above 0; keys of expiry rows are at least 9 bytes,
//	    their values empty.
//	I4  both indexes exist or neither does, and they have the same number of rows.
//	I5  while that number is 0, no read uses an index.
//
// A call that writes several rows first verifies that the log bytes of all of them fit into the
// transaction: a refused call changes nothing.
type Rows struct {
	Tx     *txn.Tx
	Family *cf.Family
}

// opOverhead bounds the log bytes of an operation beside its keys and values.
const opOverhead = 40

// Count is the number of keys with an expiry.
func (r Rows) Count() int64 {
	if r.Family.NoTrees() {
		return 0
	}
	return int64(r.Tx.Rows(r.Family.KeyIndex()))
}

// HasExpiries says whether any key has an expiry. If not, reads and writes skip the indexes.
func (r Rows) HasExpiries() bool { return r.Count() > 0 }

// Get reads a key. expiry is 0 for a permanent key; an expired key is found while it is stored.
func (r Rows) Get(key []byte) (value []byte, expiry int64, found bool, err error) {
	value, expiry, found, err = r.Tx.Get(r.Family.Data(), key)
	if expiry < 0 {
		return nil, 0, false, r.BadTag(expiry)
	}
	return value, expiry, found, err
}

// GetMany is Get of up to txn.GetManyKeys keys.
func (r Rows) GetMany(keys [][]byte, found *[txn.GetManyKeys]txn.Lookup) error {
	if err := r.Tx.GetMany(r.Family.Data(), keys, found); err != nil {
		return err
	}
	for i := range keys {
		if tag := found[i].Tag; tag < 0 {
			return r.BadTag(tag)
		}
	}
	return nil
}

// Info is Get for the size of the value, without reading it.
func (r Rows) Info(key []byte) (size int, expiry int64, found bool, err error) {
	info, err := r.Tx.Info(r.Family.Data(), key)
	if info.Tag < 0 {
		return 0, 0, false, r.BadTag(info.Tag)
	}
	return info.Size, info.Tag, info.Found, err
}

// BadTag returns the error for a data row whose tag is no expiry.
func (r Rows) BadTag(tag int64) error { return r.damage("I2: a data row with the expiry %d", tag) }

// lookupExpiry reads the key index.
func (r Rows) lookupExpiry(key []byte) (expiry int64, found bool, err error) {
	if !r.HasExpiries() { // I5
		return 0, false, nil
	}
	value, _, found, err := r.Tx.Get(r.Family.KeyIndex(), key)
	if err != nil || !found {
		return 0, false, err
	}
	if expiry, err = decodeExpiry(value); err != nil {
		return 0, false, r.treeErr("key index", err)
	}
	return expiry, true, nil
}

// damage returns the error for a broken invariant.
func (r Rows) damage(format string, args ...any) error {
	return badfile.At("", -1, "family %q: %s", r.Family.Name, fmt.Sprintf(format, args...))
}

// treeErr adds the tree to the error of a decoder.
func (r Rows) treeErr(tree string, err error) error {
	var bad *badfile.Error
	if errors.As(err, &bad) {
		return r.damage("%s: %s", tree, bad.Detail)
	}
	return err
}

// requireIndexes verifies that both indexes exist, for a caller that has a row of one of them (I4).
func (r Rows) requireIndexes() error {
	for _, id := range [...]txn.TreeID{r.Family.KeyIndex(), r.Family.ExpiryIndex()} {
		if !r.Tx.Exists(id) {
			return r.damage("I4: %s, tree %d, is missing", r.Family.Role(id), id)
		}
	}
	return nil
}

// createIndexes creates both indexes unless they exist. One that is missing beside rows of the other is
// damage.
func (r Rows) createIndexes() error {
	if err := r.requireIndexes(); err == nil || r.HasExpiries() || r.Tx.Rows(r.Family.ExpiryIndex()) > 0 {
		return err
	}
	for _, id := range [...]txn.TreeID{r.Family.KeyIndex(), r.Family.ExpiryIndex()} {
		if r.Tx.Exists(id) {
			continue
		}
		if err := r.Tx.Create(id); err != nil {
			return err
		}
	}
	return nil
}

// Put stores value under key, with an expiry (0: none). It replaces an expiry that the key had.
func (r Rows) Put(key, value []byte, expiry int64) error {
	if expiry == 0 && !r.HasExpiries() {
		_, err := r.Tx.Put(r.Family.Data(), key, value, 0)
		return err
	}
	if err := r.prepare(putSize(key, value), expiry); err != nil {
		return err
	}
	was, err := r.Tx.Put(r.Family.Data(), key, value, expiry)
	if err != nil {
		return err
	}
	return r.reindex(key, was.Tag, expiry)
}

// prepare verifies that size bytes of log fit into the transaction, and creates the indexes for an
// expiry.
func (r Rows) prepare(size int, expiry int64) error {
	if err := r.Tx.EnsureTxnBytes(size); err != nil || expiry == 0 {
		return err
	}
	return r.createIndexes()
}

// putSize bounds the log bytes of a put of a row with an expiry, in all three trees.
func putSize(key, value []byte) int {
	return 4*(len(key)+expirySize+opOverhead) + len(value) + 2*opOverhead
}

func deleteSize(key []byte) int { return 3 * (len(key) + expirySize + opOverhead) }

// SetExpiry changes the expiry of a present key (0: none), without rewriting its value.
func (r Rows) SetExpiry(key []byte, expiry int64) error {
	if err := r.prepare(putSize(key, nil), expiry); err != nil {
		return err
	}
	was, err := r.Tx.SetTag(r.Family.Data(), key, expiry)
	if err != nil {
		return err
	}
	return r.reindex(key, was.Tag, expiry)
}

// reindex replaces the rows of expiry old in both indexes by those of expiry; 0: no row.
func (r Rows) reindex(key []byte, old, expiry int64) error {
	if old == expiry {
		return nil
	}
	if expiry == 0 { // else createIndexes has verified them
		if err := r.requireIndexes(); err != nil {
			return err
		}
	}
	buf := dueBuffers.Get().(*[512]byte)
	defer dueBuffers.Put(buf)
	if old != 0 {
		if _, err := r.Tx.Delete(r.Family.ExpiryIndex(), appendDue(buf[:0], old, key)); err != nil {
			return err
		}
	}
	if expiry == 0 {
		_, err := r.Tx.Delete(r.Family.KeyIndex(), key)
		return err
	}
	due := appendDue(buf[:0], expiry, key)
	if _, err := r.Tx.Put(r.Family.KeyIndex(), key, due[:expirySize], 0); err != nil {
		return err
	}
	_, err := r.Tx.Put(r.Family.ExpiryIndex(), due, nil, 0)
	return err
}

// dueBuffers are memory for keys of the expiry index. Longer ones are rare enough to be allocated.
var dueBuffers = sync.Pool{New: func() any { return new([512]byte) }}

// Delete removes a key from all three trees.
func (r Rows) Delete(key []byte) error {
	if r.HasExpiries() {
		if err := r.Tx.EnsureTxnBytes(deleteSize(key)); err != nil {
			return err
		}
	}
	was, err := r.Tx.Delete(r.Family.Data(), key)
	if err != nil {
		return err
	}
	return r.reindex(key, was.Tag, 0)
}

// Clear removes every key, in time independent of their number.
func (r Rows) Clear() error {
	if err := r.Tx.EnsureTxnBytes(3 * opOverhead); err != nil {
		return err
	}
	if err := r.Tx.Clear(r.Family.Data()); err != nil {
		return err
	}
	return r.clearIndexes()
}

func (r Rows) clearIndexes() error {
	for _, id := range [...]txn.TreeID{r.Family.KeyIndex(), r.Family.ExpiryIndex()} {
		if r.Tx.Rows(id) == 0 {
			continue
		}
		if err := r.Tx.Clear(id); err != nil {
			return err
		}
	}
	return nil
}
