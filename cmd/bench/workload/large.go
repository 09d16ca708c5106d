package workload

import (
	"fmt"
	"math/rand/v2"

	"github.com/ebbkv/ebb/cmd/bench/engine"
)

const (
	largeValue = 64 << 10
	hugeValue  = 1 << 20

	// Rows for each million of the main set: both make 128 MB or so.
	largePerMillion = 2000
	hugePerMillion  = 120
)

// Values that fill many pages.
var larges = []Workload{
	largePut("put-64k", largeFixture(largeValue, largePerMillion)),
	largeGet("get-64k", "copied", MBps, 200_000, largeFixture(largeValue, largePerMillion)),
	largeGet("touch-64k", touched, PerSecond, 5_000_000, largeFixture(largeValue, largePerMillion)),
	firstGet("first-64k", largeFixture(largeValue, largePerMillion)),
	largePut("put-1m", largeFixture(hugeValue, hugePerMillion)),
	largeGet("get-1m", "copied", MBps, 15_000, largeFixture(hugeValue, hugePerMillion)),
	largeGet("touch-1m", touched, PerSecond, 5_000_000, largeFixture(hugeValue, hugePerMillion)),
	firstGet("first-1m", largeFixture(hugeValue, hugePerMillion)),
}

const touched = "of which the first and the last bytes are read"

func largeFixture(value, perMillion int) Fixture {
	return Fixture{Loaded: true, Value: value, PerMill: perMillion}
}

func largePut(name string, f Fixture) Workload {
	f.Loaded = false
	return Workload{
		Name: name, About: fmt.Sprintf("durable puts of new values of %d KiB, one at a time", f.Value>>10),
		Unit: MBps, Goal: 1, Durable: true, Fixture: f,
		Run: func(r *Run) error {
			if err := r.open(); err != nil {
				return err
			}
			err := r.concurrently(r.rows()*f.Value, 1, func(c engine.Client, _, _ int, _ *latencies) error {
				a := newArena(1, f.Value)
				for i := range r.rows() {
					if err := c.Put(a.row(hashed, i, f.Value, 0)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			return r.expect(f.tally(r.rows(), false, nil, nil))
		},
		Limit: func(r *Run) error { return r.appends(r.rows()*f.Value, f.Value, 1, true) },
	}
}

func largeGet(name, how string, unit Unit, opsPerMillion int, f Fixture) Workload {
	w := Workload{
		Name: name, About: fmt.Sprintf("gets of values of %d KiB, %s, in one transaction", f.Value>>10, how),
		Unit: unit, Goal: 1, Fixture: f, Big: true,
		Run: func(r *Run) error {
			rng, n, perMillion := rand.New(rand.NewPCG(9, 9)), r.rows(), opsPerMillion
			if unit == PerSecond && r.Engine.Copies {
				perMillion /= 1000 // the rate is the same, and takes seconds, not hours
			}
			return runLargeGets(r, r.ops(perMillion), func(int) int { return rng.IntN(n) })
		},
	}
	if unit == MBps {
		w.Limit = func(r *Run) error { return r.copies(r.ops(opsPerMillion), f.Value) }
	}
	return w
}

// firstGet is what the first get of a value costs, which the others hide behind all that follow:
// page faults, and the proof where a store has one.
func firstGet(name string, f Fixture) Workload {
	return Workload{
		Name: name,
		About: fmt.Sprintf("the first get of each value of %d KiB after the store was opened, %s, "+
			"in one transaction", f.Value>>10, touched),
		Unit: PerSecond, Fixture: f,
		Run: func(r *Run) error {
			rows := permutation(r.rng, r.rows())
			return runLargeGets(r, len(rows), func(i int) int { return int(rows[i]) })
		},
	}
}

// runLargeGets gets row(0) to row(ops-1). It copies the values if the unit is bytes, and looks at
// both ends of each in any case.
func runLargeGets(r *Run, ops int, row func(i int) int) error {
	if err := r.open(); err != nil {
		return err
	}
	size := r.valueSize()
	return r.concurrently(r.opsOf(ops, size), 0, func(c engine.Client, _, _ int, _ *latencies) error {
		check := newChecker(size)
		use := ends(check)
		if r.w.Unit == MBps {
			use = copied(check)
		}
		err := c.View(func(rd engine.Reader) error {
			for i := range ops {
				if _, err := rd.Get(hashed.key(check.key[:], row(i)), use); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return check.expect(ops)
	})
}

// ends checks a value and its last byte.
func ends(check *checker) func([]byte) {
	return func(v []byte) {
		if len(v) > 0 && v[len(v)-1] == lastByte(check.key[:], check.size) {
			check.use(v)
		}
	}
}

func copied(check *checker) func([]byte) {
	own, look := make([]byte, check.size), ends(check)
	return func(v []byte) { look(own[:copy(own, v)]) }
}

// lastByte of the value that fill makes for version 0.
func lastByte(key []byte, size int) byte {
	return filler[tag(key)%fillerStart+uint64(size)-1]
}
