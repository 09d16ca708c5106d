package server

import (
	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
)

// Replies for a field of the HEXPIRE family.
const (
	fieldAbsent    = -2
	fieldPermanent = -1
	fieldRefused   = 0 // the condition does not hold
	fieldDone      = 1
	fieldDeleted   = 2 // the instant has passed
)

// parseFields parses FIELDS n field... at position i; the list is the rest of the command. Each
// entry has width arguments.
func parseFields(r *request, i, width int) ([][]byte, error) {
	if !r.is(i, "fields") || i+1 >= len(r.args) {
		return nil, replyError(
			"ERR Mandatory argument FIELDS is missing or not at the right position")
	}
	n, ok := parseInt(r.args[i+1])
	if !ok || n < 1 {
		return nil, replyError("ERR Parameter `numFields` should be greater than 0")
	}
	fields := r.args[i+2:]
	if n > int64(len(fields)) || int64(len(fields)) != n*int64(width) {
		return nil, replyError("ERR The `numfields` parameter must match the number of arguments")
	}
	return fields, nil
}

// hexpireCommand is HEXPIRE, HPEXPIRE, HEXPIREAT and HPEXPIREAT.
func hexpireCommand(r *request) error {
	milliseconds, absolute := expireUnits(r.cmd.name)
	n, err := r.int(2)
	if err != nil {
		return err
	}
	i := 3
	var cond expireCondition
	if i < len(r.args) && cond.parse(r.word(i)) {
		i++
	}
	fields, err := parseFields(r, i, 1)
	if err != nil {
		return err
	}
	at, ok := expiryInstant(n, r.sp.Now, milliseconds, absolute)
	if !ok || n < 0 {
		return errExpireTime(r.cmd.name)
	}
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	r.w.Array(len(fields))
	changed := false
	for _, field := range fields {
		result, err := expireField(r, &row, field, at, cond)
		if err != nil {
			return err
		}
		changed = changed || result == fieldDone || result == fieldDeleted
		r.w.Int(result)
	}
	if !changed {
		return nil
	}
	return r.save(&row)
}

func expireField(
	r *request,
	row *keyspace.Row,
	field []byte,
	at int64,
	cond expireCondition,
) (int64, error) {
	was, ok, err := r.sp.FieldExpiry(row, field)
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return fieldAbsent, nil
	case !cond.holds(was, at):
		return fieldRefused, nil
	case at <= r.sp.Now:
		_, err := r.sp.DeleteField(row, field)
		return fieldDeleted, err
	}
	return fieldDone, r.sp.SetFieldExpiry(r.args[1], row, field, was, at)
}

// httlCommand is HTTL, HPTTL, HEXPIRETIME and HPEXPIRETIME.
func httlCommand(r *request) error {
	milliseconds, absolute := expireUnits(r.cmd.name)
	fields, err := parseFields(r, 2, 1)
	if err != nil {
		return err
	}
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	r.w.Array(len(fields))
	for _, field := range fields {
		at, ok, err := r.sp.FieldExpiry(&row, field)
		if err != nil {
			return err
		}
		if !ok {
			r.w.Int(fieldAbsent)
			continue
		}
		r.w.Int(fieldExpiryReply(at, r.sp.Now, milliseconds, absolute))
	}
	return nil
}

// fieldExpiryReply is expiryReply, with seconds rounded up, as Redis does for fields.
func fieldExpiryReply(at, now int64, milliseconds, absolute bool) int64 {
	if at == 0 || milliseconds {
		return expiryReply(at, now, milliseconds, absolute)
	}
	if absolute {
		return (at + 999) / 1000
	}
	return (at - now + 999) / 1000
}

func hpersistCommand(r *request) error {
	fields, err := parseFields(r, 2, 1)
	if err != nil {
		return err
	}
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	r.w.Array(len(fields))
	changed := false
	for _, field := range fields {
		was, ok, err := r.sp.FieldExpiry(&row, field)
		switch {
		case err != nil:
			return err
		case !ok:
			r.w.Int(fieldAbsent)
			continue
		case was == 0:
			r.w.Int(fieldPermanent)
			continue
		}
		if err := r.sp.SetFieldExpiry(r.args[1], &row, field, was, keyspace.NoExpiry); err != nil {
			return err
		}
		changed = true
		r.w.Int(fieldDone)
	}
	if !changed {
		return nil
	}
	return r.save(&row)
}

// fieldOptions are what stands between the key and FIELDS in HGETEX and HSETEX.
type fieldOptions struct {
	expiry        int64 // ms; 0: none is given
	persist, keep bool
	fnx, fxx      bool
	next          int // position of FIELDS
}

func parseFieldOptions(r *request) (o fieldOptions, err error) {
	set := r.cmd.name == "hsetex"
	i := 2
	for ; i < len(r.args) && !r.is(i, "fields"); i++ {
		given := o.expiry != 0 || o.persist || o.keep
		switch word := r.word(i); {
		case set && word == "FNX" && !o.fxx:
			o.fnx = true
		case set && word == "FXX" && !o.fnx:
			o.fxx = true
		case set && word == "KEEPTTL" && !given:
			o.keep = true
		case !set && word == "PERSIST" && !given:
			o.persist = true
		default:
			at, ok, err := r.parseExpiry(i)
			switch {
			case err != nil:
				return o, err
			case !ok || given:
				return o, errSyntax
			}
			o.expiry = at
			i++
		}
	}
	o.next = i
	return o, nil
}

func hgetexCommand(r *request) error {
	o, err := parseFieldOptions(r)
	if err != nil {
		return err
	}
	fields, err := parseFields(r, o.next, 1)
	if err != nil {
		return err
	}
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	r.w.Array(len(fields))
	changed := false
	for _, field := range fields {
		value, ok, err := r.sp.GetField(&row, field)
		if err != nil {
			return err
		}
		r.bulkOrNull(value, ok)
		if !ok || o.expiry == 0 && !o.persist {
			continue
		}
		was, _, err := r.sp.FieldExpiry(&row, field)
		if err != nil {
			return err
		}
		switch {
		case o.expiry > 0 && o.expiry <= r.sp.Now:
			_, err = r.sp.DeleteField(&row, field)
		case was == o.expiry: // PERSIST of a permanent field, too
			continue
		default:
			err = r.sp.SetFieldExpiry(r.args[1], &row, field, was, o.expiry)
		}
		if err != nil {
			return err
		}
		changed = true
	}
	if !changed {
		return nil
	}
	return r.save(&row)
}

func hgetdelCommand(r *request) error {
	fields, err := parseFields(r, 2, 1)
	if err != nil {
		return err
	}
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	r.w.Array(len(fields))
	changed := false
	for _, field := range fields {
		value, ok, err := r.sp.GetField(&row, field)
		if err != nil {
			return err
		}
		r.bulkOrNull(value, ok)
		if !ok {
			continue
		}
		if _, err := r.sp.DeleteField(&row, field); err != nil {
			return err
		}
		changed = true
	}
	if !changed {
		return nil
	}
	return r.save(&row)
}

func hsetexCommand(r *request) error {
	o, err := parseFieldOptions(r)
	if err != nil {
		return err
	}
	list, err := parseFields(r, o.next, 2)
	if err != nil {
		return err
	}
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	for i := 0; (o.fnx || o.fxx) && i < len(list); i += 2 {
		_, ok, err := r.sp.GetField(&row, list[i])
		if err != nil {
			return err
		}
		if ok == o.fnx {
			r.w.Int(0)
			return nil
		}
	}
	r.w.Int(1)
	if row, err = r.sp.LoadOrCreate(r.args[1], keyspace.TypeHash); err != nil {
		return err
	}
	expiry := o.expiry
	if o.keep {
		expiry = keyspace.KeepExpiry
	}
	for i := 0; i < len(list); i += 2 {
		if expiry > 0 && expiry <= r.sp.Now {
			_, err = r.sp.DeleteField(&row, list[i])
		} else {
			_, err = r.sp.SetField(r.args[1], &row, list[i], list[i+1], expiry)
		}
		if err != nil {
			return err
		}
	}
	return r.save(&row)
}
