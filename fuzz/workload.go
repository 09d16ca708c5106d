package fuzz

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/ebbkv/ebb/kv"
)

// A Workload is a base state and operations on it. The same workload makes the same trace each
// time.
type Workload struct {
	Base string
	Ops  []Op

	name string // what Random was asked for, in one word; "" for other workloads
}

// String is the inverse of ParseWorkload.
func (w Workload) String() string {
	if w.name != "" {
		return w.name
	}
	words := []string{w.Base}
	for _, op := range w.Ops {
		words = append(words, op.String())
	}
	return strings.Join(words, " ")
}

// ParseWorkload reads a base and operations, separated by spaces.
func ParseWorkload(text string) (w Workload, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return w, fmt.Errorf("no workload in %q", text)
	}
	var seed uint64
	var n int
	if k, err := fmt.Sscanf(words[0], randomName, &seed, &n); err == nil && k == 2 && len(words) == 1 &&
		n >= 0 &&
		n <= 1<<16 {
		return Random(seed, n), nil
	}
	w.Base = words[0]
	if _, ok := bases[w.base()]; !ok {
		return w, fmt.Errorf("base %q is not known", w.Base)
	}
	for _, word := range words[1:] {
		op, err := parseOp(word)
		if err != nil {
			return w, err
		}
		w.Ops = append(w.Ops, op)
	}
	return w, nil
}

// directSuffix of a base's name asks for a disk that offers Direct files.
const directSuffix = "+direct"

// groupsSuffix of a base's name, behind that, asks for a store whose free map has small groups.
const groupsSuffix = "+groups"

// base is a state that operations begin from.
type base struct {
	config Config
	fill   []func(r *Run) error
}

// bases hold 0, 1 or 40 keys; in "closed" no log is there yet, in "busy" a checkpoint has just
// been; "spread" has large values besides, and holes between them; "holed" has lost most of its rows
// in pages that are still there.
var bases = map[string]base{
	"empty":  {small, nil},
	"one":    {small, []func(*Run) error{fillOne}},
	"closed": {small, []func(*Run) error{fillMany, reopen}},
	"busy":   {small, []func(*Run) error{fillMany, checkpoint, fillOne}},
	"spread": {small, []func(*Run) error{fillMany, fillLarge, checkpoint, thin, checkpoint, fillOne}},
	"holed":  {small, []func(*Run) error{fillPages, checkpoint, thinOut, checkpoint, fillOne}},
	"wide":   {wide, []func(*Run) error{fillMany, checkpoint, fillOne}},
	"random": {large, nil},
}

// sequenceBases are those of enumerated sequences, in order.
var sequenceBases = []string{
	"empty",
	"one",
	"closed",
	"busy",
	"closed" + directSuffix,
	"busy" + directSuffix,
	"spread" + groupsSuffix,
	"holed" + groupsSuffix,
}

func fillOne(r *Run) error    { return fill(r, 1) }
func fillMany(r *Run) error   { return fill(r, 40) }
func reopen(r *Run) error     { return opReopen(r, nil) }
func checkpoint(r *Run) error { return opCheckpoint(r, nil) }

func (w Workload) config() Config {
	name, groups := strings.CutSuffix(w.Base, groupsSuffix)
	name, direct := strings.CutSuffix(name, directSuffix)
	c := bases[name].config
	c.Direct, c.Groups = direct, groups
	return c
}

// base is the name of the workload's base, without suffixes.
func (w Workload) base() string {
	return strings.TrimSuffix(strings.TrimSuffix(w.Base, groupsSuffix), directSuffix)
}

// base makes the state that operations begin from. What is done already is not done again.
func (r *Run) base() error {
	if r.db == nil {
		if err := r.open(); err != nil {
			return err
		}
	}
	for steps := bases[r.Workload.base()].fill; r.based < len(steps); r.based++ {
		if err := steps[r.based](r); err != nil {
			return err
		}
	}
	return nil
}

// fill puts n keys, some of them in another family. Of many, every third has an expiry.
func fill(r *Run, n int) error {
	return r.update(kv.Sync, func(t *tx) error {
		rnd := rand.New(rand.NewPCG(uint64(n), 0))
		if t.m.families["other"] == nil {
			if err := t.create("other", 0); err != nil {
				return err
			}
		}
		for i := range n {
			family := defaultFamily
			if i%8 == 7 {
				family = "other"
			}
			key, value := newKey(r, rnd), newValue(rnd, 60)
			var err error
			if i%3 == 2 {
				err = t.putTTL(family, key, value, someTTL(rnd))
			} else {
				err = t.put(family, key, value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// largePages is how many pages fillLarge uses at least: more than two small groups, so that the
// directory has two levels.
const largePages = 3 * 64

// fillLarge puts values of 1 to 24 pages.
func fillLarge(r *Run) error {
	return r.update(kv.Sync, func(t *tx) error {
		rnd := rand.New(rand.NewPCG(largePages, 0))
		for i, pages := 0, 0; pages < largePages; i++ {
			n := 1 + rnd.IntN(24)
			pages += n
			if err := t.put(defaultFamily, fmt.Sprintf("large%02d", i),
				newValue(rnd, n*4096-100)); err != nil {
				return err
			}
		}
		return nil
	})
}

// thin deletes some of them.
func thin(r *Run) error {
	return r.update(kv.Sync, func(t *tx) error {
		for i, key := range t.m.keys(defaultFamily) {
			if i%3 > 0 || !strings.HasPrefix(key, "large") {
				continue
			}
			if err := t.remove(defaultFamily, key); err != nil {
				return err
			}
		}
		return nil
	})
}

// fillPages puts rows of a sixth of a page, which make some 60 leaves.
func fillPages(r *Run) error {
	return r.update(kv.Sync, func(t *tx) error {
		rnd := rand.New(rand.NewPCG(1, 0))
		for i := range 300 {
			if err := t.put(defaultFamily, fmt.Sprintf("page%03d", i*7%300), newValue(rnd, 600)); err != nil {
				return err
			}
		}
		return nil
	})
}

// thinOut deletes most of them: a third of the leaves is left, each less than half full.
func thinOut(r *Run) error {
	return r.update(kv.Sync, func(t *tx) error {
		for i, key := range t.m.keys(defaultFamily) {
			if i/18%3 == 2 && i%3 > 0 || !strings.HasPrefix(key, "page") {
				continue
			}
			if err := t.remove(defaultFamily, key); err != nil {
				return err
			}
		}
		return nil
	})
}

// cancelledCompactions are compactions of one page a step that end after each number of steps, beside
// the sequences of one operation.
func cancelledCompactions() (all []Workload) {
	kind, _ := kindOf("compact")
	seen := map[int]bool{}
	for arg := uint32(0); len(seen) < mostCancelled; arg++ {
		op := Op{kind, arg}
		if last := compactionSteps(op.rand()); last < mostCancelled && !seen[last] {
			seen[last] = true
			all = append(all, Workload{Base: "holed" + groupsSuffix, Ops: []Op{op}})
		}
	}
	return all
}

// Specials are workloads for what sequences do not reach: a sync of relaxed commits alone, and
// commits in the middle of a checkpoint which fill so much of the next segment that the one after
// it is made ready before the old ones go, and which are given pages that only the state before
// has; for loads that fail; for partitions that are dropped after a checkpoint has written them; and
// for expired keys that die in other ways than by a purge.
func Specials() []Workload {
	return spelt(
		"one relax.0 sync.0 relax.1",
		"busy put.0 kill.1 big.2 ckpt.3 put.4",
		"busy relax.0 ckpt.1 over.2 kill.3 bulk.4 over.5 kill.6 batch.7 ckpt.8 reopen.9 big.10",
		"wide beside.0",
		"wide beside.1 over.1 batch.2 ckpt.3",
		"wide beside.0 beside.1 reopen.2",
		"wide+direct beside.0 relax.1 sync.2 big.3 ckpt.4",
		"wide big.0 rotate.1 beside.2 big.3 over.4 ckpt.5 big.6 ckpt.7",
		"wide hold.0 many.1 beside.2 cut.3 ckpt.4 hold.5 ckpt.6",
		"wide many.0 ckpt.1 many.2 beside.3 big.4 kill.5",
		"wide laid.0 laid.1 ckpt.2 cut.3 beside.4 beside.5",
		"wide+direct range.0 beside.1 ckpt.2 over.3",
		"wide many.0 ckpt.1 hold.2 many.3 spoil.4 hold.5 over.6 many.7 ckpt.8",
		"busy big.0 spoil.1 over.2 ckpt.3",
		"wide beside.0 many.1 spoil.2 beside.3",
		"one append.0 append.1 ckpt.2 dropexp.3 append.4 dropexp.5 ckpt.6",
		"busy purge.0 evict.1 clock.2 purgein.3 kill.4 frozen.5",
		"wide evict.1 hold.2 clearttl.3 beside.4 purge.5 hold.6 reopen.7",
		"spread+groups many.0 ckpt.1 cut.2 hold.3 ckpt.4 many.5 kill.6",
		"spread+direct+groups laid.0 bulk.1 del.2 reopen.3 many.4",
		"wide+groups many.0 beside.1 many.2 beside.3 reopen.4",
		"holed+groups pack.0 many.1 pack.2 over.3 kill.4 pack.5",
		"wide over.0 hold.1 pack.2 big.3 many.4 pack.5 hold.6 del.7",
	)
}

// relaxedAndKilled are workloads that end with a recovery of what only the page cache has.
func relaxedAndKilled() []Workload {
	return spelt("one relax.0 kill.1", "busy relax.0 relax.1 kill.2", "busy+direct relax.0 relax.1 kill.2")
}

func spelt(texts ...string) (all []Workload) {
	for _, text := range texts {
		w, err := ParseWorkload(text)
		if err != nil {
			panic("fuzz: " + err.Error())
		}
		all = append(all, w)
	}
	return all
}

// Sequences gives all workloads of at most length operations, the short ones first.
func Sequences(length int) []Workload {
	var all []Workload
	for _, b := range sequenceBases {
		all = append(all, Workload{Base: b})
	}
	from := 0
	for range length {
		to := len(all)
		for _, w := range all[from:to] {
			for kind := range operations {
				if operations[kind].sequence {
					ops := append(w.Ops[:len(w.Ops):len(w.Ops)], Op{kind, uint32(len(w.Ops))})
					all = append(all, Workload{Base: w.Base, Ops: ops})
				}
			}
		}
		from = to
	}
	return all
}

// randomName is how a random workload of a seed and a length is spelt.
const randomName = "random:%d:%d"

// Random gives a workload of n operations.
func Random(seed uint64, n int) Workload {
	rnd := rand.New(rand.NewPCG(seed, 7))
	w := Workload{Base: "random", name: fmt.Sprintf(randomName, seed, n)}
	if seed%4 == 3 {
		w.Base += directSuffix
	}
	if seed%8 >= 4 {
		w.Base += groupsSuffix
	}
	total := 0
	for i := range operations {
		total += operations[i].weight
	}
	for range n {
		pick, kind := rnd.IntN(total), 0
		for pick >= operations[kind].weight {
			pick -= operations[kind].weight
			kind++
		}
		w.Ops = append(w.Ops, Op{kind, rnd.Uint32() >> 8})
	}
	return w
}
