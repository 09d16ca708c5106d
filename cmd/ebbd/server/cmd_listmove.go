package server

import (
	"bytes"
	"time"

	"github.com/ebbkv/ebb/cmd/ebbd/resp"
)

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
	r.touchAs(source, 'l', listEvent("pop", from))
	if bytes.Equal(source, target) { // the list may be empty in between: it stays
		r.event('l', listEvent("push", to), target)
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

// lmpopCommand is LMPOP and BLMPOP.
func lmpopCommand(r *request) error {
	wait, at, err := r.mpopTimeout()
	if err != nil {
		return err
	}
	keys, next, err := r.numKeys(at)
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
		return r.blockOr(at == 2, keys, wait, (*resp.Writer).NullArray)
	}
	return err
}

// mpopTimeout parses the timeout of BLMPOP and BZMPOP, and returns the position of the number of
// keys. LMPOP and ZMPOP have none.
func (r *request) mpopTimeout() (wait time.Duration, at int, err error) {
	if r.cmd.flags&flagBlocking == 0 {
		return 0, 1, nil
	}
	wait, err = r.timeout(1)
	return wait, 2, err
}

// blockOr blocks, or replies at once that there is no element.
func (r *request) blockOr(
	blocks bool, keys [][]byte, wait time.Duration, null func(w *resp.Writer),
) error {
	if blocks {
		return r.block(keys, wait, null)
	}
	null(r.w)
	return nil
}

// blpopCommand is BLPOP and BRPOP.
func blpopCommand(r *request) error {
	last := len(r.args) - 1
	wait, err := r.timeout(last)
	if err != nil {
		return err
	}
	head := r.cmd.name == "blpop"
	for _, key := range r.args[1:last] {
		row, err := r.loadList(key)
		if err != nil {
			return err
		}
		if row.Type != 0 {
			r.w.Array(2)
			r.w.Bulk(key)
			return r.popMany(key, &row, head, 1)
		}
	}
	return r.block(r.args[1:last], wait, (*resp.Writer).NullArray)
}

// blmoveCommand is BLMOVE and BRPOPLPUSH.
func blmoveCommand(r *request) error {
	wait, err := r.timeout(len(r.args) - 1)
	if err != nil {
		return err
	}
	from, to := false, true
	if r.cmd.name == "blmove" {
		if from, err = r.side(3); err != nil {
			return err
		}
		if to, err = r.side(4); err != nil {
			return err
		}
	}
	moved, err := r.moveElement(r.args[1], r.args[2], from, to)
	if err != nil || moved {
		return err
	}
	return r.block(r.args[1:2], wait, (*resp.Writer).Null)
}

// listEvent names the event of a push or a pop at an end of a list.
func listEvent(verb string, head bool) string {
	if head {
		return "l" + verb
	}
	return "r" + verb
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
