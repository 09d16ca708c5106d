package server

import (
	"bytes"
	"math"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
)

func (r *request) loadList(key []byte) (keyspace.Row, error) {
	return r.sp.LoadAs(key, keyspace.TypeList)
}

// pushCommand is LPUSH, RPUSH, LPUSHX and RPUSHX.
func pushCommand(r *request) error {
	head := r.cmd.name[0] == 'l'
	if r.cmd.name == "lpushx" || r.cmd.name == "rpushx" {
		row, err := r.loadList(r.args[1])
		if err != nil {
			return err
		}
		if row.Type == 0 {
			r.w.Int(0)
			return nil
		}
	}
	n, err := r.push(r.args[1], head, r.args[2:])
	r.w.Int(n)
	return err
}

// push adds elements at an end of a list, which is created if it is absent.
func (r *request) push(key []byte, head bool, values [][]byte) (length int64, err error) {
	row, err := r.sp.LoadOrCreate(key, keyspace.TypeList)
	if err != nil {
		return 0, err
	}
	for _, value := range values {
		if err := r.sp.Push(&row, head, value); err != nil {
			return 0, err
		}
	}
	r.touchAs(key, 'l', listEvent("push", head))
	return row.Count, r.sp.Save(key, &row)
}

// popCommand is LPOP and RPOP.
func popCommand(r *request) error {
	if len(r.args) > 3 {
		return errArity(r.cmd.name)
	}
	n := int64(1)
	if len(r.args) == 3 {
		var ok bool
		if n, ok = parseInt(r.args[2]); !ok || n < 0 {
			return errNegativeOnly
		}
	}
	row, err := r.loadList(r.args[1])
	if err != nil {
		return err
	}
	if row.Type == 0 {
		if len(r.args) == 3 {
			r.w.NullArray()
		} else {
			r.w.Null()
		}
		return nil
	}
	if len(r.args) == 3 {
		r.w.Array(int(min(n, row.Count)))
	}
	return popMany(r, r.args[1], &row, r.cmd.name == "lpop", min(n, row.Count))
}

// popMany removes n elements from an end of a list that has them, and replies with them.
func popMany(r *request, key []byte, row *keyspace.Row, head bool, n int64) error {
	if n == 0 {
		return nil
	}
	for range n {
		value, err := r.sp.Pop(row, head)
		if err != nil {
			return err
		}
		r.w.Bulk(value)
	}
	r.touchAs(key, 'l', listEvent("pop", head))
	return r.sp.Save(key, row)
}

// ints parses two integers from argument i on.
func (r *request) ints(i int) (a, b int64, err error) {
	if a, err = r.int(i); err == nil {
		b, err = r.int(i + 1)
	}
	return a, b, err
}

func lrangeCommand(r *request) error {
	start, end, err := r.ints(2)
	if err != nil {
		return err
	}
	row, err := r.loadList(r.args[1])
	if err != nil {
		return err
	}
	lo, hi := span(start, end, row.Count)
	r.w.Array(int(max(hi-lo, 0)))
	for _, value := range r.sp.Elements(&row, lo, hi, false) {
		r.w.Bulk(value)
	}
	return r.tx.Err()
}

// position turns an index, negative ones from the end, into a position; ok false: outside the list.
func position(index, n int64) (pos int64, ok bool) {
	if index < 0 {
		index += n
	}
	return index, index >= 0 && index < n
}

func lindexCommand(r *request) error {
	row, err := r.loadList(r.args[1])
	if err != nil {
		return err
	}
	if row.Type == 0 {
		r.w.Null()
		return nil
	}
	index, err := r.int(2)
	if err != nil {
		return err
	}
	pos, ok := position(index, row.Count)
	if !ok {
		r.w.Null()
		return nil
	}
	value, err := r.sp.Index(&row, pos)
	r.w.Bulk(value)
	return err
}

func lsetCommand(r *request) error {
	row, err := r.loadList(r.args[1])
	if err != nil {
		return err
	}
	if row.Type == 0 {
		return errNoKey
	}
	index, err := r.int(2)
	if err != nil {
		return err
	}
	pos, ok := position(index, row.Count)
	if !ok {
		return errIndex
	}
	r.touch(r.args[1])
	return r.ok(r.sp.SetIndex(&row, pos, r.args[3]))
}

// lremCommand removes elements from the end that its count says: those found are collected first,
// since a removal moves the others.
func lremCommand(r *request) error {
	count, err := r.int(2)
	if err != nil {
		return err
	}
	row, err := r.loadList(r.args[1])
	if err != nil {
		return err
	}
	reverse, most := count < 0, count
	switch {
	case count == 0 || count == math.MinInt64:
		most = row.Count
	case reverse:
		most = -count
	}
	var found []int64
	for pos, value := range r.sp.Elements(&row, 0, row.Count, reverse) {
		if int64(len(found)) == most {
			break
		}
		if bytes.Equal(value, r.args[3]) {
			found = append(found, pos)
		}
	}
	if err := r.tx.Err(); err != nil {
		return err
	}
	r.w.Int(int64(len(found)))
	if len(found) == 0 {
		return nil
	}
	if err := r.sp.RemoveMany(&row, found); err != nil {
		return err
	}
	return r.save(&row)
}

func ltrimCommand(r *request) error {
	start, end, err := r.ints(2)
	if err != nil {
		return err
	}
	row, err := r.loadList(r.args[1])
	if err != nil {
		return err
	}
	r.w.Simple("OK")
	if row.Type == 0 {
		return nil
	}
	lo, hi := span(start, end, row.Count)
	if lo >= hi {
		r.touch(r.args[1])
		return r.sp.Delete(r.args[1], &row)
	}
	if err := r.sp.Trim(&row, lo, hi); err != nil {
		return err
	}
	return r.save(&row)
}

func linsertCommand(r *request) error {
	after := r.is(2, "after")
	if !after && !r.is(2, "before") {
		return errSyntax
	}
	row, err := r.loadList(r.args[1])
	if err != nil {
		return err
	}
	if row.Type == 0 {
		r.w.Int(0)
		return nil
	}
	at := int64(-1)
	for pos, value := range r.sp.Elements(&row, 0, row.Count, false) {
		if bytes.Equal(value, r.args[3]) {
			at = pos
			break
		}
	}
	if err := r.tx.Err(); err != nil {
		return err
	}
	if at < 0 {
		r.w.Int(-1)
		return nil
	}
	if after {
		at++
	}
	if err := r.sp.Insert(&row, at, r.args[4]); err != nil {
		return err
	}
	r.w.Int(row.Count)
	return r.save(&row)
}

// lposOptions are RANK, COUNT and MAXLEN of LPOS.
type lposOptions struct {
	rank, count, maxLen int64
	many                bool
}

func parseLpos(r *request) (o lposOptions, err error) {
	o.rank, o.count = 1, 1
	for i := 3; i < len(r.args); i += 2 {
		if i+1 >= len(r.args) {
			return o, errSyntax
		}
		n, err := r.int(i + 1)
		if err != nil {
			return o, err
		}
		switch r.word(i) {
		case "RANK":
			if n == 0 {
				return o, replyError(
					"ERR RANK can't be zero: use 1 to start from the first match, 2 from " +
						"the second ... or use negative to start from the end of the list",
				)
			}
			if n == math.MinInt64 {
				return o, errNotInt
			}
			o.rank = n
		case "COUNT":
			if n < 0 {
				return o, replyError("ERR COUNT can't be negative")
			}
			o.count, o.many = n, true
		case "MAXLEN":
			if n < 0 {
				return o, replyError("ERR MAXLEN can't be negative")
			}
			o.maxLen = n
		default:
			return o, errSyntax
		}
	}
	return o, nil
}

func lposCommand(r *request) error {
	o, err := parseLpos(r)
	if err != nil {
		return err
	}
	row, err := r.loadList(r.args[1])
	if err != nil {
		return err
	}
	skip := o.rank - 1
	if o.rank < 0 {
		skip = -o.rank - 1
	}
	var found []int64
	looked := int64(0)
	for pos, value := range r.sp.Elements(&row, 0, row.Count, o.rank < 0) {
		if looked++; o.maxLen > 0 && looked > o.maxLen {
			break
		}
		if !bytes.Equal(value, r.args[2]) {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		found = append(found, pos)
		if o.count > 0 && int64(len(found)) == o.count {
			break
		}
	}
	if err := r.tx.Err(); err != nil {
		return err
	}
	switch {
	case o.many:
		r.w.Array(len(found))
		for _, pos := range found {
			r.w.Int(pos)
		}
	case len(found) == 0:
		r.w.Null()
	default:
		r.w.Int(found[0])
	}
	return nil
}
