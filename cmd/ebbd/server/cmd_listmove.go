package server

import "bytes"

// side parses LEFT or RIGHT.
func (r *request) side(i int) (head bool, err error) {
	switch {
	case r.is(i, "left"):
		return true, nil
	case r.is(i, "right"):
		return false, nil
	}
	return false, errSyntax
}

// lmoveCommand is LMOVE and RPOPLPUSH.
func lmoveCommand(r *request) error {
	from, to := false, true
	if len(r.args) > 3 {
		var err error
		if from, err = r.side(3); err != nil {
			return err
		}
		if to, err = r.side(4); err != nil {
			return err
		}
	}
	moved, err := r.moveElement(r.args[1], r.args[2], from, to)
	if err == nil && !moved {
		r.w.Null()
	}
	return err
}

// moveElement moves an element from an end of a list to an end of another, or the same, and replies
// with it.
func (r *request) moveElement(source, target []byte, from, to bool) (moved bool, err error) {
	row, err := r.loadList(source)
	if err != nil || row.Type == 0 {
		return false, err
	}
	if _, err := r.loadList(target); err != nil {
		return false, err
	}
	value, err := r.sp.Pop(&row, from)
	if err != nil {
		return false, err
	}
	r.w.Bulk(value)
	r.touch(source)
	if bytes.Equal(source, target) { // the list may be empty in between: it stays
		if err := r.sp.Push(&row, to, value); err != nil {
			return false, err
		}
		return true, r.sp.Save(source, &row)
	}
	if err := r.sp.Save(source, &row); err != nil {
		return false, err
	}
	_, err = r.push(target, to, [][]byte{value})
	return true, err
}

// numKeys parses a count of keys at position i, and returns the keys behind it.
func (r *request) numKeys(i int) (keys [][]byte, next int, err error) {
	n, ok := parseInt(r.args[i])
	switch {
	case !ok || n < 1:
		return nil, 0, replyError("ERR numkeys should be greater than 0")
	case n > int64(len(r.args)-i-1):
		return nil, 0, errSyntax
	}
	next = i + 1 + int(n)
	return r.args[i+1 : next], next, nil
}

// countOption parses an optional COUNT n at the end of LMPOP and ZMPOP.
func (r *request) countOption(i int) (int64, error) {
	if i == len(r.args) {
		return 1, nil
	}
	if i+2 != len(r.args) || !r.is(i, "count") {
		return 0, errSyntax
	}
	n, ok := parseInt(r.args[i+1])
	if !ok || n < 1 {
		return 0, replyError("ERR count should be greater than 0")
	}
	return n, nil
}

func lmpopCommand(r *request) error {
	keys, next, err := r.numKeys(1)
	if err != nil {
		return err
	}
	if next >= len(r.args) {
		return errSyntax
	}
	head, err := r.side(next)
	if err != nil {
		return err
	}
	n, err := r.countOption(next + 1)
	if err != nil {
		return err
	}
	popped, err := r.popFirst(keys, head, n)
	if err == nil && !popped {
		r.w.NullArray()
	}
	return err
}

// popFirst pops up to n elements of the first list that is there.
func (r *request) popFirst(keys [][]byte, head bool, n int64) (popped bool, err error) {
	for _, key := range keys {
		row, err := r.loadList(key)
		if err != nil {
			return false, err
		}
		if row.Type == 0 {
			continue
		}
		n = min(n, row.Count)
		r.w.Array(2)
		r.w.Bulk(key)
		r.w.Array(int(n))
		return true, r.popMany(key, &row, head, n)
	}
	return false, nil
}
