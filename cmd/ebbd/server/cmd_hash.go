package server

import (
	"bytes"
	"math"
	"math/rand/v2"
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

func hlenCommand(r *request) error {
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	n, err := r.sp.FieldCount(&row)
	r.w.Int(n)
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

func hdelCommand(r *request) error {
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	n := int64(0)
	for _, field := range r.args[2:] {
		deleted, err := r.sp.DeleteField(&row, field)
		if err != nil {
			return err
		}
		if deleted {
			n++
		}
	}
	r.w.Int(n)
	if n == 0 {
		return nil
	}
	return r.save(&row)
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

func hscanCommand(r *request) error {
	a, err := r.parseScan(2)
	if err != nil {
		return err
	}
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	if err := r.resume(&a, row.ID); err != nil {
		return err
	}
	next, names, values := r.collectionScan(&row, a)
	r.cursor(row.ID, next)
	if a.noValues {
		r.bulks(names)
		return nil
	}
	r.w.Array(2 * len(names))
	for i := range names {
		r.w.Bulk(names[i])
		r.w.Bulk(values[i])
	}
	return nil
}

// randomCount is the count argument of HRANDFIELD, SRANDMEMBER and ZRANDMEMBER. A negative one
// allows repetitions.
func (r *request) randomCount(i int) (n int, repeat bool, err error) {
	count, err := r.int(i)
	switch {
	case err != nil:
		return 0, false, err
	case count < -(1<<31) || count > math.MaxInt32:
		return 0, false, replyError(
			"ERR value is out of range, value must between -2147483648 and 2147483647",
		)
	case count < -mostRepeated:
		return 0, false, replyError("ERR value is out of range: at most 1048576 elements are chosen " +
			"with repetition")
	case count < 0:
		return int(-count), true, nil
	}
	return int(count), false, nil
}

// mostRepeated bounds a choice that may repeat elements: its memory does not depend on what is
// stored.
const mostRepeated = 1 << 20

// pick is an element that a random choice has found.
type pick struct{ name, value []byte }

// walkedElements is the size up to which a random choice walks over the whole collection, so that
// all elements have the same probability.
const walkedElements = 4096

// pickRandom chooses n elements of a hash, set or sorted set that has size of them.
func (r *request) pickRandom(row *keyspace.Row, size int64, n int, repeat bool) ([]pick, error) {
	if size == 0 || n == 0 {
		return nil, nil
	}
	if size > walkedElements && (repeat || int64(n) < size/8) {
		return r.pickSeeking(row, n, repeat)
	}
	var all []pick
	if row.Type == keyspace.TypeHash {
		for f := range r.sp.Fields(row, nil) {
			all = append(all, pick{bytes.Clone(f.Name), bytes.Clone(f.Value)})
		}
	} else {
		for member, value := range r.sp.Members(row, nil) {
			all = append(all, pick{bytes.Clone(member), bytes.Clone(value)})
		}
	}
	if err := r.tx.Err(); err != nil {
		return nil, err
	}
	if !repeat {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return all[:min(n, len(all))], nil
	}
	chosen := make([]pick, 0, min(n, 1<<16))
	for range n {
		chosen = append(chosen, all[rand.IntN(len(all))])
	}
	return chosen, nil
}

// pickSeeking seeks elements one by one.
func (r *request) pickSeeking(row *keyspace.Row, n int, repeat bool) ([]pick, error) {
	chosen := make([]pick, 0, min(n, 1<<16))
	seen := make(map[string]bool)
	for len(chosen) < n {
		name, value, ok, err := r.sp.RandomElement(row)
		if err != nil || !ok {
			return chosen, err
		}
		if !repeat && seen[string(name)] {
			continue
		}
		seen[string(name)] = !repeat
		chosen = append(chosen, pick{name, value})
	}
	return chosen, nil
}

func hrandfieldCommand(r *request) error {
	withValues := len(r.args) == 4
	if len(r.args) > 4 || withValues && !r.is(3, "withvalues") {
		return errSyntax
	}
	n, repeat := 1, false
	var err error
	if len(r.args) > 2 {
		if n, repeat, err = r.randomCount(2); err != nil {
			return err
		}
	}
	row, err := r.loadHash()
	if err != nil {
		return err
	}
	size, err := r.sp.FieldCount(&row)
	if err != nil {
		return err
	}
	chosen, err := r.pickRandom(&row, size, n, repeat)
	if err != nil {
		return err
	}
	if len(r.args) == 2 {
		if len(chosen) == 0 {
			r.w.Null()
			return nil
		}
		r.w.Bulk(chosen[0].name)
		return nil
	}
	nested := withValues && r.w.Version >= 3
	if withValues && !nested {
		r.w.Array(2 * len(chosen))
	} else {
		r.w.Array(len(chosen))
	}
	for _, p := range chosen {
		if nested {
			r.w.Array(2)
		}
		r.w.Bulk(p.name)
		if withValues {
			r.w.Bulk(p.value)
		}
	}
	return nil
}
