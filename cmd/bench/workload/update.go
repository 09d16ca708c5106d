package workload

import (
	"github.com/ebbkv/ebb/cmd/bench/engine"
)

// Writes as programs have them: in the closure of a write transaction, not waiting for the disk.
var closures = []Workload{
	{
		Name:  "update-1",
		About: "updates of one row at random, each in the closure of a write transaction",
		Unit:  PerSecond, Goal: 1, Fixture: Fixture{Loaded: true},
		Run:   runUpdates,
		Limit: func(r *Run) error { return r.appends(r.ops(updatesPerMillion), 1, rowBytes, false) },
	},
	{
		Name:  "update-seq",
		About: "a new store is filled in order, 1000 rows in the closure of each write transaction",
		Unit:  PerSecond, Goal: 1, Sorted: true, Fixture: Fixture{Order: ascending},
		Run:   func(r *Run) error { return r.fill(update) },
		Limit: func(r *Run) error { return r.appends(r.rows(), batchRows, rowBytes, false) },
	},
	{
		Name:  "update-delete",
		About: "half of the rows are deleted in random order, 1000 in the closure of each write transaction",
		Unit:  PerSecond, Goal: 1, Fixture: Fixture{Loaded: true},
		Run:   func(r *Run) error { return r.deleteHalf(update) },
		Limit: func(r *Run) error { return r.appends(r.rows()/2, batchRows, keySize, false) },
	},
}

const updatesPerMillion = 500_000

// commit commits all that fn writes, or nothing.
type commit func(fn func(engine.Writer) error) error

// update is a client's write transaction: its Batch if it has nothing else.
func update(c engine.Client) commit {
	if u, ok := c.(engine.Updater); ok {
		return u.Update
	}
	return c.Batch
}

// batch is a client's Batch.
func batch(c engine.Client) commit { return c.Batch }

func runUpdates(r *Run) error {
	if err := r.open(); err != nil {
		return err
	}
	ops := r.ops(updatesPerMillion)
	versions := make([]uint32, r.rows())
	err := r.concurrently(ops, rowBytes, func(c engine.Client, _, _ int, _ *latencies) error {
		return overwrite(update(c), r.rng, versions, ops, 1)
	})
	if err != nil {
		return err
	}
	return r.expect(r.w.Fixture.tally(r.rows(), false, nil,
		func(i int) uint64 { return uint64(versions[i]) }))
}
