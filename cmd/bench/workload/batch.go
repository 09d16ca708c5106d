package workload

import (
	"github.com/ebbkv/ebb/cmd/bench/engine"
)

// A new store is filled in batches of a thousand rows, or all at once.
var batches = []Workload{
	batchWorkload("batch-seq", ascending, true, 1.3),
	batchWorkload("batch-rand", hashed, true, 1.5),
	batchWorkload("batch-seq-nosync", ascending, false, 1.3),
	batchWorkload("batch-rand-nosync", hashed, false, 1.5),
	{
		Name:  "bulk",
		About: "a new store is filled with sorted rows in the fastest way that the engine offers, and closed",
		Unit:  PerSecond, Goal: 1.5, Durable: true, Sorted: true,
		Fixture: Fixture{Order: ascending},
		Run:     runBulk,
		Limit:   func(r *Run) error { return r.appends(r.rows(), max(r.rows()/8, 1), rowBytes, true) },
	},
}

func batchWorkload(name string, o order, durable bool, goal float64) Workload {
	about := "a new store is filled in batches of 1000 rows, "
	about += map[order]string{ascending: "in order, ", hashed: "in random order, "}[o]
	about += map[bool]string{true: "each durable", false: "not waiting for the disk"}[durable]
	return Workload{
		Name: name, About: about, Unit: PerSecond, Goal: goal, Durable: durable, Sorted: o == ascending,
		Fixture: Fixture{Order: o},
		Run:     func(r *Run) error { return r.fill(batch) },
		Limit:   func(r *Run) error { return r.appends(r.rows(), batchRows, rowBytes, durable) },
	}
}

// fill puts all rows into a new store, a thousand in each commit.
func (r *Run) fill(commits func(engine.Client) commit) error {
	if err := r.open(); err != nil {
		return err
	}
	f := r.w.Fixture
	sequence := f.sequence(r.rng, r.rows())
	err := r.concurrently(len(sequence), rowBytes, func(c engine.Client, lo, hi int, _ *latencies) error {
		return f.load(commits(c), sequence[lo:hi])
	})
	if err != nil {
		return err
	}
	return r.expect(f.tally(len(sequence), false, nil, nil))
}

func runBulk(r *Run) error {
	if err := r.open(); err != nil {
		return err
	}
	f, n := r.w.Fixture, r.rows()
	err := r.timed(n, rowBytes, func() error {
		if err := r.bulkLoad(f, n); err != nil {
			return err
		}
		return r.close()
	})
	if err != nil {
		return err
	}
	if err := r.open(); err != nil {
		return err
	}
	return r.expect(f.tally(n, false, nil, nil))
}

func (r *Run) bulkLoad(f Fixture, n int) error {
	b, ok := r.store.(engine.BulkLoader)
	if !ok {
		return r.withClient(func(c engine.Client) error { return f.load(c.Batch, counting(n)) })
	}
	a := newArena(1, valueSize)
	return b.BulkLoad(n, func(i int) (k, v []byte) { return a.row(f.Order, i, valueSize, 0) })
}
