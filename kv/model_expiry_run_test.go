package kv_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// scriptRun is a store and its model in the middle of a script.
type scriptRun struct {
	fs    vfs.FS
	db    *kv.DB
	clock *testClock

	state modelState // committed
	mark  int64      // of the clock
	notes []modelNote
	told  []string // what OnExpire heard
	want  []string // what it should have heard
	deaf  int      // the call of OnExpire from now on that fails, if it is above 0
	dull  int      // that of the model

	tx      *kv.Tx // open write transaction, or nil
	own     modelState
	txNow   int64
	saves   []save
	handles []modelHandle // on families, found in tx

	held      *kv.Tx // open read transaction, or nil
	heldState modelState
	heldNow   int64

	swept    sweptRows // since the last open
	ownSwept sweptRows // with what tx has purged
}

type save struct {
	at    kv.Savepoint
	state modelState
	swept sweptRows
}

const modelMaxStep = 60_000

var (
	modelFamilies = []string{"default", "a", "b"}
	modelKeys     = []string{
		"a",
		"a\x00",
		"ab",
		"b",
		strings.Repeat("long", 40),
		strings.Repeat("\xff\x00", 512),
		"\xff",
	}
)

func newScriptRun() (*scriptRun, error) {
	r := &scriptRun{fs: vfs.NewMemory(), clock: newClock(), state: modelState{}}
	r.mark = math.MinInt64
	if err := r.open(); err != nil {
		return nil, err
	}
	r.state["default"] = &modelFamily{rows: map[string]modelRow{}}
	return r, r.db.View(func(tx *kv.Tx) error {
		f, err := kv.FindFamily(tx, "default")
		r.state["default"].base = uint64(f.Base)
		r.reading()
		return err
	})
}

func (r *scriptRun) open() (err error) {
	r.db, err = openfs.Open(r.fs, path, &kv.Options{
		Durability: kv.NoSync, Clock: r.clock.now,
		OnExpire: func(cf string, key, value []byte) error {
			r.told = append(r.told, fmt.Sprintf("%s %q=%q", cf, key, value))
			if r.deaf--; r.deaf == 0 {
				return errDeaf
			}
			return nil
		},
	}, txn.Options{SegmentSize: 64 << 10})
	r.swept, r.notes = sweptRows{}, nil
	return err
}

// reading is what the store's clock gives now.
func (r *scriptRun) reading() int64 {
	if now := r.clock.ms.Load(); now > r.mark || r.mark-now > modelMaxStep {
		r.mark = now
	}
	return r.mark
}

// visible is the state that calls see, and their instant. evicts: notes are evicted if a write
// transaction begins.
func (r *scriptRun) visible(write bool) (modelState, int64) {
	if r.tx != nil {
		return r.own, r.txNow
	}
	now := r.reading()
	if write {
		r.evict(now)
	}
	return r.state, now
}

// evict is what happens before a write transaction begins, and after a one-shot read that noted the
// last key of a batch. If OnExpire refuses one of them, all stay.
func (r *scriptRun) evict(now int64) {
	var gone []modelNote
	for _, n := range r.notes {
		f := r.state[n.family]
		if f == nil || f.base != n.base {
			continue
		}
		if row, ok := f.rows[n.key]; ok && row.expiry == n.expiry && now >= n.expiry {
			gone = append(gone, n)
			if !r.tell(n.family, n.key, row.value) {
				gone = nil
				break
			}
		}
	}
	for _, n := range gone {
		r.swept.add(r.state[n.family], n.key, true)
		delete(r.state[n.family].rows, n.key)
	}
	r.notes = nil
}

// tell is what OnExpire hears, and whether it agrees.
func (r *scriptRun) tell(family, key, value string) bool {
	r.want = append(r.want, fmt.Sprintf("%s %q=%q", family, key, value))
	r.dull--
	return r.dull != 0
}

var errDeaf = errors.New("OnExpire does not agree")

func (r *scriptRun) note(name string, f *modelFamily, key string, expiry int64) {
	n := modelNote{f.base, name, key, expiry}
	for _, have := range r.notes {
		have.family = name // Notes are told apart by the family's number.
		if have == n {
			return
		}
	}
	r.notes = append(r.notes, n)
}

// end ends whatever is open.
func (r *scriptRun) end() error {
	var errs []error
	if r.tx != nil {
		errs = append(errs, r.tx.Rollback())
		r.tx, r.saves, r.handles = nil, nil, nil
	}
	if r.held != nil {
		errs = append(errs, r.held.Rollback())
		r.held = nil
	}
	return errors.Join(errs...)
}

// purge is the model of both kinds of purge. A batch that OnExpire does not agree with stays, and
// ends it.
func (r *scriptRun) purge(state modelState, swept sweptRows, now int64, names []string,
	limit, batch int) (res kv.PurgeResult, err error) {
	for _, name := range names {
		f := state[name]
		due := dueOf(f, now)
		if limit > 0 && int64(len(due)) > int64(limit)-res.Purged {
			due, res.More = due[:int64(limit)-res.Purged], true
		}
		for some := range slices.Chunk(due, batch) {
			for _, k := range some {
				if !r.tell(name, k, f.rows[k].value) {
					res.More = true
					return res, errDeaf
				}
			}
			for _, k := range some {
				swept.add(f, k, false)
				delete(f.rows, k)
			}
			res.Purged += int64(len(some))
			if res.Batches++; r.tx == nil {
				n := swept[f.base]
				n.PurgeBatches++
				swept[f.base] = n
			}
		}
		if res.More {
			break
		}
	}
	return res, nil
}

// purgeStep purges all families, in the open transaction or in transactions of its own.
func (r *scriptRun) purgeStep(s step) error {
	o := kv.PurgeOptions{Limit: int(s[3] % 5), Batch: int(s[2] % 4)}
	batch := cmp.Or(o.Batch, 256)
	if r.tx != nil {
		before, swept := r.own.clone(), maps.Clone(r.ownSwept)
		want, deaf := r.purge(r.own, r.ownSwept, r.txNow, slices.Sorted(maps.Keys(r.own)), o.Limit, 256)
		if deaf != nil { // It undoes the whole purge.
			r.own, r.ownSwept, want = before, swept, kv.PurgeResult{More: true}
		}
		want.Batches = 0
		res, err := r.tx.PurgeExpired(context.Background(), o)
		return errors.Join(expect("purge", err, deaf), same("purge", res, want))
	}
	names := slices.Sorted(maps.Keys(r.state))
	purge := r.db.PurgeExpired
	if s[1]%2 == 0 {
		name := names[int(s[1]/2)%len(names)]
		names = []string{name}
		purge = r.db.CF(name).PurgeExpired
	}
	want, deaf := r.purge(r.state, r.swept, r.reading(), names, o.Limit, batch)
	res, err := purge(context.Background(), o)
	return errors.Join(expect("purge", err, deaf), same("purge", res, want))
}

// stillDead holds the mark that Close has stored against what was seen before it: stats told of all
// that had expired.
func (r *scriptRun) stillDead() error {
	mark := kv.Mark(r.db)
	for name, f := range r.state {
		if before, after := len(dueOf(f, r.mark)), len(dueOf(f, mark)); before != after && r.mark > 0 {
			return fmt.Errorf(
				"family %q: %d keys had expired at %d, and %d have at the mark %d that Close has left",
				name, before, r.mark, after, mark)
		}
	}
	return nil
}

// reopened takes over the mark that the store was opened with. After a crash that of the newest
// commit: what only readers saw since is forgotten, be it a time above or, after a step back, one
// below.
func (r *scriptRun) reopened() error {
	r.mark = kv.Mark(r.db)
	return nil
}

// stats compares what Stats says of families. Those that only the open transaction has are none
// yet.
func (r *scriptRun) stats() error {
	now, got, want := r.reading(), r.db.Stats().Families, map[string]kv.FamilyStats{}
	for name, f := range r.state {
		n := r.swept[f.base]
		n.Rows, n.Due = int64(len(f.rows)), int64(len(dueOf(f, now)))
		n.TTLRows = int64(len(dueOf(f, math.MaxInt64)))
		want[name] = n
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("families %+v, want %+v", got, want)
	}
	return nil
}

// catalog makes a change of families in the open transaction, or in one of its own.
func (r *scriptRun) catalog(fn func(tx *kv.Tx, state modelState) error) error {
	if r.tx != nil {
		return fn(r.tx, r.own)
	}
	state, _ := r.visible(true)
	return r.db.Update(func(tx *kv.Tx) error { return fn(tx, state) })
}

// noteExpired does what scans of all families do.
func (r *scriptRun) noteExpired(state modelState, now int64) {
	for _, name := range slices.Sorted(maps.Keys(state)) {
		f := state[name]
		for _, k := range slices.Sorted(maps.Keys(f.rows)) {
			if e := f.rows[k].expiry; e != 0 && now >= e {
				r.note(name, f, k, e)
			}
		}
	}
}

// do carries one step out on both.
func (r *scriptRun) do(s step) error {
	i := kindTable[int(s[0])%len(kindTable)]
	if i >= 1000 {
		return control[i-1000].run(r, s)
	}
	kind := verbKinds[i]
	o := &on{
		r:    r,
		s:    s,
		name: modelFamilies[int(s[1])%len(modelFamilies)],
		key:  modelKeys[int(s[2])%len(modelKeys)],
		arg:  int(s[3]),
	}
	o.state, o.now = r.visible(kind.write)
	if o.f = o.state[o.name]; o.f == nil {
		var err error
		switch {
		case r.tx != nil:
			_, err = r.tx.CF(o.name).Has(o.k())
		case kind.write:
			err = r.db.CF(o.name).Put(o.k(), nil)
		default:
			_, err = r.db.CF(o.name).Has(o.k())
		}
		return expect("absent family", err, kv.ErrCFNotFound)
	}
	o.v = r.db.CF(o.name)
	if r.tx != nil {
		o.v = r.tx.CF(o.name)
	}
	return kind.run(o)
}

// compare looks at everything.
func (r *scriptRun) compare() error {
	defer kv.HoldNotes(r.db)()
	if !slices.Equal(r.told, r.want) {
		return fmt.Errorf("OnExpire heard %d, want %d: %.60q, want %.60q", len(r.told), len(r.want),
			r.told, r.want)
	}
	r.told, r.want = r.told[:0], r.want[:0]
	now := r.reading()
	if err := r.db.View(func(tx *kv.Tx) error { return compareModel(tx, r.state, now) }); err != nil {
		return fmt.Errorf("committed state: %w", err)
	}
	if r.tx != nil {
		if err := errors.Join(compareModel(r.tx, r.own, r.txNow), r.compareHandles()); err != nil {
			return fmt.Errorf("own state: %w", err)
		}
	}
	if r.held != nil {
		if err := compareModel(r.held, r.heldState, r.heldNow); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
	}
	return nil
}
