package workload

import (
	"slices"

	"github.com/ebbkv/ebb/cmd/bench/engine"
)

// Half of the rows go away in random order, and come back.
var deletes = []Workload{
	{
		Name:  "delete-half",
		About: "half of the rows are deleted in random order, in batches of 1000, not waiting for the disk",
		Unit:  PerSecond, Goal: 1, Fixture: Fixture{Loaded: true},
		Run:   func(r *Run) error { return r.deleteHalf(batch) },
		Limit: func(r *Run) error { return r.appends(r.rows()/2, batchRows, keySize, false) },
	},
	{
		Name:  "refill",
		About: "the deleted half is put back in random order, in batches of 1000, not waiting for the disk",
		Unit:  PerSecond, Goal: 1.3, Fixture: Fixture{Loaded: true},
		Run: func(r *Run) error {
			if err := r.open(); err != nil {
				return err
			}
			order := r.half()
			err := r.withClient(func(c engine.Client) error { return deleteRows(c.Batch, order) })
			if err != nil {
				return err
			}
			r.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			err = r.concurrently(len(order), rowBytes, func(c engine.Client, _, _ int, _ *latencies) error {
				return r.w.Fixture.load(c.Batch, order)
			})
			if err != nil {
				return err
			}
			return r.expect(r.w.Fixture.tally(r.rows(), false, nil, nil))
		},
		Limit: func(r *Run) error { return r.appends(r.rows()/2, batchRows, rowBytes, false) },
	},
}

// deleteHalf deletes the rows with an even number, a thousand in each commit.
func (r *Run) deleteHalf(commits func(engine.Client) commit) error {
	if err := r.open(); err != nil {
		return err
	}
	order := r.half()
	err := r.concurrently(len(order), keySize, func(c engine.Client, _, _ int, _ *latencies) error {
		return deleteRows(commits(c), order)
	})
	if err != nil {
		return err
	}
	return r.expect(r.w.Fixture.tally(r.rows(), false, isOdd, nil))
}

// half is the rows with an even number, in random order.
func (r *Run) half() []uint32 {
	return slices.DeleteFunc(permutation(r.rng, r.rows()), func(i uint32) bool { return i%2 != 0 })
}

func isOdd(i int) bool { return i%2 != 0 }

// deleteRows deletes hashed rows, a thousand in each commit.
func deleteRows(commit commit, order []uint32) error {
	a := newArena(batchRows, 0)
	for batch := range slices.Chunk(order, batchRows) {
		err := commit(func(w engine.Writer) error {
			for _, i := range batch {
				if err := w.Delete(a.key(hashed, int(i))); err != nil {
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
