package workload

import (
	"time"

	"github.com/ebbkv/ebb/cmd/bench/engine"
	"github.com/ebbkv/ebb/cmd/bench/limit"
)

// YCSB's workloads A (half of all operations update) and B (one in twenty), on zipfian rows, by one
// goroutine. Every operation is a transaction of its own.
var mixes = []Workload{
	mixWorkload("ycsb-a", 50, 40_000, true),
	mixWorkload("ycsb-b", 5, 200_000, true),
	mixWorkload("ycsb-a-nosync", 50, 500_000, false),
	mixWorkload("ycsb-b-nosync", 5, 500_000, false),
}

func mixWorkload(name string, updatePercent, opsPerMillion int, durable bool) Workload {
	about := map[int]string{
		50: "YCSB A: half gets, half updates",
		5:  "YCSB B: 95 % gets, 5 % updates",
	}[updatePercent]
	about += map[bool]string{true: ", durable", false: ", not waiting for the disk"}[durable]
	return Workload{
		Name: name, About: about, Unit: PerSecond, Goal: 1.3, Durable: durable,
		Fixture: Fixture{Loaded: true},
		Run: func(r *Run) error {
			if err := r.open(); err != nil {
				return err
			}
			return r.mix(r.operations(r.ops(opsPerMillion), updatePercent))
		},
		Limit: func(r *Run) error { return r.mixLimit(r.operations(r.ops(opsPerMillion), updatePercent)) },
	}
}

// operation is a row, and whether it is updated or read.
type operation struct {
	row    uint32
	update bool
}

func (r *Run) operations(n, updatePercent int) []operation {
	z, ops := newZipfian(r.rows()), make([]operation, n)
	for i := range ops {
		ops[i] = operation{uint32(z.next(r.rng)), r.rng.IntN(100) < updatePercent}
	}
	return ops
}

func (r *Run) mix(ops []operation) error {
	versions := make([]uint32, r.rows())
	err := r.concurrently(len(ops), rowBytes, func(c engine.Client, _, _ int, lat *latencies) error {
		check, a, reads := newChecker(valueSize), newArena(1, valueSize), 0
		for i, op := range ops {
			var err error
			began := time.Now()
			if op.update {
				k, v := a.row(hashed, int(op.row), valueSize, uint64(i+1))
				err = c.Put(k, v)
				versions[op.row] = uint32(i + 1)
			} else {
				_, err = c.Get(hashed.key(check.key[:], int(op.row)), check.use)
				reads++
			}
			if err != nil {
				return err
			}
			lat.add(time.Since(began))
		}
		return check.expect(reads)
	})
	if err != nil {
		return err
	}
	r.Result.User = int64(updates(ops) * rowBytes)
	return r.expect(r.w.Fixture.tally(r.rows(), false, nil,
		func(i int) uint64 { return uint64(versions[i]) }))
}

func updates(ops []operation) (n int) {
	for _, op := range ops {
		if op.update {
			n++
		}
	}
	return n
}

// mixLimit reads from an array and appends to a file.
func (r *Run) mixLimit(ops []operation) error {
	array := r.array(r.rows())
	log, err := limit.OpenLog(r.Dir, rowBytes, updates(ops), r.w.Durable)
	if err != nil {
		return err
	}
	defer log.Close()
	var lat latencies
	err = r.timed(len(ops), 0, func() error {
		check := newChecker(valueSize)
		for _, op := range ops {
			began := time.Now()
			if op.update {
				if err := log.Append(); err != nil {
					return err
				}
			} else {
				check.use(array.Get(hashed.key(check.key[:], int(op.row))))
			}
			lat.add(time.Since(began))
		}
		return check.expect(len(ops) - updates(ops))
	})
	r.percentiles(&lat)
	return err
}
