package kv

import "github.com/ebbkv/ebb/txn"

// GetMany looks many keys up in less time than as many calls of Get: the lookups of sixteen keys wait
// for memory together. fn gets the index and the value of each key that is present and not expired,
// in any order, and returns false to stop. The value is valid as that of Get is. fn may use the
// transaction: a change that it makes may or may not show in values that follow. An invalid key is an
// error before the first call of fn.
func (v *verbs) GetMany(keys [][]byte, fn func(i int, value []byte) bool) error {
	return v.getMany(keys, false, fn)
}

// getMany is GetMany, with values that are copies if that is asked for.
func (v *verbs) getMany(keys [][]byte, copied bool, fn func(i int, value []byte) bool) error {
	if err := v.checkMany(keys); err != nil {
		return err
	}
	if len(keys) < sortedFrom {
		_, err := v.getInOrder(keys, asGiven[:len(keys)], copied, fn)
		return err
	}
	var o keyOrder
	for from := 0; from < len(keys); from += keyOrderMax {
		some := keys[from:min(from+keyOrderMax, len(keys))]
		more, err := v.getInOrder(some, o.sort(some), copied, func(i int, value []byte) bool {
			return fn(from+i, value)
		})
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// getInOrder looks keys up in the order of these indices. more is false if fn was.
func (v *verbs) getInOrder(
	keys [][]byte, order []uint16, copied bool, fn func(i int, value []byte) bool,
) (more bool, err error) {
	var part [txn.GetManyKeys][]byte
	var found [txn.GetManyKeys]txn.Lookup
	for len(order) > 0 {
		n := min(len(part), len(order))
		for i, k := range order[:n] {
			part[i] = keys[k]
		}
		if err := v.lookUp(part[:n], &found, copied); err != nil {
			return false, err
		}
		for i, k := range order[:n] {
			if found[i].Found && !fn(int(k), found[i].Bytes) {
				return false, nil
			}
		}
		order = order[n:]
	}
	return true, nil
}

// checkMany is readyKey for many keys.
func (v *verbs) checkMany(keys [][]byte) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.ready(false); err != nil {
		return err
	}
	for _, key := range keys {
		if err := checkKey(key, v.tx.db.maxKey); err != nil {
			return err
		}
	}
	return nil
}

// lookUp looks up to txn.GetManyKeys valid keys up, as get does. The values are copies if that is asked
// for.
func (v *verbs) lookUp(keys [][]byte, found *[txn.GetManyKeys]txn.Lookup, copied bool) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	clear(found[:len(keys)])
	if err := v.ready(false); err != nil || v.fam.NoTrees() {
		return err
	}
	if err := v.rows().GetMany(keys, found); err != nil {
		return v.below(err)
	}
	for i := range keys {
		l := &found[i]
		switch {
		case !l.Found:
			continue
		case l.Tag != 0 && v.tx.db.clock.hides(v.tx.instant(), l.Tag):
			v.noteExpired(keys[i], l.Tag)
			l.Found = false
			continue
		case l.Bytes == nil:
			l.Bytes = []byte{}
		}
		if copied {
			l.Bytes = appendValue(make([]byte, 0, len(l.Bytes)), l.Bytes)
		}
	}
	return nil
}

// GetMany returns in values[i] a copy of the value of keys[i], nil if the key is absent or expired.
// All values are of one snapshot and one instant.
func (s *oneShot) GetMany(keys [][]byte) (values [][]byte, err error) {
	return readOnce(s, func(v *verbs) ([][]byte, error) { return v.getManyCopies(keys) })
}

func (v *verbs) getManyCopies(keys [][]byte) ([][]byte, error) {
	values := make([][]byte, len(keys))
	err := v.getMany(keys, true, func(i int, value []byte) bool {
		values[i] = value
		return true
	})
	if err != nil {
		return nil, err
	}
	return values, nil
}
