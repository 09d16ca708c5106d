package kv_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ebbkv/ebb/internal/vfs"
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
		o := &on{r: r, name: "default", key: modelKeys[rnd.IntN(len(modelKeys))], arg: rnd.IntN(256), now: now}
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

// controlKind is an operation that is not about one key.
type controlKind struct {
	name   string
	weight int
	run    func(r *scriptRun, s step) error
}

var control = slices.Concat(controlKinds, manyKinds)

var controlKinds = []controlKind{
	{"clock", 14, func(r *scriptRun, s step) error {
		d := time.Duration(s[3]) * 37 * time.Millisecond
		switch s[2] % 16 {
		case 0:
			d = time.Duration(s[3]) * time.Hour
		case 1, 2:
			d = -d
		case 3:
			d = -time.Duration(s[3]) * time.Minute
		}
		r.clock.move(d)
		return nil
	}},
	{"purge", 6, (*scriptRun).purgeStep},
	{"scan", 3, func(r *scriptRun, s step) error {
		// Only here do scans leave notes: those of the comparison are forgotten.
		if r.tx != nil {
			r.noteExpired(r.own, r.txNow)
			return drain(r.tx)
		}
		r.noteExpired(r.state, r.reading())
		return r.db.View(drain)
	}},
	{"begin", 6, func(r *scriptRun, s step) (err error) {
		if r.tx != nil {
			return nil
		}
		_, r.txNow = r.visible(true)
		r.own, r.ownSwept = r.state.clone(), maps.Clone(r.swept)
		r.tx, err = r.db.Begin(context.Background(), true)
		if err != nil {
			return err
		}
		if s[3]%3 == 0 {
			r.tx.SetDurability(kv.Sync)
		}
		return same("now", r.tx.Now().UnixMilli(), r.txNow)
	}},
	{"commit", 5, func(r *scriptRun, s step) error {
		if r.tx == nil {
			return nil
		}
		err := r.tx.Commit()
		r.state, r.tx, r.saves, r.handles = r.own, nil, nil, nil
		r.swept = r.ownSwept
		return expect("commit", err, nil)
	}},
	{"rollback", 2, func(r *scriptRun, s step) error {
		if r.tx == nil {
			return nil
		}
		err := r.tx.Rollback()
		r.tx, r.saves, r.handles = nil, nil, nil
		return expect("rollback", err, nil)
	}},
	{"save", 3, func(r *scriptRun, s step) error {
		if r.tx != nil && len(r.saves) < 4 {
			r.saves = append(r.saves, save{r.tx.Savepoint(), r.own.clone(), maps.Clone(r.ownSwept)})
		}
		return nil
	}},
	{"back", 3, func(r *scriptRun, s step) error {
		if r.tx == nil || len(r.saves) == 0 {
			return nil
		}
		i := int(s[3]) % len(r.saves)
		r.own, r.ownSwept = r.saves[i].state.clone(), maps.Clone(r.saves[i].swept)
		r.saves = r.saves[:i+1]
		return expect("back", r.tx.RollbackTo(r.saves[i].at), nil)
	}},
	{"create", 3, func(r *scriptRun, s step) error {
		name := modelFamilies[int(s[1])%len(modelFamilies)]
		var o kv.CFOptions
		if s[3]%2 == 0 {
			o.DefaultTTL = time.Duration(s[3]) * 100 * time.Millisecond
		}
		return r.catalog(func(tx *kv.Tx, state modelState) error {
			if f := state[name]; f != nil {
				f.defaultTTL = o.DefaultTTL.Milliseconds()
				return expect("alter", tx.AlterCF(name, o), nil)
			}
			if err := tx.CreateCF(name, o); err != nil {
				return err
			}
			f, err := kv.FindFamily(tx, name)
			if err != nil {
				return err
			}
			state[name] = &modelFamily{uint64(f.Base), o.DefaultTTL.Milliseconds(), map[string]modelRow{}}
			return nil
		})
	}},
	{"drop", 1, func(r *scriptRun, s step) error {
		name := modelFamilies[int(s[1])%len(modelFamilies)]
		return r.catalog(func(tx *kv.Tx, state modelState) error {
			if name == "default" || state[name] == nil {
				return nil
			}
			delete(state, name)
			return expect("drop", tx.DropCF(name), nil)
		})
	}},
	{"hold", 2, func(r *scriptRun, s step) (err error) {
		if r.held != nil {
			err := r.held.Rollback()
			r.held = nil
			return err
		}
		r.heldState, r.heldNow = r.state.clone(), r.reading()
		r.held, err = r.db.Begin(context.Background(), false)
		return err
	}},
	{"checkpoint", 1, func(r *scriptRun, s step) error {
		if r.tx != nil {
			return nil // It would wait for the transaction.
		}
		return r.db.Checkpoint(context.Background())
	}},
	{"reopen", 1, func(r *scriptRun, s step) error {
		if err := r.end(); err != nil {
			return err
		}
		if err := errors.Join(r.stats(), r.db.Close(), r.open()); err != nil {
			return err
		}
		if err := r.stillDead(); err != nil {
			return err
		}
		return r.reopened()
	}},
	{"crash", 1, func(r *scriptRun, s step) error {
		// Every commit that returned is in the files, whatever it waited for: only the process
		// dies.
		image, err := copyFiles(r.fs)
		if err != nil {
			return err
		}
		if err := errors.Join(r.end(), r.db.Close()); err != nil {
			return err
		}
		r.fs = image
		if err := r.open(); err != nil {
			return err
		}
		return r.reopened()
	}},
	{"check", 1, func(r *scriptRun, s step) error {
		if r.tx != nil {
			return nil // It would wait for the transaction.
		}
		for p := range r.db.Check(context.Background()) {
			return fmt.Errorf("check: %v", p)
		}
		return nil
	}},
	{"stats", 2, func(r *scriptRun, s step) error {
		return r.stats()
	}},
}

func drain(tx *kv.Tx) error {
	names, err := tx.ListCFs()
	for _, name := range names {
		for range tx.CF(name).All() {
		}
	}
	return err
}

// copyFiles makes what a kill leaves.
func copyFiles(from vfs.FS) (vfs.FS, error) {
	to := vfs.NewMemory()
	names, err := from.List("dir")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		src, err := from.Open("dir/"+name, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a segment that the open before has left to be removed
		}
		if err != nil {
			return nil, err
		}
		size, err := src.Size()
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(io.NewSectionReader(src, 0, size))
		if err != nil {
			return nil, err
		}
		dst, err := to.Open("dir/"+name, vfs.Write|vfs.Create)
		if err != nil {
			return nil, err
		}
		if _, err := dst.WriteAt(content, 0); err != nil {
			return nil, err
		}
		if err := errors.Join(src.Close(), dst.Close()); err != nil {
			return nil, err
		}
	}
	return to, nil
}

// kindTable has one entry for each unit of weight, so that a byte picks a kind.
var kindTable = func() (table []int) {
	add := func(weight, i int) {
		for range weight {
			table = append(table, i)
		}
	}
	for i, k := range slices.Concat(readKinds, writeKinds) {
		add(k.weight, i)
	}
	for i, c := range control {
		add(c.weight, 1000+i)
	}
	return table
}()
