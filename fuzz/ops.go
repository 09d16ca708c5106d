package fuzz

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/kv"
)

// Op is one operation of a workload. Arg is the seed of its random choices.
type Op struct {
	Kind int // index in operations
	Arg  uint32
}

func (o Op) rand() *rand.Rand { return rand.New(rand.NewPCG(uint64(o.Arg), uint64(o.Kind))) }

func (o Op) String() string {
	return operations[o.Kind].name + "." + strconv.FormatUint(uint64(o.Arg), 36)
}

func parseOp(text string) (Op, error) {
	name, arg, _ := strings.Cut(text, ".")
	kind, ok := kindOf(name)
	n, err := strconv.ParseUint(arg, 36, 32)
	if !ok || err != nil {
		return Op{}, fmt.Errorf("operation %q is not known", text)
	}
	return Op{kind, uint32(n)}, nil
}

func kindOf(name string) (int, bool) {
	for i := range operations {
		if operations[i].name == name {
			return i, true
		}
	}
	return 0, false
}

// operation is one row of the table of all there are. A new kind of operation is a new row; it changes store and model
// together, through Run.update.
type operation struct {
	name     string
	weight   int  // how often random workloads take it
	sequence bool // it is part of enumerated sequences
	run      func(r *Run, rnd *rand.Rand) error
}

var operations []operation

func init() {
	operations = []operation{
		{"put", 14, true, opPut},
		{"over", 10, true, opOverwrite},
		{"del", 8, true, opDelete},
		{"big", 6, true, opBig},
		{"batch", 6, true, opBatch},
		{"create", 3, true, opCreate},
		{"drop", 2, true, opDrop},
		{"relax", 12, true, opRelaxed},
		{"ckpt", 4, true, opCheckpoint},
		{"rotate", 3, true, opRotate},
		{"reopen", 2, true, opReopen},
		{"rename", 2, true, opRename},
		{"range", 3, true, opRange},
		{"save", 3, true, opSavepoint},
		{"clear", 1, true, opClear},
		{"kill", 2, true, opKill},
		{"sync", 2, false, opSync},
		{"abort", 2, false, opAbort},
		{"many", 4, false, opMany},
		{"cut", 4, false, opCut},
		{"both", 4, false, opBoth},
		{"hold", 3, false, opHold},
		{"bulk", 1, true, opBulk},
		{"beside", 0, false, opBeside},
	}
}

func newKey(r *Run, rnd *rand.Rand) string {
	return fmt.Sprintf("k%04d-%d", rnd.IntN(4000), len(r.States))
}

func newValue(rnd *rand.Rand, size int) string {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return string(b)
}

func pickKey(m *Model, family string, rnd *rand.Rand) (string, bool) {
	keys := m.keys(family)
	if len(keys) == 0 {
		return "", false
	}
	return keys[rnd.IntN(len(keys))], true
}

// pickFamily takes mostly the default one.
func pickFamily(m *Model, rnd *rand.Rand) string {
	names := m.names()
	if rnd.IntN(3) > 0 {
		return defaultFamily
	}
	return names[rnd.IntN(len(names))]
}

// otherFamily is a family that may be dropped, if there is one.
func otherFamily(m *Model, rnd *rand.Rand) (string, bool) {
	var names []string
	for _, name := range m.names() {
		if name != defaultFamily {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", false
	}
	return names[rnd.IntN(len(names))], true
}

func freeName(m *Model, rnd *rand.Rand) string {
	for {
		if name := fmt.Sprintf("fam%d", rnd.IntN(1000)); m.families[name] == nil {
			return name
		}
	}
}

func opPut(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		return t.put(pickFamily(t.m, rnd), newKey(r, rnd), newValue(rnd, rnd.IntN(300)))
	})
}

func opOverwrite(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		family := pickFamily(t.m, rnd)
		key, ok := pickKey(t.m, family, rnd)
		if !ok {
			key = newKey(r, rnd)
		}
		return t.put(family, key, newValue(rnd, rnd.IntN(500)))
	})
}

func opDelete(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		family := pickFamily(t.m, rnd)
		key, _ := pickKey(t.m, family, rnd)
		if key == "" {
			key = "absent"
		}
		return t.remove(family, key)
	})
}

// opBig writes a value that needs an overflow extent.
func opBig(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		return t.put(pickFamily(t.m, rnd), fmt.Sprintf("big%d", rnd.IntN(6)), newValue(rnd, 1500+rnd.IntN(9000)))
	})
}

func opBatch(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		family := pickFamily(t.m, rnd)
		for range 60 {
			if err := t.put(family, newKey(r, rnd), newValue(rnd, 20+rnd.IntN(100))); err != nil {
				return err
			}
		}
		return nil
	})
}

func opCreate(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		name := freeName(t.m, rnd)
		if err := t.create(name); err != nil {
			return err
		}
		return t.put(name, newKey(r, rnd), newValue(rnd, 50))
	})
}

// opDrop drops a family; where there is none it makes one in the same commit.
func opDrop(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		name, ok := otherFamily(t.m, rnd)
		if !ok {
			name = freeName(t.m, rnd)
			if err := t.create(name); err != nil {
				return err
			}
			if err := t.put(name, "k", "v"); err != nil {
				return err
			}
		}
		return t.drop(name)
	})
}

func opRelaxed(r *Run, rnd *rand.Rand) error {
	return r.update(kv.NoSync, func(t *tx) error {
		return t.put(pickFamily(t.m, rnd), newKey(r, rnd), newValue(rnd, rnd.IntN(300)))
	})
}

func opCheckpoint(r *Run, _ *rand.Rand) error {
	r.Disk.SetPhase("checkpoint")
	if err := r.db.Checkpoint(context.Background()); err != nil {
		return err
	}
	r.durable(r.now().seq)
	return nil
}

func opSync(r *Run, _ *rand.Rand) error {
	r.Disk.SetPhase("commit")
	if err := r.db.Sync(); err != nil {
		return err
	}
	r.durable(r.now().seq)
	return nil
}

// opRotate writes more than a segment of log, durable and relaxed by turns.
func opRotate(r *Run, rnd *rand.Rand) error {
	for i := range 3 {
		err := r.update(kv.Durability(i%2), func(t *tx) error {
			for j := range int(r.config.Segment / 3 / 800) {
				if err := t.put(defaultFamily, fmt.Sprintf("r%d-%d", i, j), newValue(rnd, 800)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func opReopen(r *Run, _ *rand.Rand) error {
	if r.db != nil {
		if err := r.close(); err != nil {
			return err
		}
	}
	return r.open()
}

// opKill ends the process, as it were: nothing more is written, the page cache stays. The next process recovers.
func opKill(r *Run, _ *rand.Rand) error {
	if r.db != nil {
		if err := r.release(); err != nil {
			return err
		}
		dead := r.Disk.Inject(crashfs.Fault{Kinds: crashfs.KindChanges, Sticky: true})
		_ = r.db.Close() // Only to let go of memory and locks.
		r.db = nil
		dead.Disarm()
	}
	return r.open()
}

func opRename(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		to := freeName(t.m, rnd)
		from, ok := otherFamily(t.m, rnd)
		if !ok {
			return t.create(to)
		}
		return t.rename(from, to)
	})
}

func opRange(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		family := pickFamily(t.m, rnd)
		a, _ := pickKey(t.m, family, rnd)
		b, _ := pickKey(t.m, family, rnd)
		return t.removeRange(family, min(a, b), max(a, b)+"~")
	})
}

func opClear(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		family := pickFamily(t.m, rnd)
		t.m.clear(family)
		return t.CF(family).Clear()
	})
}

// opSavepoint takes back the middle of a commit.
func opSavepoint(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		if err := t.put(defaultFamily, newKey(r, rnd), newValue(rnd, 60)); err != nil {
			return err
		}
		sp, before := t.Savepoint(), t.m.clone()
		for range 1 + rnd.IntN(40) {
			if err := t.put(defaultFamily, newKey(r, rnd), newValue(rnd, 120)); err != nil {
				return err
			}
		}
		if err := t.create(freeName(t.m, rnd)); err != nil {
			return err
		}
		if key, ok := pickKey(t.m, defaultFamily, rnd); ok {
			if err := t.remove(defaultFamily, key); err != nil {
				return err
			}
		}
		if err := t.RollbackTo(sp); err != nil {
			return err
		}
		t.m = before
		return t.put(defaultFamily, newKey(r, rnd), newValue(rnd, 60))
	})
}

func opAbort(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		for range rnd.IntN(1500) {
			if err := t.put(defaultFamily, newKey(r, rnd), newValue(rnd, 200)); err != nil {
				return err
			}
		}
		return errRollback
	})
}

// opMany grows the store, by more than the cache holds now and then.
func opMany(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Durability(rnd.IntN(2)), func(t *tx) error {
		family := pickFamily(t.m, rnd)
		for range rnd.IntN(1500) {
			if err := t.put(family, newKey(r, rnd), newValue(rnd, 50+rnd.IntN(400))); err != nil {
				return err
			}
		}
		return nil
	})
}

// opCut shrinks the store: keys go one by one, so that pages merge.
func opCut(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Sync, func(t *tx) error {
		for _, family := range t.m.names() {
			share := rnd.IntN(100)
			for _, key := range t.m.keys(family) {
				if rnd.IntN(100) < share {
					if err := t.remove(family, key); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// opBoth is one commit across families.
func opBoth(r *Run, rnd *rand.Rand) error {
	return r.update(kv.Durability(rnd.IntN(2)), func(t *tx) error {
		for _, family := range t.m.names() {
			if err := t.put(family, newKey(r, rnd), newValue(rnd, rnd.IntN(200))); err != nil {
				return err
			}
			if key, ok := pickKey(t.m, family, rnd); ok && rnd.IntN(2) == 0 {
				if err := t.remove(family, key); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func opHold(r *Run, _ *rand.Rand) error { return r.hold() }

// opBulk creates a family and fills it past the log. The load is a commit of its own.
func opBulk(r *Run, rnd *rand.Rand) error {
	name := freeName(r.model, rnd)
	if err := r.update(kv.NoSync, func(t *tx) error { return t.create(name) }); err != nil {
		return err
	}
	m := r.model.clone()
	n := 1 + rnd.IntN(150)
	r.Disk.SetPhase("bulk")
	next := r.begun(m)
	var rows iter.Seq2[[]byte, []byte] = func(yield func(k, v []byte) bool) {
		for i := range n {
			key, value := fmt.Sprintf("b%05d", i), newValue(rnd, rnd.IntN(200))
			m.put(name, key, value)
			if !yield([]byte(key), []byte(value)) {
				return
			}
		}
	}
	got, err := r.db.BulkLoad(context.Background(), name, rows)
	if err != nil {
		return err
	}
	if got != int64(n) {
		return wrong("BulkLoad counts %d rows, want %d", got, n)
	}
	r.committed(m)
	r.durable(next)
	return nil
}

// opBeside is a checkpoint with commits in its middle, which fill more than half of the next segment. They must not
// start a checkpoint themselves, which would wait for this one: only stores with room enough have them.
func opBeside(r *Run, rnd *rand.Rand) error {
	if r.config.Checkpoint < wide.Checkpoint {
		return opCheckpoint(r, rnd)
	}
	r.beside = func() error {
		for _, c := range []struct {
			d    kv.Durability
			rows int
		}{{kv.NoSync, 8}, {kv.Sync, 13}} {
			err := r.update(c.d, func(t *tx) error {
				for range c.rows {
					if err := t.put(defaultFamily, newKey(r, rnd), newValue(rnd, 800)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				r.noteFate(err) // What the checkpoint makes of it no longer tells.
				r.attempt = nil
				return err
			}
		}
		r.Disk.SetPhase("checkpoint")
		return nil
	}
	before := r.now().seq
	r.Disk.SetPhase("checkpoint")
	err := r.db.Checkpoint(context.Background())
	r.beside = nil
	if err == nil {
		r.durable(before)
	}
	return err
}
