package server

import (
	"errors"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
)

func dumpCommand(r *request) error {
	row, err := r.sp.Load(r.args[1])
	if err != nil {
		return err
	}
	if row.Type == 0 {
		r.w.Null()
		return nil
	}
	b, err := r.sp.Dump(&row)
	r.w.Bulk(b)
	return err
}

func restoreCommand(r *request) error {
	ttl, err := r.int(2)
	if err != nil {
		return err
	}
	replace, absolute := false, false
	for i := 4; i < len(r.args); i++ {
		switch word := r.word(i); {
		case word == "REPLACE":
			replace = true
		case word == "ABSTTL":
			absolute = true
		case (word == "IDLETIME" || word == "FREQ") && i+1 < len(r.args):
			if n, err := r.int(i + 1); err != nil || n < 0 {
				return errNotInt
			}
			i++
		default:
			return errSyntax
		}
	}
	if ttl < 0 {
		return replyError("ERR Invalid TTL value, must be >= 0")
	}
	expiry := int64(keyspace.NoExpiry)
	if ttl > 0 {
		var ok bool
		if expiry, ok = expiryInstant(ttl, r.sp.Now, true, absolute); !ok {
			return errExpireTime("restore")
		}
	}
	key := r.args[1]
	target, err := r.sp.Load(key)
	if err != nil {
		return err
	}
	if target.Type != 0 && !replace {
		return replyError("BUSYKEY Target key name already exists.")
	}
	r.touch(key)
	r.w.Simple("OK")
	if expiry > 0 && expiry <= r.sp.Now {
		if target.Type == 0 {
			return nil
		}
		return r.sp.Delete(key, &target)
	}
	err = r.sp.Restore(key, r.args[3], &target, expiry)
	if errors.Is(err, keyspace.ErrBadDump) {
		return replyError("ERR DUMP payload version or checksum are wrong")
	}
	return err
}
