package workload

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ebbkv/ebb/cmd/bench/engine"
)

func expires(e engine.Engine) bool { return e.Expires }
func purges(e engine.Engine) bool  { return e.Purges }

// Rows that expire. Engines without expiry take part with the index that their users write by hand.
var expiries = []Workload{
	{
		Name:  "ttl-put",
		About: "a new store is filled with rows that expire, in random order, in durable batches of 1000",
		Unit:  PerSecond, Goal: 1.5, Durable: true, Fixture: Fixture{TTL: true}, Needs: expires,
		Run:   runPutTTL,
		Limit: func(r *Run) error { return r.appends(r.rows(), batchRows, rowBytes+8, true) },
	},
	{
		Name:  "ttl-get",
		About: "gets at random of rows that will expire, each in a transaction of its own",
		Unit:  PerSecond, Goal: 1.3, Fixture: Fixture{Loaded: true, TTL: true}, Needs: expires,
		Run: func(r *Run) error {
			if err := r.open(); err != nil {
				return err
			}
			return r.concurrently(r.ops(1_000_000), 0, func(c engine.Client, lo, hi int, _ *latencies) error {
				return liveGets(c, rand.New(rand.NewPCG(uint64(lo), 3)), r.rows(), hi-lo)
			})
		},
		Limit: func(r *Run) error { return r.searches(r.ops(1_000_000), false) },
	},
	{
		Name: "ttl-purge", About: "the tenth part of the rows that is due is deleted; durable at the end",
		Unit: PerSecond, Goal: 2, Durable: true,
		Fixture: Fixture{Loaded: true, TTL: true, Due: true}, Needs: purges,
		Run:   runPurge,
		Limit: func(r *Run) error { return r.appends(r.due(), batchRows, keySize+8, true) },
	},
}

// due is how many rows have the short ttl.
func (r *Run) due() int { return (r.rows() + dueEvery - 1) / dueEvery }

func runPutTTL(r *Run) error {
	if err := r.open(); err != nil {
		return err
	}
	f := r.w.Fixture
	sequence := f.sequence(r.rng, r.rows())
	err := r.concurrently(len(sequence), rowBytes, func(c engine.Client, lo, hi int, _ *latencies) error {
		return f.load(c.Batch, sequence[lo:hi])
	})
	if err != nil {
		return err
	}
	return r.withClient(func(c engine.Client) error { return readRows(c, 0, r.rows()) })
}

// liveGets reads rows that have the long ttl in every fixture.
func liveGets(c engine.Client, rng *rand.Rand, n, ops int) error {
	check := newChecker(valueSize)
	for range ops {
		i := rng.IntN(n/dueEvery)*dueEvery + 1 + rng.IntN(dueEvery-1)
		if _, err := c.Get(hashed.key(check.key[:], i), check.use); err != nil {
			return err
		}
	}
	return check.expect(ops)
}

// Rows that one transaction of a purge deletes: many where no writer waits, few beside writers.
const (
	purgeBatch  = 10_000
	gentleBatch = 256
)

// runPurge opens the store at a time when the short ttl is over.
func runPurge(r *Run) error {
	r.clock = time.Hour
	if err := r.open(); err != nil {
		return err
	}
	purged := 0
	err := r.concurrently(r.due(), 0, func(c engine.Client, _, _ int, _ *latencies) (err error) {
		purged, err = c.(engine.Purger).Purge(purgeBatch)
		return err
	})
	if err != nil {
		return err
	}
	if purged != r.due() {
		return fmt.Errorf("wrong answer: %d rows purged, %d were due", purged, r.due())
	}
	return r.withClient(func(c engine.Client) error {
		for from := 0; from < r.rows(); from += dueEvery {
			found, err := c.Get(hashed.key(make([]byte, keySize), from), func([]byte) {})
			if err != nil {
				return err
			}
			if found {
				return fmt.Errorf("wrong answer: row %d has expired", from)
			}
			if err := readRows(c, from+1, min(from+dueEvery, r.rows())); err != nil {
				return err
			}
		}
		return nil
	})
}
