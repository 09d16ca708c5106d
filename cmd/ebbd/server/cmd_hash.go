package server

import (
	"strconv"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
)

func (r *request) loadHash() (keyspace.Row, error) {
	return r.sp.LoadAs(r.args[1], keyspace.TypeHash)
}

// save stores the master row of a collection that has changed.
func (r *request) save(row *keyspace.Row) error {
	r.touch(r.args[1])
	return r.sp.Save(r.args[1], row)
}

// hsetCommand is HSET and HMSET.
func hsetCommand(r *request) error {
	if len(r.args)%2 != 0 {
		return errArity(r.cmd.name)
	}
	row, err := r.sp.LoadOrCreate(r.args[1], keyspace.TypeHash)
	if err != nil {
		return err
	}
	added := int64(0)
	for i := 2; i < len(r.args); i += 2 {
		isNew, err := r.sp.SetField(r.args[1], &row, r.args[i], r.args[i+1], keyspace.NoExpiry)
		if err != nil {
			return err
		}
		if isNew {
			added++
		}
	}
	if r.cmd.name == "hmset" {
		r.w.Simple("OK")
	} else {
		r.w.Int(added)
	}
	return r.save(&row)
}

func hsetnxCommand(r *request) error {
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	_, ok, err := r.sp.FieldExpiry(&row, r.args[2])
	if err != nil {
		return err
	}
	if ok {
		r.w.Int(0)
		return nil
	}
	r.w.Int(1)
	return r.setField(r.args[2], r.args[3], keyspace.NoExpiry)
}

// setField puts one field of the hash and stores its master row.
func (r *request) setField(field, value []byte, expiry int64) error {
	row, err := r.sp.LoadOrCreate(r.args[1], keyspace.TypeHash)
	if err != nil {
		return err
	}
	if _, err := r.sp.SetField(r.args[1], &row, field, value, expiry); err != nil {
		return err
	}
	return r.save(&row)
}

func (r *request) bulkOrNull(value []byte, ok bool) {
	if !ok {
		r.w.Null()
		return
	}
	r.w.Bulk(value)
}

func hgetCommand(r *request) error {
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	value, ok, err := r.sp.GetField(&row, r.args[2])
	r.found(row.Type != 0)
	r.bulkOrNull(value, ok)
	return err
}

func hmgetCommand(r *request) error {
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	r.w.Array(len(r.args) - 2)
	for _, field := range r.args[2:] {
		value, ok, err := r.sp.GetField(&row, field)
		if err != nil {
			return err
		}
		r.bulkOrNull(value, ok)
	}
	return nil
}

func hexistsCommand(r *request) error {
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	_, ok, err := r.sp.GetField(&row, r.args[2])
	r.intOf(ok)
	return err
}

func (r *request) intOf(ok bool) {
	if ok {
		r.w.Int(1)
	} else {
		r.w.Int(0)
	}
}

func hstrlenCommand(r *request) error {
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	value, _, err := r.sp.GetField(&row, r.args[2])
	r.w.Int(int64(len(value)))
	return err
}

// hgetallCommand is HGETALL, HKEYS and HVALS.
func hgetallCommand(r *request) error {
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	n, err := r.sp.FieldCount(&row)
	if err != nil {
		return err
	}
	names, values := r.cmd.name != "hvals", r.cmd.name != "hkeys"
	if names && values {
		r.w.Map(int(n))
	} else {
		r.w.Array(int(n))
	}
	for f := range r.sp.Fields(&row, nil) {
		if names {
			r.w.Bulk(f.Name)
		}
		if values {
			r.w.Bulk(f.Value)
		}
	}
	return r.tx.Err()
}
func hincrbyCommand(r *request) error {
	delta, err := r.int(3)
	if err != nil {
		return err
	}
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	value, ok, err := r.sp.GetField(&row, r.args[2])
	if err != nil {
		return err
	}
	sum, err := addInt(value, ok, delta, replyError("ERR hash value is not an integer"))
	if err != nil {
		return err
	}
	r.w.Int(sum)
	return r.setField(r.args[2], strconv.AppendInt(nil, sum, 10), keyspace.KeepExpiry)
}

func hincrbyfloatCommand(r *request) error {
	if _, ok := parseDecimal(r.args[3]); !ok {
		return errNotFloat
	}
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	value, ok, err := r.sp.GetField(&row, r.args[2])
	if err != nil {
		return err
	}
	if !ok {
		value = []byte("0")
	}
	sum, err := addDecimal(value, r.args[3], replyError("ERR hash value is not a float"))
	if err != nil {
		return err
	}
	r.w.BulkString(sum)
	return r.setField(r.args[2], []byte(sum), keyspace.KeepExpiry)
}
