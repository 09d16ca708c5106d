package server

import (
	"bytes"
	"strings"
	"time"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
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

// lmoveCommand is LMOVE, RPOPLPUSH and their blocking forms.
func lmoveCommand(r *request) (err error) {
	wait, blocks := time.Duration(0), r.cmd.flags&flagBlocking != 0
	if blocks {
		if wait, err = r.timeout(len(r.args) - 1); err != nil {
			return err
		}
	}
	from, to := false, true
	if strings.HasSuffix(r.cmd.name, "lmove") {
		if from, err = r.side(3); err != nil {
			return err
		}
		if to, err = r.side(4); err != nil {
			return err
		}
	}
	moved, err := moveElement(r, r.args[1], r.args[2], from, to)
	if err != nil || moved {
		return err
	}
	return r.blockOr(blocks, r.args[1:2], wait, (*resp.Writer).Null)
}

// moveElement moves an element from an end of a list to an end of another, or the same, and replies
// with it.
func moveElement(r *request, source, target []byte, from, to bool) (moved bool, err error) {
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
	key, row, err := r.firstThere(keys, keyspace.TypeList)
	if err != nil {
		return err
	}
	if row.Type == 0 {
		return r.blockOr(at == 2, keys, wait, (*resp.Writer).NullArray)
	}
	n = min(n, row.Count)
	r.w.Array(2)
	r.w.Bulk(key)
	r.w.Array(int(n))
	return popMany(r, key, &row, head, n)
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
	key, row, err := r.firstThere(r.args[1:last], keyspace.TypeList)
	if err != nil {
		return err
	}
	if row.Type == 0 {
		return r.block(r.args[1:last], wait, (*resp.Writer).NullArray)
	}
	r.w.Array(2)
	r.w.Bulk(key)
	return popMany(r, key, &row, r.cmd.name == "blpop", 1)
}

// listEvent names the event of a push or a pop at an end of a list.
func listEvent(verb string, head bool) string {
	if head {
		return "l" + verb
	}
	return "r" + verb
}
