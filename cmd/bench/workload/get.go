package workload

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/ebbkv/ebb/cmd/bench/engine"
	"github.com/ebbkv/ebb/cmd/bench/limit"
)

// Reads of single rows at random, everything in memory.
var gets = []Workload{
	getWorkload("get", "gets at random in one transaction", 1, 1.3, Fixture{Loaded: true}, getsInOne),
	getWorkload("get-2", "the same by 2 goroutines", 2, 1.3, Fixture{Loaded: true}, getsInOne),
	getWorkload(
		"get-own",
		"gets at random, each in a transaction of its own",
		1,
		1.5,
		Fixture{Loaded: true},
		getsAlone,
	),
	getWorkload("get-own-2", "the same by 2 goroutines", 2, 1.5, Fixture{Loaded: true}, getsAlone),
	getWorkload(
		"get-view",
		"gets at random, each in the closure of a read transaction of its own",
		1,
		1.4,
		Fixture{Loaded: true},
		getsInViews,
	),
	getWorkload(
		"miss",
		"gets of keys that are not there, in one transaction",
		1,
		1.5,
		Fixture{Loaded: true},
		misses,
	),
}

// getter does ops gets at random among n rows.
type getter func(c engine.Client, rng *rand.Rand, n, ops int) error

func getWorkload(name, about string, clients int, goal float64, f Fixture, get getter) Workload {
	return Workload{
		Name: name, About: about, Unit: PerSecond, Goal: goal, Clients: clients, Fixture: f,
		Run: func(r *Run) error {
			if err := r.open(); err != nil {
				return err
			}
			return r.concurrently(r.ops(1_000_000), 0, func(c engine.Client, lo, hi int, _ *latencies) error {
				return get(c, rand.New(rand.NewPCG(uint64(lo), 3)), r.rows(), hi-lo)
			})
		},
		Limit: func(r *Run) error { return r.searches(r.ops(1_000_000), name == "miss") },
	}
}

// checker counts the values that are right. Its method is made a function value once, so that gets
// do not allocate.
type checker struct {
	key   [keySize]byte
	size  int
	right int
	use   func([]byte)
}

func newChecker(size int) *checker {
	c := &checker{size: size}
	c.use = func(v []byte) {
		if rightValue(v, c.key[:], c.size) {
			c.right++
		}
	}
	return c
}

func (c *checker) expect(n int) error {
	if c.right != n {
		return fmt.Errorf("wrong answer: %d of %d values are right", c.right, n)
	}
	return nil
}

// readRows fails if one of the rows [lo, hi) is not there as it was put.
func readRows(c engine.Client, lo, hi int) error {
	check := newChecker(valueSize)
	for i := lo; i < hi; i++ {
		if _, err := c.Get(hashed.key(check.key[:], i), check.use); err != nil {
			return err
		}
	}
	return check.expect(hi - lo)
}

func getsInOne(c engine.Client, rng *rand.Rand, n, ops int) error {
	check := newChecker(valueSize)
	err := c.View(func(rd engine.Reader) error {
		for range ops {
			if _, err := rd.Get(hashed.key(check.key[:], rng.IntN(n)), check.use); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return check.expect(ops)
}

func getsAlone(c engine.Client, rng *rand.Rand, n, ops int) error {
	check := newChecker(valueSize)
	for range ops {
		if _, err := c.Get(hashed.key(check.key[:], rng.IntN(n)), check.use); err != nil {
			return err
		}
	}
	return check.expect(ops)
}

func getsInViews(c engine.Client, rng *rand.Rand, n, ops int) error {
	check := newChecker(valueSize)
	get := func(rd engine.Reader) error {
		_, err := rd.Get(check.key[:], check.use)
		return err
	}
	for range ops {
		hashed.key(check.key[:], rng.IntN(n))
		if err := c.View(get); err != nil {
			return err
		}
	}
	return check.expect(ops)
}

func misses(c engine.Client, rng *rand.Rand, n, ops int) error {
	check := newChecker(valueSize)
	return c.View(func(rd engine.Reader) error {
		for range ops {
			found, err := rd.Get(hashed.key(check.key[:], n+rng.IntN(n)), check.use)
			if err != nil {
				return err
			}
			if found {
				return fmt.Errorf("wrong answer: key %x is not there", check.key)
			}
		}
		return nil
	})
}

// searches is the limit of gets: the rows lie sorted in one array, and are found by binary search.
func (r *Run) searches(ops int, missing bool) error {
	array := r.array(r.rows())
	clients := max(r.w.Clients, 1)
	right := make([]int, clients)
	return r.timed(ops, 0, func() error {
		var wg sync.WaitGroup
		for g := range clients {
			wg.Go(func() {
				rng, k := rand.New(rand.NewPCG(uint64(g), 3)), make([]byte, keySize)
				base := 0
				if missing {
					base = r.rows()
				}
				for range ops / clients {
					if v := array.Get(hashed.key(k, base+rng.IntN(r.rows()))); v != nil &&
						rightValue(v, k, valueSize) {
						right[g]++
					}
				}
			})
		}
		wg.Wait()
		return nil
	})
}

// array holds the first n hashed rows.
func (r *Run) array(n int) *limit.Array {
	a := newArena(1, valueSize)
	return limit.NewArray(
		n,
		keySize,
		valueSize,
		func(i int) (k, v []byte) { return a.row(hashed, i, valueSize, 0) },
	)
}
