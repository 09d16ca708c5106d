package server

import (
	"math"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
)

// delCommand is DEL and UNLINK: rows of large collections are always deleted later, in steps.
func delCommand(r *request) error {
	deleted := int64(0)
	for _, key := range r.args[1:] {
		row, err := r.sp.Load(key)
		if err != nil {
			return err
		}
		if row.Type == 0 {
			continue
		}
		if err := r.sp.Delete(key, &row); err != nil {
			return err
		}
		r.touch(key)
		deleted++
	}
	r.w.Int(deleted)
	return nil
}

// existsCommand is EXISTS and TOUCH.
func existsCommand(r *request) error {
	n := int64(0)
	for _, key := range r.args[1:] {
		row, err := r.sp.Load(key)
		if err != nil {
			return err
		}
		r.found(row.Type != 0)
		if row.Type != 0 {
			n++
		}
	}
	r.w.Int(n)
	return nil
}

func typeCommand(r *request) error {
	row, err := r.sp.Load(r.args[1])
	r.w.Simple(row.Type.String())
	return err
}

func randomkeyCommand(r *request) error {
	key, ok, err := r.sp.RandomKey()
	if !ok {
		r.w.Null()
		return err
	}
	r.w.Bulk(key)
	return nil
}

// renameCommand is RENAME and RENAMENX.
func renameCommand(r *request) error {
	from, to := r.args[1], r.args[2]
	onlyNew := r.cmd.name == "renamenx"
	row, err := r.sp.Load(from)
	if err != nil {
		return err
	}
	if row.Type == 0 {
		return errNoKey
	}
	target, err := r.sp.Load(to)
	if err != nil {
		return err
	}
	if onlyNew && target.Type != 0 {
		r.w.Int(0)
		return nil
	}
	if string(from) != string(to) {
		if err := r.sp.Rename(from, &row, to, &target); err != nil {
			return err
		}
		r.touchAs(from, notifyGeneric, "rename_from")
		r.touchAs(to, notifyGeneric, "rename_to")
	}
	if onlyNew {
		r.w.Int(1)
		return nil
	}
	return r.ok(nil)
}

// otherDB parses the number of another database.
func (r *request) otherDB(i int) (int, error) {
	n, ok := parseInt(r.args[i])
	if !ok {
		return 0, errNotInt
	}
	if n < 0 || n >= int64(r.s.o.Databases) {
		return 0, errDBIndex
	}
	return int(n), nil
}

func copyCommand(r *request) error {
	from, to := r.args[1], r.args[2]
	db, replace := r.c.db, false
	for i := 3; i < len(r.args); i++ {
		switch {
		case r.is(i, "replace"):
			replace = true
		case r.is(i, "db") && i+1 < len(r.args):
			var err error
			if db, err = r.otherDB(i + 1); err != nil {
				return err
			}
			i++
		default:
			return errSyntax
		}
	}
	if db == r.c.db && string(from) == string(to) {
		return replyError("ERR source and destination objects are the same")
	}
	return r.copyTo(from, db, to, replace, false)
}

func moveCommand(r *request) error {
	db, err := r.otherDB(2)
	if err != nil {
		return err
	}
	if db == r.c.db {
		return replyError("ERR source and destination objects are the same")
	}
	return r.copyTo(r.args[1], db, r.args[1], false, true)
}

// copyTo copies or moves a key and replies 1, or 0 if there is nothing to copy or the target
// exists.
func (r *request) copyTo(from []byte, db int, to []byte, replace, move bool) error {
	row, err := r.sp.Load(from)
	if err != nil {
		return err
	}
	other := r.s.store.Space(r.tx, db)
	target, err := other.Load(to)
	if err != nil {
		return err
	}
	if row.Type == 0 || target.Type != 0 && !replace {
		r.w.Int(0)
		return nil
	}
	if err := r.sp.Copy(from, &row, other, to, &target); err != nil {
		return err
	}
	if move {
		if err := r.sp.Delete(from, &row); err != nil {
			return err
		}
		r.touchAs(from, notifyGeneric, "move_from")
	}
	r.s.modified(db, [][]byte{to})
	event := "copy_to"
	if move {
		event = "move_to"
	}
	r.eventOf(db, notifyGeneric, event, to)
	r.w.Int(1)
	return nil
}

// objectCommand replies for OBJECT. Encodings are those that Redis would have: tools read them.
func objectCommand(r *request) error {
	if r.word(1) == "HELP" {
		return help(r, "ENCODING <key>", "FREQ <key>", "IDLETIME <key>", "REFCOUNT <key>")
	}
	if len(r.args) != 3 {
		return errSubcommand(r)
	}
	row, err := r.sp.Load(r.args[2])
	if err != nil {
		return err
	}
	if row.Type == 0 {
		r.w.Null()
		return nil
	}
	switch r.word(1) {
	case "ENCODING":
		r.w.BulkString(encoding(&row))
	case "REFCOUNT":
		r.w.Int(1)
	case "IDLETIME":
		r.w.Int(0)
	case "FREQ":
		return replyError(
			"ERR An LFU maxmemory policy is not selected, access frequency not tracked. " +
				"Please note that when switching between policies at runtime LRU and LFU data will take " +
				"some time to adjust.",
		)
	default:
		return errSubcommand(r)
	}
	return nil
}

func encoding(row *keyspace.Row) string {
	const small = 128
	switch row.Type {
	case keyspace.TypeString:
		if _, ok := parseInt(row.Value); ok {
			return "int"
		}
		if len(row.Value) <= 44 {
			return "embstr"
		}
		return "raw"
	case keyspace.TypeList:
		if row.Count <= small {
			return "listpack"
		}
		return "quicklist"
	case keyspace.TypeHash:
		if row.Count <= small && row.HasFieldTTL() {
			return "listpackex"
		}
	case keyspace.TypeZSet:
		if row.Count > small {
			return "skiplist"
		}
	}
	if row.Count <= small {
		return "listpack"
	}
	return "hashtable"
}

// expireUnits says what the name of a command of the EXPIRE family means.
func expireUnits(name string) (milliseconds, absolute bool) {
	switch name {
	case "expire", "hexpire", "ttl", "httl":
		return false, false
	case "expireat", "hexpireat", "expiretime", "hexpiretime":
		return false, true
	case "pexpire", "hpexpire", "pttl", "hpttl":
		return true, false
	}
	return true, true
}

// expiryInstant returns the instant that an argument means, in ms. ok false: it does not fit.
func expiryInstant(n, now int64, milliseconds, absolute bool) (at int64, ok bool) {
	if !milliseconds {
		if n > math.MaxInt64/1000 || n < math.MinInt64/1000 {
			return 0, false
		}
		n *= 1000
	}
	if absolute {
		return n, true
	}
	if n > math.MaxInt64-now {
		return 0, false
	}
	return n + now, true
}

func errExpireTime(name string) error {
	return replyError("ERR invalid expire time in '" + name + "' command")
}

// expireCondition is NX, XX, GT and LT of the EXPIRE family.
type expireCondition struct{ nx, xx, gt, lt bool }

func (e *expireCondition) parse(word string) bool {
	switch word {
	case "NX":
		e.nx = true
	case "XX":
		e.xx = true
	case "GT":
		e.gt = true
	case "LT":
		e.lt = true
	default:
		return false
	}
	return true
}

func (e *expireCondition) check() error {
	switch {
	case e.nx && (e.xx || e.gt || e.lt):
		return replyError("ERR NX and XX, GT or LT options at the same time are not compatible")
	case e.gt && e.lt:
		return replyError("ERR GT and LT options at the same time are not compatible")
	}
	return nil
}

// holds says whether the expiry was may become at. A permanent key ends later than any.
func (e *expireCondition) holds(was, at int64) bool {
	switch {
	case e.nx && was != 0, e.xx && was == 0:
		return false
	case e.gt && (was == 0 || at <= was):
		return false
	case e.lt && was != 0 && at >= was:
		return false
	}
	return true
}

func expireCommand(r *request) error {
	milliseconds, absolute := expireUnits(r.cmd.name)
	n, err := r.int(2)
	if err != nil {
		return err
	}
	var cond expireCondition
	for i := 3; i < len(r.args); i++ {
		if !cond.parse(r.word(i)) {
			return replyError("ERR Unsupported option " + string(r.args[i]))
		}
	}
	if err := cond.check(); err != nil {
		return err
	}
	at, ok := expiryInstant(n, r.sp.Now, milliseconds, absolute)
	if !ok {
		return errExpireTime(r.cmd.name)
	}
	key := r.args[1]
	row, err := r.sp.Load(key)
	if err != nil {
		return err
	}
	if row.Type == 0 {
		r.w.Int(0)
		return nil
	}
	was, err := r.sp.Expiry(key, &row)
	if err != nil {
		return err
	}
	if !cond.holds(was, at) {
		r.w.Int(0)
		return nil
	}
	r.w.Int(1)
	if at <= r.sp.Now {
		r.touchAs(key, notifyGeneric, "del")
		return r.sp.Delete(key, &row)
	}
	r.touch(key)
	return r.sp.SetExpiry(key, &row, at)
}

func persistCommand(r *request) error {
	key := r.args[1]
	row, err := r.sp.Load(key)
	if err != nil {
		return err
	}
	was := int64(0)
	if row.Type != 0 {
		if was, err = r.sp.Expiry(key, &row); err != nil {
			return err
		}
	}
	if was == 0 {
		r.w.Int(0)
		return nil
	}
	r.touch(key)
	r.w.Int(1)
	return r.sp.SetExpiry(key, &row, keyspace.NoExpiry)
}

// ttlCommand is TTL, PTTL, EXPIRETIME and PEXPIRETIME.
func ttlCommand(r *request) error {
	milliseconds, absolute := expireUnits(r.cmd.name)
	row, err := r.sp.Load(r.args[1])
	if err != nil {
		return err
	}
	r.found(row.Type != 0)
	if row.Type == 0 {
		r.w.Int(-2)
		return nil
	}
	at, err := r.sp.Expiry(r.args[1], &row)
	r.w.Int(expiryReply(at, r.sp.Now, milliseconds, absolute))
	return err
}

// expiryReply is the number for an expiry; -1: there is none. Seconds are rounded to the nearest,
// as in Redis.
func expiryReply(at, now int64, milliseconds, absolute bool) int64 {
	switch {
	case at == 0:
		return -1
	case absolute && milliseconds:
		return at
	case absolute:
		return (at + 500) / 1000
	case milliseconds:
		return at - now
	}
	return (at - now + 500) / 1000
}
