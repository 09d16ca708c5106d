package workload

import (
	"time"

	"github.com/ebbkv/ebb/cmd/bench/engine"
	"github.com/ebbkv/ebb/cmd/bench/limit"
)

// One row in each durable commit: what a sync costs, and how well commits share it.
var puts = []Workload{
	putWorkload("put-1", 1, 30_000, 1.3),
	putWorkload("put-8", 8, 60_000, 1.5),
	putWorkload("put-64", 64, 300_000, 1.5),
}

func putWorkload(name string, clients, opsPerMillion int, goal float64) Workload {
	return Workload{
		Name: name, About: "durable puts of one new row each, in random order, by " +
			countOf(clients, "goroutine"),
		Unit: PerSecond, Goal: goal, Durable: true, Clients: clients,
		Fixture: Fixture{Loaded: true, Order: hashed},
		Run: func(r *Run) error {
			if err := r.open(); err != nil {
				return err
			}
			n, ops := r.rows(), r.ops(opsPerMillion)
			err := r.concurrently(ops, rowBytes, func(c engine.Client, lo, hi int, lat *latencies) error {
				a := newArena(1, valueSize)
				for i := lo; i < hi; i++ {
					k, v := a.row(hashed, n+i, valueSize, 0)
					began := time.Now()
					if err := c.Put(k, v); err != nil {
						return err
					}
					lat.add(time.Since(began))
				}
				return nil
			})
			if err != nil {
				return err
			}
			return r.expect(r.w.Fixture.tally(n+ops, false, nil, nil))
		},
		Limit: func(r *Run) error { return r.appends(r.ops(opsPerMillion), clients, rowBytes, true) },
	}
}

// appends is the limit of durable writes: ops rows of the given size, perSync of them in one write
// and one sync. If sync is false it is a write to the operating system.
func (r *Run) appends(ops, perSync, rowBytes int, sync bool) error {
	log, err := limit.OpenLog(r.Dir, perSync*rowBytes, ops/perSync, sync)
	if err != nil {
		return err
	}
	defer log.Close()
	var lat latencies
	err = r.timed(ops, 0, func() error {
		for done := 0; done < ops; done += perSync {
			began := time.Now()
			if err := log.Append(); err != nil {
				return err
			}
			lat.add(time.Since(began))
		}
		return nil
	})
	r.percentiles(&lat)
	return err
}
