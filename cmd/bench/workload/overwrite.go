package workload

import (
	"math/rand/v2"

	"github.com/ebbkv/ebb/cmd/bench/engine"
)

// overwrites is every row written five times over, which is what wears out disks and grows files.
var overwrites = []Workload{{
	Name:  "overwrite",
	About: "as many updates at random as five times the rows, in batches of 100, not waiting for the disk",
	Unit:  PerSecond, Goal: 1.3, Fixture: Fixture{Loaded: true},
	Run: runOverwrite, WatchDisk: true,
	Limit: func(r *Run) error {
		return r.appends(5*r.rows(), overwriteBatch, rowBytes, false)
	},
}}

const overwriteBatch = 100

func runOverwrite(r *Run) error {
	if err := r.open(); err != nil {
		return err
	}
	n := r.rows()
	versions := make([]uint32, n)
	err := r.concurrently(5*n, rowBytes, func(c engine.Client, _, _ int, _ *latencies) error {
		return overwrite(c.Batch, r.rng, versions, 5*n, overwriteBatch)
	})
	if err != nil {
		return err
	}
	r.Result.Data = int64(n) * rowBytes
	return r.expect(r.w.Fixture.tally(n, false, nil, func(i int) uint64 { return uint64(versions[i]) }))
}

// overwrite updates hashed rows at random, and notes the newest version of each.
func overwrite(commit commit, rng *rand.Rand, versions []uint32, ops, size int) error {
	a := newArena(size, valueSize)
	for done := 0; done < ops; done += size {
		err := commit(func(w engine.Writer) error {
			for i := done; i < min(done+size, ops); i++ {
				row := rng.IntN(len(versions))
				versions[row] = uint32(i + 1)
				if err := w.Put(a.row(hashed, row, valueSize, uint64(i+1))); err != nil {
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
