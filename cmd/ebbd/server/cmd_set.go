package server

import (
	"bytes"
	"slices"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
)

func (r *request) loadSet(key []byte) (keyspace.Row, error) {
	return r.sp.LoadAs(key, keyspace.TypeSet)
}

// sismemberCommand is SISMEMBER and SMISMEMBER.
func sismemberCommand(r *request) error {
	row, err := r.loadSet(r.args[1])
	if err != nil {
		return err
	}
	if r.cmd.name == "smismember" {
		r.w.Array(len(r.args) - 2)
	}
	for _, member := range r.args[2:] {
		has, err := r.sp.HasMember(&row, member)
		if err != nil {
			return err
		}
		r.intOf(has)
	}
	return nil
}
func smembersCommand(r *request) error {
	row, err := r.loadSet(r.args[1])
	if err != nil {
		return err
	}
	r.w.Set(int(row.Count))
	for member := range r.sp.Members(&row, nil) {
		r.w.Bulk(member)
	}
	return r.tx.Err()
}

func smoveCommand(r *request) error {
	source, target, member := r.args[1], r.args[2], r.args[3]
	from, err := r.loadSet(source)
	if err != nil {
		return err
	}
	if from.Type == 0 {
		r.w.Int(0)
		return nil
	}
	if _, err := r.loadSet(target); err != nil {
		return err
	}
	has, err := r.sp.HasMember(&from, member)
	if err != nil {
		return err
	}
	r.intOf(has)
	if !has || bytes.Equal(source, target) {
		return nil
	}
	if _, err := r.sp.RemoveMember(&from, member); err != nil {
		return err
	}
	if err := r.sp.Save(source, &from); err != nil {
		return err
	}
	to, err := r.sp.LoadOrCreate(target, keyspace.TypeSet)
	if err != nil {
		return err
	}
	if _, err := r.sp.AddMember(&to, member); err != nil {
		return err
	}
	r.touchAs(source, 's', "srem")
	r.touchAs(target, 's', "sadd")
	return r.sp.Save(target, &to)
}
func spopCommand(r *request) error {
	if len(r.args) > 3 {
		return errSyntax
	}
	n := int64(1)
	if len(r.args) == 3 {
		var ok bool
		if n, ok = parseInt(r.args[2]); !ok || n < 0 {
			return errNegativeOnly
		}
	}
	row, err := r.loadSet(r.args[1])
	if err != nil {
		return err
	}
	chosen, err := pickRandom(r, &row, row.Count, int(min(n, row.Count)), false)
	if err != nil {
		return err
	}
	switch {
	case len(r.args) == 3:
		r.w.Set(len(chosen))
	case len(chosen) == 0:
		r.w.Null()
	}
	for _, p := range chosen {
		if _, err := r.sp.RemoveMember(&row, p.name); err != nil {
			return err
		}
		r.w.Bulk(p.name)
	}
	if len(chosen) == 0 {
		return nil
	}
	return r.save(&row)
}

// setOperation is what combines sets.
type setOperation byte

const (
	union setOperation = iota
	intersection
	difference
)

// operationOf returns the operation in the name of a command: SUNION, ZINTERSTORE, ...
func operationOf(name string) setOperation {
	switch name[1] {
	case 'u':
		return union
	case 'i':
		return intersection
	}
	return difference
}

// combine returns the members that the operation gives, sorted. An intersection ends at most
// members; 0: no bound.
func (r *request) combine(op setOperation, keys [][]byte, most int64) ([][]byte, error) {
	rows := make([]keyspace.Row, len(keys))
	for i, key := range keys {
		var err error
		if rows[i], err = r.loadSet(key); err != nil {
			return nil, err
		}
	}
	var found [][]byte
	if op == union {
		seen := make(map[string]bool)
		for i := range rows {
			for member := range r.sp.Members(&rows[i], nil) {
				seen[string(member)] = true
			}
		}
		for member := range seen {
			found = append(found, []byte(member))
		}
		slices.SortFunc(found, bytes.Compare)
		return found, r.tx.Err()
	}
	if op == intersection { // the smallest set is walked over
		slices.SortFunc(rows, func(a, b keyspace.Row) int { return int(a.Count - b.Count) })
	}
	for member := range r.sp.Members(&rows[0], nil) {
		member = bytes.Clone(member)
		keep := true
		for i := range rows[1:] {
			has, err := r.sp.HasMember(&rows[i+1], member)
			if err != nil {
				return nil, err
			}
			if keep = has == (op == intersection); !keep {
				break
			}
		}
		if keep {
			found = append(found, member)
		}
		if most > 0 && int64(len(found)) == most {
			break
		}
	}
	return found, r.tx.Err()
}

// combineCommand is SUNION, SINTER and SDIFF.
func combineCommand(r *request) error {
	found, err := r.combine(operationOf(r.cmd.name), r.args[1:], 0)
	if err != nil {
		return err
	}
	r.w.Set(len(found))
	for _, member := range found {
		r.w.Bulk(member)
	}
	return nil
}

// combineStoreCommand is SUNIONSTORE, SINTERSTORE and SDIFFSTORE.
func combineStoreCommand(r *request) error {
	found, err := r.combine(operationOf(r.cmd.name), r.args[2:], 0)
	if err != nil {
		return err
	}
	target := r.args[1]
	if err := r.replace(target, len(found) > 0); err != nil {
		return err
	}
	r.w.Int(int64(len(found)))
	if len(found) == 0 {
		return nil
	}
	row, err := r.sp.LoadOrCreate(target, keyspace.TypeSet)
	if err != nil {
		return err
	}
	for _, member := range found {
		if _, err := r.sp.AddMember(&row, member); err != nil {
			return err
		}
	}
	return r.sp.Save(target, &row)
}

// replace deletes the key that a STORE command overwrites.
func (r *request) replace(target []byte, stored bool) error {
	old, err := r.sp.Load(target)
	if err != nil {
		return err
	}
	switch {
	case stored:
		r.touch(target)
	case old.Type != 0:
		r.touchAs(target, notifyGeneric, "del")
	}
	if old.Type == 0 {
		return nil
	}
	return r.sp.Delete(target, &old)
}

// limitOption parses an optional LIMIT n at the end of SINTERCARD and ZINTERCARD.
func (r *request) limitOption(i int) (int64, error) {
	if i == len(r.args) {
		return 0, nil
	}
	if i+2 != len(r.args) || !r.is(i, "limit") {
		return 0, errSyntax
	}
	n, ok := parseInt(r.args[i+1])
	if !ok || n < 0 {
		return 0, replyError("ERR LIMIT can't be negative")
	}
	return n, nil
}

// cardKeys is numKeys with the error text of SINTERCARD and ZINTERCARD.
func cardKeys(r *request) (keys [][]byte, next int, err error) {
	keys, next, err = r.numKeys(1)
	if err == errSyntax {
		err = replyError("ERR Number of keys can't be greater than number of args")
	}
	return keys, next, err
}

func sintercardCommand(r *request) error {
	keys, next, err := cardKeys(r)
	if err != nil {
		return err
	}
	most, err := r.limitOption(next)
	if err != nil {
		return err
	}
	found, err := r.combine(intersection, keys, most)
	r.w.Int(int64(len(found)))
	return err
}
