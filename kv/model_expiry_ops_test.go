package kv_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// familyVerbs are what *kv.CF and *kv.Family have in common.
type familyVerbs interface {
	points
	DeleteRange(lo, hi []byte) error
	DeletePrefix(p []byte) error
	Clear() error
	PurgeExpired(ctx context.Context, o kv.PurgeOptions) (kv.PurgeResult, error)
}

// on is one operation with what it works on.
type on struct {
	r     *scriptRun
	s     step
	name  string
	v     familyVerbs
	key   string
	arg   int
	state modelState
	f     *modelFamily // nil: there is none
	now   int64
}

func (o *on) k() []byte { return []byte(o.key) }

// ttl is a duration that the argument stands for; often short.
func (o *on) ttl() time.Duration {
	if o.arg%7 == 0 {
		return time.Duration(o.arg+1) * time.Hour
	}
	return time.Duration(o.arg+1)*31*time.Millisecond - 5*time.Microsecond
}

func (o *on) value() []byte { return []byte(strings.Repeat(string(rune('a'+o.arg%26)), o.arg%40)) }

// live is the row of the key, if it is there and not expired.
func (o *on) live() (modelRow, bool) {
	row, ok := o.f.rows[o.key]
	return row, ok && !(row.expiry != 0 && o.now >= row.expiry)
}

// usual is the expiry that Put gives.
func (o *on) usual() int64 {
	if o.f.defaultTTL == 0 {
		return 0
	}
	return o.now + o.f.defaultTTL
}

// after is the expiry of o.ttl().
func (o *on) after() int64 { return o.now + (o.ttl() + time.Millisecond - 1).Milliseconds() }

func (o *on) set(value []byte, expiry int64) { o.f.rows[o.key] = modelRow{string(value), expiry} }

// missed notes the key if it is expired, as reads do; a one-shot read then evicts what is noted, if
// that is a batch.
func (o *on) missed() {
	row, ok := o.f.rows[o.key]
	if _, live := o.live(); !ok || live {
		return
	}
	o.r.note(o.name, o.f, o.key, row.expiry)
	if o.r.tx == nil && len(o.r.notes) >= 256 {
		o.r.evict(o.now)
	}
}

func expect(what string, err, want error) error {
	if (want == nil) != (err == nil) || (want != nil && !errors.Is(err, want)) {
		return fmt.Errorf("%s: error %v, want %v", what, err, want)
	}
	return nil
}

func same[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: %v, want %v", what, got, want)
	}
	return nil
}

// kindOf is an operation of the scripts. Those with verbs work on a family that is there, one-shot
// or in the open transaction; write says that they begin a write transaction.
type kindOf struct {
	name   string
	weight int
	write  bool
	run    func(o *on) error
}

var readKinds = []kindOf{
	{"get", 8, false, func(o *on) error {
		row, live := o.live()
		got, err := o.v.Get(o.k())
		if !live {
			o.missed()
			return expect("get", err, kv.ErrNotFound)
		}
		return errors.Join(expect("get", err, nil), same("get", string(got), row.value))
	}},
	{"getttl", 3, false, func(o *on) error {
		row, live := o.live()
		got, left, err := o.v.GetTTL(o.k())
		if !live {
			o.missed()
			return expect("getttl", err, kv.ErrNotFound)
		}
		return errors.Join(expect("getttl", err, nil), same("getttl", string(got), row.value),
			same("left", left, leftOf(row, o.now)))
	}},
	{"has", 3, false, func(o *on) error {
		_, live := o.live()
		got, err := o.v.Has(o.k())
		if !live {
			o.missed()
		}
		return errors.Join(expect("has", err, nil), same("has", got, live))
	}},
	{"size", 2, false, func(o *on) error {
		row, live := o.live()
		got, err := o.v.Size(o.k())
		if !live {
			o.missed()
			return expect("size", err, kv.ErrNotFound)
		}
		return errors.Join(expect("size", err, nil), same("size", got, len(row.value)))
	}},
	{"expiry", 2, false, func(o *on) error {
		row, live := o.live()
		got, err := o.v.Expiry(o.k())
		if !live {
			return expect("expiry", err, kv.ErrNotFound)
		}
		want := time.Time{}
		if row.expiry != 0 {
			want = time.UnixMilli(row.expiry)
		}
		return errors.Join(expect("expiry", err, nil), same("expiry", got, want))
	}},
}

func leftOf(row modelRow, now int64) time.Duration {
	if row.expiry == 0 {
		return kv.NoExpiry
	}
	return max(0, time.Duration(row.expiry-now)*time.Millisecond)
}

var writeKinds = []kindOf{
	{"put", 8, true, func(o *on) error {
		o.set(o.value(), o.usual())
		return expect("put", o.v.Put(o.k(), o.value()), nil)
	}},
	{"putttl", 16, true, func(o *on) error {
		o.set(o.value(), o.after())
		return expect("putttl", o.v.PutTTL(o.k(), o.value(), o.ttl()), nil)
	}},
	{"putat", 4, true, func(o *on) error {
		at := time.UnixMilli(o.now).Add(o.ttl() - 40*time.Millisecond)
		err := o.v.PutExpireAt(o.k(), o.value(), at)
		if !at.After(time.UnixMilli(o.now)) {
			return expect("putat", err, kv.ErrInvalidTTL)
		}
		o.set(o.value(), at.Add(time.Millisecond-1).UnixMilli())
		return expect("putat", err, nil)
	}},
	{"badttl", 1, true, func(o *on) error {
		return errors.Join(expect("putttl 0", o.v.PutTTL(o.k(), o.value(), 0), kv.ErrInvalidTTL))
	}},
	{"keep", 4, true, func(o *on) error {
		row, live := o.live()
		if !live {
			row.expiry = o.usual()
		}
		o.set(o.value(), row.expiry)
		_, err := o.v.PutWith(o.k(), o.value(), kv.PutOptions{KeepTTL: true})
		return expect("keep", err, nil)
	}},
	{"permanent", 2, true, func(o *on) error {
		o.set(o.value(), 0)
		_, err := o.v.PutWith(o.k(), o.value(), kv.PutOptions{NoExpiry: true})
		return expect("permanent", err, nil)
	}},
	{"ifabsent", 5, true, func(o *on) error {
		_, live := o.live()
		if !live {
			o.set(o.value(), o.after())
		}
		written, err := o.v.PutWith(o.k(), o.value(), kv.PutOptions{IfAbsent: true, TTL: o.ttl()})
		return errors.Join(expect("ifabsent", err, nil), same("written", written, !live))
	}},
	{"ifpresent", 3, true, func(o *on) error {
		_, live := o.live()
		if live {
			o.set(o.value(), o.usual())
		}
		written, err := o.v.PutWith(o.k(), o.value(), kv.PutOptions{IfPresent: true})
		return errors.Join(expect("ifpresent", err, nil), same("written", written, live))
	}},
	{"del", 5, true, func(o *on) error {
		delete(o.f.rows, o.key)
		return expect("del", o.v.Delete(o.k()), nil)
	}},
	{"expire", 6, true, func(o *on) error {
		row, live := o.live()
		err := o.v.Expire(o.k(), o.ttl())
		if !live {
			return expect("expire", err, kv.ErrNotFound)
		}
		o.set([]byte(row.value), o.after())
		return expect("expire", err, nil)
	}},
	{"touch", 4, true, func(o *on) error {
		row, live := o.live()
		got, err := o.v.GetAndExpire(o.k(), o.ttl())
		if !live {
			return expect("touch", err, kv.ErrNotFound)
		}
		o.set([]byte(row.value), o.after())
		return errors.Join(expect("touch", err, nil), same("touch", string(got), row.value))
	}},
	{"expireat", 3, true, func(o *on) error {
		row, live := o.live()
		at := time.UnixMilli(o.now + 1 + int64(o.arg)*17)
		err := o.v.ExpireAt(o.k(), at)
		if !live {
			return expect("expireat", err, kv.ErrNotFound)
		}
		o.set([]byte(row.value), at.UnixMilli())
		return expect("expireat", err, nil)
	}},
	{"persist", 3, true, func(o *on) error {
		row, live := o.live()
		err := o.v.Persist(o.k())
		if !live {
			return expect("persist", err, kv.ErrNotFound)
		}
		o.set([]byte(row.value), 0)
		return expect("persist", err, nil)
	}},
	{"incr", 6, true, func(o *on) error {
		row, live := o.live()
		var ttl time.Duration
		expiry := o.usual()
		if o.arg%2 == 0 {
			ttl, expiry = o.ttl(), o.after()
		}
		sum, err := o.v.Increment(o.k(), int64(o.arg)-100, ttl)
		var old int64
		if live {
			if len(row.value) != 8 {
				return expect("incr", err, kv.ErrNotCounter)
			}
			old, expiry = int64(binary.BigEndian.Uint64([]byte(row.value))), row.expiry
		}
		if want := old + int64(o.arg) - 100; (want > old) == (o.arg > 100) {
			o.set(binary.BigEndian.AppendUint64(nil, uint64(want)), expiry)
			return errors.Join(expect("incr", err, nil), same("sum", sum, want))
		}
		return expect("incr", err, kv.ErrNotCounter)
	}},
	{"swap", 5, true, func(o *on) error {
		row, live := o.live()
		var old []byte
		opts, expiry := kv.PutOptions{}, o.usual()
		switch o.arg % 4 {
		case 0:
			old = []byte(row.value)
			opts.KeepTTL = true
			expiry = row.expiry
		case 1:
			old = []byte(row.value)
			opts.TTL, expiry = o.ttl(), o.after()
		case 2:
			opts.TTL, expiry = o.ttl(), o.after()
		case 3:
			old = []byte("no such value")
		}
		want := (old == nil && !live) || (live && old != nil && string(old) == row.value)
		if want {
			o.set(o.value(), expiry)
		}
		swapped, err := o.v.CompareAndSwap(o.k(), old, o.value(), opts)
		return errors.Join(expect("swap", err, nil), same("swapped", swapped, want))
	}},
	{"cad", 3, true, func(o *on) error {
		row, live := o.live()
		if live {
			delete(o.f.rows, o.key)
		}
		deleted, err := o.v.CompareAndDelete(o.k(), []byte(row.value))
		return errors.Join(expect("cad", err, nil), same("deleted", deleted, live))
	}},
	{"range", 3, true, func(o *on) error {
		lo, hi := o.key, modelKeys[o.arg%len(modelKeys)]
		if o.arg%5 == 0 {
			hi = ""
		}
		maps.DeleteFunc(o.f.rows, func(k string, _ modelRow) bool { return k >= lo && (hi == "" || k < hi) })
		return expect("range", o.v.DeleteRange([]byte(lo), []byte(hi)), nil)
	}},
	{"prefix", 2, true, func(o *on) error {
		p := o.key[:1]
		maps.DeleteFunc(o.f.rows, func(k string, _ modelRow) bool { return strings.HasPrefix(k, p) })
		return expect("prefix", o.v.DeletePrefix([]byte(p)), nil)
	}},
	{"clear", 1, true, func(o *on) error {
		clear(o.f.rows)
		return expect("clear", o.v.Clear(), nil)
	}},
}

var verbKinds = slices.Concat(readKinds, writeKinds)

// modelRow is a row of the model. expiry 0: permanent.
type modelRow struct {
	value  string
	expiry int64
}

type modelFamily struct {
	base       uint64 // of the store's family: notes name it
	defaultTTL int64  // milliseconds
	rows       map[string]modelRow
}

type modelState map[string]*modelFamily

func (s modelState) clone() modelState {
	c := make(modelState, len(s))
	for name, f := range s {
		c[name] = &modelFamily{f.base, f.defaultTTL, maps.Clone(f.rows)}
	}
	return c
}

// modelNote is an expired key that a reader met.
type modelNote struct {
	base        uint64
	family, key string
	expiry      int64
}

// sweptRows is what Stats says of deleted keys, by the family's number.
type sweptRows map[uint64]kv.FamilyStats

func (s sweptRows) add(f *modelFamily, key string, evicted bool) {
	n := s[f.base]
	if evicted {
		n.Evicted++
	} else {
		n.Purged++
	}
	n.BytesReclaimed += int64(len(key) + len(f.rows[key].value))
	s[f.base] = n
}

// dueOf is a family's expired keys in the order in which a purge deletes them.
func dueOf(f *modelFamily, now int64) []string {
	var keys []string
	for k, row := range f.rows {
		if row.expiry != 0 && now >= row.expiry {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(f.rows[a].expiry, f.rows[b].expiry), strings.Compare(a, b))
	})
	return keys
}

func compareModel(tx *kv.Tx, state modelState, now int64) error {
	if err := same("now", tx.Now().UnixMilli(), now); err != nil {
		return err
	}
	names, err := tx.ListCFs()
	if err != nil {
		return err
	}
	if want := slices.Sorted(maps.Keys(state)); !slices.Equal(names, want) {
		return fmt.Errorf("families %q, want %q", names, want)
	}
	for _, name := range names {
		if err := compareFamily(tx, name, state[name], now); err != nil {
			return fmt.Errorf("family %q: %w", name, err)
		}
	}
	return tx.Err()
}

func compareFamily(tx *kv.Tx, name string, f *modelFamily, now int64) error {
	v := tx.CF(name)
	trees, err := kv.RawTrees(tx, name)
	if err != nil {
		return err
	}
	if err := compareTrees(trees, f); err != nil {
		return err
	}
	o, err := tx.CFOptions(name)
	if err := errors.Join(expect("options", err, nil), same("default ttl", o.DefaultTTL.Milliseconds(), f.defaultTTL)); err != nil {
		return err
	}
	var live, byExpiry []string
	for _, row := range trees[0] {
		want, ok := f.rows[row.Key], row.Tag == 0 || now < f.rows[row.Key].expiry
		if ok {
			live = append(live, row.Key)
		}
		left, err := v.TTL([]byte(row.Key))
		if err := errors.Join(expect("ttl", err, nil), same("ttl", left, leftOf(want, now))); err != nil {
			return err
		}
	}
	for _, key := range modelKeys {
		value, err := v.Get([]byte(key))
		has, err2 := v.Has([]byte(key))
		want := error(nil)
		if !slices.Contains(live, key) {
			want = kv.ErrNotFound
		}
		if err := errors.Join(expect("get", err, want), expect("has", err2, nil), same("has", has, want == nil),
			same("value", string(value) == f.rows[key].value || want != nil, true)); err != nil {
			return fmt.Errorf("key %.10q: %w", key, err)
		}
	}
	n, err := v.Count()
	if err := errors.Join(expect("count", err, nil), same("count", int(n), len(f.rows))); err != nil {
		return err
	}
	n, err = v.CountLive()
	if err := errors.Join(expect("live", err, nil), same("live", int(n), len(live))); err != nil {
		return err
	}
	return errors.Join(compareCounts(v, f), compareOrder(v, live, f), compareScans(v, live),
		compareExpiring(v, append(byExpiry, dueOf(f, math.MaxInt64)...), f))
}

// compareCounts counts the stored rows between every two keys.
func compareCounts(v *kv.CF, f *modelFamily) error {
	for _, lo := range modelKeys {
		for _, hi := range append([]string{""}, modelKeys...) {
			want := 0
			for k := range f.rows {
				if k >= lo && (hi == "" || k < hi) {
					want++
				}
			}
			got, err := v.CountRange([]byte(lo), []byte(hi))
			if err := errors.Join(expect("count", err, nil), same("count", int(got), want)); err != nil {
				return fmt.Errorf("range [%.10q, %.10q): %w", lo, hi, err)
			}
		}
	}
	return nil
}

// compareTrees compares what is stored.
func compareTrees(trees [3][]kv.RawRow, f *modelFamily) error {
	if len(trees[0]) != len(f.rows) {
		return fmt.Errorf("%d rows stored, want %d", len(trees[0]), len(f.rows))
	}
	var keys, dues []kv.RawRow
	for _, row := range trees[0] {
		want, ok := f.rows[row.Key]
		if !ok || want.value != row.Value || row.Tag != want.expiry {
			return fmt.Errorf("row %.10q is %q with tag %d, want %+v", row.Key, row.Value, row.Tag, want)
		}
		if want.expiry != 0 {
			e := string(binary.BigEndian.AppendUint64(nil, uint64(want.expiry)))
			keys = append(keys, kv.RawRow{Key: row.Key, Value: e})
			dues = append(dues, kv.RawRow{Key: e + row.Key})
		}
	}
	slices.SortFunc(dues, func(a, b kv.RawRow) int { return strings.Compare(a.Key, b.Key) })
	if !slices.Equal(trees[1], keys) {
		return fmt.Errorf("key index %v, want %v", trees[1], keys)
	}
	if !slices.Equal(trees[2], dues) {
		return fmt.Errorf("expiry index %v, want %v", trees[2], dues)
	}
	return nil
}

// compareOrder walks both ways, with a range and with a cursor.
func compareOrder(v *kv.CF, live []string, f *modelFamily) error {
	i := 0
	for k, value := range v.All() {
		if i >= len(live) || live[i] != string(k) || f.rows[live[i]].value != string(value) {
			return fmt.Errorf("row %d forwards is %.10q, want %.10q", i, k, live)
		}
		i++
	}
	if i != len(live) {
		return fmt.Errorf("%d rows forwards, want %d", i, len(live))
	}
	c := v.Cursor()
	for ok := c.Last(); ok; ok = c.Prev() {
		i--
		at, timed := c.Expiry()
		if i < 0 || live[i] != string(c.Key()) || timed != (f.rows[live[i]].expiry != 0) ||
			(timed && at.UnixMilli() != f.rows[live[i]].expiry) {
			return fmt.Errorf("row %d backwards is %.10q at %v, want %.10q", i, c.Key(), at, live)
		}
	}
	if i != 0 {
		return fmt.Errorf("%d rows too few backwards", i)
	}
	// Turning round, and from the middle.
	for j, k := range live {
		if !c.Seek([]byte(k)) || string(c.Key()) != k || c.Prev() != (j > 0) || !c.Next() || string(c.Key()) != k {
			return fmt.Errorf("cursor lost its place at %.10q", k)
		}
	}
	return c.Err()
}

func compareExpiring(v *kv.CF, keys []string, f *modelFamily) error {
	i := 0
	for k, at := range v.Expiring(time.Time{}) {
		if i >= len(keys) || keys[i] != string(k) || f.rows[keys[i]].expiry != at.UnixMilli() {
			return fmt.Errorf("expiring key %d is %.10q at %v, want %.10q", i, k, at, keys)
		}
		i++
	}
	if i != len(keys) {
		return fmt.Errorf("%d expiring keys, want %d", i, len(keys))
	}
	at, ok, err := v.NextExpiry()
	if ok != (len(keys) > 0) || err != nil || (ok && at.UnixMilli() != f.rows[keys[0]].expiry) {
		return fmt.Errorf("next expiry %v %v %v", at, ok, err)
	}
	return nil
}
