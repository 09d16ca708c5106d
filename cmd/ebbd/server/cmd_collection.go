package server

import (
	"bytes"
	"iter"
	"math"
	"math/rand/v2"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
)

// loadNamed loads the collection at the first key, of the type that the name of the command begins
// with: HLEN, LLEN, SCARD, ZCARD.
func (r *request) loadNamed() (keyspace.Row, error) {
	t := map[byte]keyspace.Type{
		'h': keyspace.TypeHash, 'l': keyspace.TypeList, 's': keyspace.TypeSet, 'z': keyspace.TypeZSet,
	}[r.cmd.name[0]]
	return r.sp.LoadAs(r.args[1], t)
}

// elements are the names and values of a hash, set or sorted set from one on.
func (r *request) elements(row *keyspace.Row, from []byte) iter.Seq2[[]byte, []byte] {
	if row.Type != keyspace.TypeHash {
		return r.sp.Members(row, from)
	}
	return func(yield func(name, value []byte) bool) {
		for f := range r.sp.Fields(row, from) {
			if !yield(f.Name, f.Value) {
				return
			}
		}
	}
}

// cardCommand is HLEN, LLEN, SCARD and ZCARD.
func cardCommand(r *request) error {
	row, err := r.loadNamed()
	if err != nil {
		return err
	}
	n, err := r.sp.FieldCount(&row)
	r.w.Int(n)
	return err
}

func saddCommand(r *request) error {
	row, err := r.sp.LoadOrCreate(r.args[1], keyspace.TypeSet)
	if err != nil {
		return err
	}
	return r.changeEach(&row, r.sp.AddMember)
}

// removeCommand is HDEL, SREM and ZREM.
func removeCommand(r *request) error {
	row, err := r.loadNamed()
	if err != nil {
		return err
	}
	switch row.Type {
	case keyspace.TypeHash:
		return r.changeEach(&row, r.sp.DeleteField)
	case keyspace.TypeSet:
		return r.changeEach(&row, r.sp.RemoveMember)
	}
	return r.changeEach(&row, func(row *keyspace.Row, member []byte) (bool, error) {
		score, ok, err := r.sp.Score(row, member)
		if err != nil || !ok {
			return false, err
		}
		return true, r.sp.RemoveScore(row, member, score)
	})
}

// changeEach changes the element of each argument behind the key and replies with the number of those
// that were changed.
func (r *request) changeEach(
	row *keyspace.Row, change func(*keyspace.Row, []byte) (changed bool, err error),
) error {
	n := int64(0)
	for _, name := range r.args[2:] {
		changed, err := change(row, name)
		if err != nil {
			return err
		}
		if changed {
			n++
		}
	}
	r.w.Int(n)
	if n == 0 {
		return nil
	}
	return r.save(row)
}

// firstThere returns the first of the keys that has a collection of the type, or a row without type.
func (r *request) firstThere(keys [][]byte, t keyspace.Type) (key []byte, row keyspace.Row, err error) {
	for _, key = range keys {
		if row, err = r.sp.LoadAs(key, t); err != nil || row.Type != 0 {
			break
		}
	}
	return key, row, err
}

// collectionScanCommand is HSCAN, SSCAN and ZSCAN, in the order of names.
func collectionScanCommand(r *request) error {
	a, err := r.parseScan(2)
	if err != nil {
		return err
	}
	row, err := r.loadNamed()
	if err != nil {
		return err
	}
	if err := r.resume(&a, row.ID); err != nil {
		return err
	}
	var next []byte
	var found [][]byte
	looked := 0
	for name, value := range r.elements(&row, a.from) {
		if looked++; looked > a.count {
			next = append([]byte{}, name...)
			break
		}
		if !a.matches(name) {
			continue
		}
		found = append(found, bytes.Clone(name))
		switch {
		case row.Type == keyspace.TypeZSet:
			score, err := keyspace.DecodeScore(value)
			if err != nil {
				return err
			}
			found = append(found, []byte(formatDouble(score)))
		case row.Type == keyspace.TypeHash && !a.noValues:
			found = append(found, bytes.Clone(value))
		}
	}
	r.cursor(row.ID, next)
	r.bulks(found)
	return r.tx.Err()
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
func pickRandom(r *request, row *keyspace.Row, size int64, n int, repeat bool) ([]pick, error) {
	if size == 0 || n == 0 {
		return nil, nil
	}
	if size > walkedElements && (repeat || int64(n) < size/8) {
		return pickSeeking(r, row, n, repeat)
	}
	var all []pick
	for name, value := range r.elements(row, nil) {
		all = append(all, pick{bytes.Clone(name), bytes.Clone(value)})
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
func pickSeeking(r *request, row *keyspace.Row, n int, repeat bool) ([]pick, error) {
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

// randomCommand is HRANDFIELD, SRANDMEMBER and ZRANDMEMBER.
func randomCommand(r *request) error {
	option := map[byte]string{'h': "withvalues", 'z': "withscores"}[r.cmd.name[0]]
	pairs := len(r.args) == 4
	if len(r.args) > 4 || pairs && (option == "" || !r.is(3, option)) {
		return errSyntax
	}
	n, repeat := 1, false
	var err error
	if len(r.args) > 2 {
		if n, repeat, err = r.randomCount(2); err != nil {
			return err
		}
	}
	row, err := r.loadNamed()
	if err != nil {
		return err
	}
	size, err := r.sp.FieldCount(&row)
	if err != nil {
		return err
	}
	chosen, err := pickRandom(r, &row, size, n, repeat)
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
	nested := r.arrayOf(len(chosen), pairs)
	for _, p := range chosen {
		if nested {
			r.w.Array(2)
		}
		r.w.Bulk(p.name)
		switch {
		case pairs && row.Type == keyspace.TypeHash:
			r.w.Bulk(p.value)
		case pairs:
			score, err := keyspace.DecodeScore(p.value)
			if err != nil {
				return err
			}
			r.w.Double(score)
		}
	}
	return nil
}
