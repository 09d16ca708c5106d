package server

import (
	"bytes"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
)

// loadString is Load of a key that is absent or a string.
func (r *request) loadString(i int) (keyspace.Row, error) {
	return r.sp.LoadAs(r.args[i], keyspace.TypeString)
}

func (r *request) value(row *keyspace.Row) {
	if row.Type == 0 {
		r.w.Null()
		return
	}
	r.w.Bulk(row.Value)
}

func getCommand(r *request) error {
	row, err := r.loadString(1)
	if err != nil {
		return err
	}
	r.found(row.Type != 0)
	r.value(&row)
	return nil
}

func strlenCommand(r *request) error {
	row, err := r.loadString(1)
	r.w.Int(int64(len(row.Value)))
	return err
}

// setOptions are the options of SET and GETEX.
type setOptions struct {
	nx, xx, get, keep, persist bool
	expiry                     int64 // ms; 0: none is given
}

// parseExpiry parses EX, PX, EXAT or PXAT at position i. ok false: it is none of them.
func (r *request) parseExpiry(i int) (at int64, ok bool, err error) {
	var milliseconds, absolute bool
	switch r.word(i) {
	case "EX":
	case "PX":
		milliseconds = true
	case "EXAT":
		absolute = true
	case "PXAT":
		milliseconds, absolute = true, true
	default:
		return 0, false, nil
	}
	if i+1 >= len(r.args) {
		return 0, false, errSyntax
	}
	n, err := r.int(i + 1)
	if err != nil {
		return 0, false, err
	}
	at, fits := expiryInstant(n, r.sp.Now, milliseconds, absolute)
	if n <= 0 || !fits {
		return 0, false, errExpireTime(r.cmd.name)
	}
	return at, true, nil
}

func parseSet(r *request, i int) (o setOptions, err error) {
	set := r.cmd.name == "set"
	for ; i < len(r.args); i++ {
		word := r.word(i)
		switch {
		case word == "NX" && set && !o.xx:
			o.nx = true
		case word == "XX" && set && !o.nx:
			o.xx = true
		case word == "GET" && set:
			o.get = true
		case word == "KEEPTTL" && set && o.expiry == 0:
			o.keep = true
		case word == "PERSIST" && !set && o.expiry == 0:
			o.persist = true
		default:
			at, ok, err := r.parseExpiry(i)
			switch {
			case err != nil:
				return o, err
			case !ok || o.expiry != 0 || o.keep || o.persist:
				return o, errSyntax
			}
			o.expiry = at
			i++
		}
	}
	return o, nil
}

func setCommand(r *request) error {
	o, err := parseSet(r, 3)
	if err != nil {
		return err
	}
	row, err := r.sp.Load(r.args[1])
	if err != nil {
		return err
	}
	if o.get && row.Type != 0 && row.Type != keyspace.TypeString {
		return errWrongType
	}
	if o.get {
		r.value(&row)
	}
	if o.nx && row.Type != 0 || o.xx && row.Type == 0 {
		if !o.get {
			r.w.Null()
		}
		return nil
	}
	expiry := o.expiry
	if o.keep {
		expiry = keyspace.KeepExpiry
	}
	if !o.get {
		r.w.Simple("OK")
	}
	return r.set(r.args[1], r.args[2], &row, expiry)
}

// set makes a key a string; an expiry that has come deletes it.
func (r *request) set(key, value []byte, row *keyspace.Row, expiry int64) error {
	if len(value) > r.s.o.MaxBulk {
		return errTooLong
	}
	if expiry > 0 && expiry <= r.sp.Now {
		r.touchAs(key, notifyGeneric, "del")
		if row.Type == 0 {
			return nil
		}
		return r.sp.Delete(key, row)
	}
	r.touch(key)
	if expiry > 0 {
		r.event(notifyGeneric, "expire", key)
	}
	return r.sp.SetString(key, value, row, expiry)
}

const errTooLong = replyError("ERR string exceeds maximum allowed size (proto-max-bulk-len)")

func setnxCommand(r *request) error {
	row, err := r.sp.Load(r.args[1])
	if err != nil {
		return err
	}
	if row.Type != 0 {
		r.w.Int(0)
		return nil
	}
	r.w.Int(1)
	return r.set(r.args[1], r.args[2], &row, keyspace.NoExpiry)
}

// setexCommand is SETEX and PSETEX.
func setexCommand(r *request) error {
	n, err := r.int(2)
	if err != nil {
		return err
	}
	at, ok := expiryInstant(n, r.sp.Now, r.cmd.name == "psetex", false)
	if n <= 0 || !ok {
		return errExpireTime(r.cmd.name)
	}
	row, err := r.sp.Load(r.args[1])
	if err != nil {
		return err
	}
	r.w.Simple("OK")
	return r.set(r.args[1], r.args[3], &row, at)
}

func getsetCommand(r *request) error {
	row, err := r.loadString(1)
	if err != nil {
		return err
	}
	r.value(&row)
	return r.set(r.args[1], r.args[2], &row, keyspace.NoExpiry)
}

func getdelCommand(r *request) error {
	row, err := r.loadString(1)
	if err != nil {
		return err
	}
	r.found(row.Type != 0)
	r.value(&row)
	if row.Type == 0 {
		return nil
	}
	r.touch(r.args[1])
	return r.sp.Delete(r.args[1], &row)
}

func getexCommand(r *request) error {
	o, invalid := parseSet(r, 2)
	if invalid == errSyntax {
		return invalid
	}
	key := r.args[1]
	row, err := r.loadString(1)
	if err != nil {
		return err
	}
	r.found(row.Type != 0)
	if row.Type != 0 && invalid != nil { // an invalid instant matters to a key only
		return invalid
	}
	r.value(&row)
	switch {
	case row.Type == 0 || o.expiry == 0 && !o.persist:
		return nil
	case o.persist:
		was, err := r.sp.Expiry(key, &row)
		if err != nil || was == 0 {
			return err
		}
	}
	switch {
	case o.expiry > 0 && o.expiry <= r.sp.Now:
		r.touchAs(key, notifyGeneric, "del")
		return r.sp.Delete(key, &row)
	case o.expiry > 0:
		r.touchAs(key, notifyGeneric, "expire")
	default:
		r.touchAs(key, notifyGeneric, "persist")
	}
	return r.sp.SetExpiry(key, &row, o.expiry)
}

func mgetCommand(r *request) error {
	r.w.Array(len(r.args) - 1)
	for _, key := range r.args[1:] {
		row, err := r.sp.Load(key)
		if err != nil {
			return err
		}
		r.found(row.Type != 0)
		if row.Type != keyspace.TypeString {
			r.w.Null()
			continue
		}
		r.w.Bulk(row.Value)
	}
	return nil
}

// msetCommand is MSET and MSETNX.
func msetCommand(r *request) error {
	if len(r.args)%2 == 0 {
		return errArity(r.cmd.name)
	}
	onlyNew := r.cmd.name == "msetnx"
	for i := 1; onlyNew && i < len(r.args); i += 2 {
		row, err := r.sp.Load(r.args[i])
		if err != nil {
			return err
		}
		if row.Type != 0 {
			r.w.Int(0)
			return nil
		}
	}
	for i := 1; i < len(r.args); i += 2 {
		row, err := r.sp.Load(r.args[i])
		if err != nil {
			return err
		}
		if err := r.set(r.args[i], r.args[i+1], &row, keyspace.NoExpiry); err != nil {
			return err
		}
	}
	if onlyNew {
		r.w.Int(1)
		return nil
	}
	return r.ok(nil)
}

func appendCommand(r *request) error {
	row, err := r.loadString(1)
	if err != nil {
		return err
	}
	if len(row.Value)+len(r.args[2]) > r.s.o.MaxBulk {
		return errTooLong
	}
	value := append(bytes.Clone(row.Value), r.args[2]...)
	r.w.Int(int64(len(value)))
	return r.set(r.args[1], value, &row, keyspace.KeepExpiry)
}

// span returns the part of n positions that start and end mean, with negative ones counted from the
// end.
func span(start, end, n int64) (lo, hi int64) {
	if start < 0 {
		start = max(start+n, 0)
	}
	if end < 0 {
		end += n
	}
	return start, min(end+1, n)
}

// getrangeCommand is GETRANGE and SUBSTR.
func getrangeCommand(r *request) error {
	start, err := r.int(2)
	if err != nil {
		return err
	}
	end, err := r.int(3)
	if err != nil {
		return err
	}
	row, err := r.loadString(1)
	if err != nil {
		return err
	}
	n := int64(len(row.Value))
	if start < 0 && end < 0 && start > end {
		r.w.BulkString("")
		return nil
	}
	if end < 0 {
		end = max(end+n, 0)
	}
	lo, hi := span(start, end, n)
	if lo >= hi {
		r.w.BulkString("")
		return nil
	}
	r.w.Bulk(row.Value[lo:hi])
	return nil
}

func setrangeCommand(r *request) error {
	offset, err := r.int(2)
	if err != nil {
		return err
	}
	if offset < 0 {
		return replyError("ERR offset is out of range")
	}
	row, err := r.loadString(1)
	if err != nil {
		return err
	}
	part := r.args[3]
	if len(part) == 0 {
		r.w.Int(int64(len(row.Value)))
		return nil
	}
	if offset+int64(len(part)) > int64(r.s.o.MaxBulk) {
		return errTooLong
	}
	value := make([]byte, max(len(row.Value), int(offset)+len(part)))
	copy(value, row.Value)
	copy(value[offset:], part)
	r.w.Int(int64(len(value)))
	return r.set(r.args[1], value, &row, keyspace.KeepExpiry)
}
