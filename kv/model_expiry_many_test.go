package kv_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// Operations of the scripts of TestExpiryModel on many keys, on families, and on handles.

// modelHandle is a family that the open transaction has found.
type modelHandle struct {
	cf   *kv.CF
	base uint64
}

var manyKinds = []controlKind{
	{"batch", 10, (*scriptRun).batchStep},
	{"load", 2, (*scriptRun).loadStep},
	{"sweep", 6, (*scriptRun).sweepStep},
	{"rename", 3, (*scriptRun).renameStep},
	{"ensure", 2, func(r *scriptRun, s step) error {
		name, o := modelFamilies[int(s[1])%len(modelFamilies)], kv.CFOptions{
			DefaultTTL: time.Duration(s[3]) * time.Second,
		}
		if r.tx == nil && r.state[name] != nil {
			r.reading() // It looks, and begins no write transaction.
			return expect("ensure", r.db.EnsureCF(name, o), nil)
		}
		state, _ := r.visible(true)
		ensure := r.db.EnsureCF
		if r.tx != nil {
			ensure = r.tx.EnsureCF
		}
		if err := ensure(name, o); err != nil || state[name] != nil {
			return err
		}
		state[name] = &modelFamily{defaultTTL: o.DefaultTTL.Milliseconds(), rows: map[string]modelRow{}}
		find := func(tx *kv.Tx) error {
			f, err := kv.FindFamily(tx, name)
			state[name].base = uint64(f.Base)
			return err
		}
		if r.tx != nil {
			return find(r.tx)
		}
		return r.db.View(find)
	}},
	{"deaf", 3, func(r *scriptRun, s step) error {
		r.deaf = 1 + int(s[3])%4
		r.dull = r.deaf
		return nil
	}},
	{"handle", 3, func(r *scriptRun, s step) error {
		name := modelFamilies[int(s[1])%len(modelFamilies)]
		if r.tx == nil || r.own[name] == nil || len(r.handles) > 5 {
			return nil
		}
		h := r.tx.CF(name)
		n, err := h.Count()
		r.handles = append(r.handles, modelHandle{h, r.own[name].base})
		return errors.Join(expect("handle", err, nil), same("handle", int(n), len(r.own[name].rows)))
	}},
}

// batchStep applies a batch of rows that may have the same keys, in families of which one may be
// absent.
func (r *scriptRun) batchStep(s step) error {
	if r.tx != nil {
		return nil // It would wait for the transaction.
	}
	rnd := rand.New(rand.NewPCG(uint64(s[1])<<16|uint64(s[2])<<8|uint64(s[3]), 5))
	state, now := r.visible(true)
	after, b := state.clone(), r.db.NewBatch()
	var want error
	for range 1 + rnd.IntN(14) {
		o := &on{r: r, name: "default", key: modelKeys[rnd.IntN(len(modelKeys))], arg: rnd.IntN(256),
			now: now}
		if rnd.IntN(3) == 0 {
			o.name = modelFamilies[rnd.IntN(len(modelFamilies))]
		}
		if o.f = after[o.name]; o.f == nil {
			want = kv.ErrCFNotFound
			o.f = &modelFamily{rows: map[string]modelRow{}}
		}
		o.addTo(b.CF(o.name), rnd)
	}
	err := r.db.Apply(context.Background(), b)
	if want == nil {
		maps.Copy(state, after)
	}
	return expect("batch", err, want)
}

// addTo adds one operation to a batch and carries it out on the model.
func (o *on) addTo(b *kv.BatchCF, rnd *rand.Rand) {
	switch rnd.IntN(8) {
	case 0, 1:
		b.Put(o.k(), o.value())
		o.set(o.value(), o.usual())
	case 2, 3:
		b.PutTTL(o.k(), o.value(), o.ttl())
		o.set(o.value(), o.after())
	case 4:
		b.PutExpireAt(o.k(), o.value(), time.UnixMilli(o.now+int64(1+o.arg)).Add(-time.Microsecond))
		o.set(o.value(), o.now+int64(1+o.arg))
	case 5, 6:
		b.Delete(o.k())
		delete(o.f.rows, o.key)
	default:
		lo, hi := o.key, modelKeys[rnd.IntN(len(modelKeys))]
		b.DeleteRange([]byte(lo), []byte(hi))
		maps.DeleteFunc(o.f.rows, func(k string, _ modelRow) bool { return k >= lo && k < hi })
	}
}

// loadStep fills a family that has no row. Only the load of one with a default ttl is a write
// transaction like others.
func (r *scriptRun) loadStep(s step) error {
	if r.tx != nil {
		return nil // It would wait for the transaction.
	}
	name := modelFamilies[int(s[1])%len(modelFamilies)]
	now := r.reading()
	f := r.state[name]
	load := func(yield func(k, v []byte) bool) {
		for _, k := range slices.Sorted(slices.Values(modelKeys)) {
			if !yield([]byte(k), []byte{s[3]}) {
				return
			}
		}
	}
	want := error(nil)
	switch {
	case f == nil:
		want = kv.ErrCFNotFound
	case len(f.rows) > 0:
		want = kv.ErrCFNotEmpty
	}
	if want != nil {
		_, err := r.db.BulkLoad(context.Background(), name, load)
		return expect("load", err, want)
	}
	o := &on{r: r, f: f, now: now}
	if f.defaultTTL > 0 {
		r.evict(now)
	}
	for _, o.key = range modelKeys {
		o.set([]byte{s[3]}, o.usual())
	}
	n, err := r.db.BulkLoad(context.Background(), name, load)
	return errors.Join(expect("load", err, nil), same("load", int(n), len(modelKeys)))
}

// sweepStep walks through a family and deletes some rows on the way, with a cursor or in the body
// of a range.
func (r *scriptRun) sweepStep(s step) error {
	name := modelFamilies[int(s[1])%len(modelFamilies)]
	state, now := r.visible(true)
	f := state[name]
	if f == nil {
		if r.tx == nil { // visible has evicted for a transaction that begins.
			return r.db.Update(func(*kv.Tx) error { return nil })
		}
		return nil
	}
	backwards := s[2]%2 == 0
	keys := slices.Sorted(maps.Keys(f.rows))
	if backwards {
		slices.Reverse(keys)
	}
	var live []string
	for _, k := range keys {
		if e := f.rows[k].expiry; e != 0 && now >= e {
			r.note(name, f, k, e)
		} else {
			live = append(live, k)
		}
	}
	for i, k := range live {
		if s[3]>>(i%8)&1 == 1 {
			delete(f.rows, k)
		}
	}
	sweep := func(tx *kv.Tx) error {
		var met []string
		c := tx.CF(name).Cursor()
		step := c.Next
		if backwards {
			step = c.Prev
		}
		for i := 0; s[2]%4 < 2 && step(); i++ {
			met = append(met, string(c.Key()))
			if s[3]>>(i%8)&1 == 1 {
				if err := c.Delete(); err != nil {
					return err
				}
			}
		}
		for k := range tx.CF(name).Scan(kv.ScanOptions{Reverse: backwards, KeysOnly: true}) {
			if s[2]%4 < 2 {
				continue // They are noted once more, which makes no difference.
			}
			i := len(met)
			met = append(met, string(k))
			if s[3]>>(i%8)&1 == 1 {
				if err := tx.CF(name).Delete(k); err != nil {
					return err
				}
			}
		}
		return errors.Join(c.Err(), same("swept", fmt.Sprintf("%.9q", met), fmt.Sprintf("%.9q", live)))
	}
	if r.tx != nil {
		return sweep(r.tx)
	}
	return r.db.Update(sweep)
}

// renameStep renames any family to any name.
func (r *scriptRun) renameStep(s step) error {
	from, to := modelFamilies[int(s[1])%len(modelFamilies)], modelFamilies[int(s[2])%len(modelFamilies)]
	state, _ := r.visible(true)
	rename := r.db.RenameCF
	if r.tx != nil {
		rename = r.tx.RenameCF
	}
	err := rename(from, to)
	switch {
	case from == "default":
		return expect("rename", err, kv.ErrCFReserved)
	case state[from] == nil:
		return expect("rename", err, kv.ErrCFNotFound)
	case state[to] != nil:
		return expect("rename", err, kv.ErrCFExists)
	}
	state[to] = state[from]
	delete(state, from)
	return expect("rename", err, nil)
}

// compareHandles requires that each handle means the family that it found, whatever that is called
// now.
func (r *scriptRun) compareHandles() error {
	for _, h := range r.handles {
		var f *modelFamily
		for _, some := range r.own {
			if some.base == h.base {
				f = some
			}
		}
		n, err := h.cf.Count()
		if f == nil {
			if err := expect("handle", err, kv.ErrCFDropped); err != nil {
				return err
			}
			continue
		}
		if err := errors.Join(expect("handle", err, nil), same("handle", int(n), len(f.rows))); err != nil {
			return err
		}
	}
	return nil
}

// compareScans ranges with bounds, limits and prefixes, both ways.
func compareScans(v *kv.CF, live []string) error {
	for i, lower := range modelKeys {
		o := kv.ScanOptions{Lower: []byte(lower), Limit: i, Reverse: i%2 == 0, KeysOnly: i%3 == 0}
		if i%2 == 1 {
			o.Upper = []byte(modelKeys[(i+2)%len(modelKeys)])
		}
		if i%4 == 2 {
			o.Lower, o.Prefix = nil, []byte("a")
		}
		var want, got []string
		for _, k := range live {
			if k >= string(o.Lower) && (len(o.Upper) == 0 || k < string(o.Upper)) &&
				strings.HasPrefix(k, string(o.Prefix)) {
				want = append(want, k)
			}
		}
		if o.Reverse {
			slices.Reverse(want)
		}
		if o.Limit > 0 {
			want = want[:min(o.Limit, len(want))]
		}
		for k := range v.Scan(o) {
			got = append(got, string(k))
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("scan %+v: %.9q, want %.9q", o, got, want)
		}
	}
	return nil
}
