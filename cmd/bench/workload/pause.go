package workload

import (
	"fmt"
	"time"

	"github.com/ebbkv/ebb/cmd/bench/engine"
)

// What work in the background does to the commits beside it: p99 of durable puts in its time, as a
// multiple of p99 of the same puts before.
var pauses = []Workload{
	{
		Name:  "pause-checkpoint",
		About: "p99 of durable puts while a checkpoint or flush runs, as a multiple of that without one",
		Unit:  Times, Durable: true, KeepLog: true, Clients: 2, Fixture: Fixture{Loaded: true},
		Needs: func(e engine.Engine) bool { return e.Checkpoints },
		Run: func(r *Run) error {
			versions := make([]uint32, r.rows())
			return r.pause(func(c engine.Client) (func() error, error) {
				err := overwrite(c.Batch, r.rng, versions, r.ops(200_000), batchRows)
				return r.store.(engine.Checkpointer).Checkpoint, err
			})
		},
	},
	{
		Name:  "pause-purge",
		About: "p99 of durable puts while a tenth of the rows is purged, as a multiple of that without",
		Unit:  Times, Durable: true, KeepLog: true, Clients: 2,
		Fixture: Fixture{Loaded: true, TTL: true, Due: true}, Needs: purges,
		Run: func(r *Run) error {
			r.clock = time.Hour
			return r.pause(func(c engine.Client) (func() error, error) {
				return func() error {
					n, err := c.(engine.Purger).Purge(gentleBatch)
					if err == nil && n != r.due() {
						err = fmt.Errorf("wrong answer: %d rows purged, %d were due", n, r.due())
					}
					return err
				}, nil
			})
		},
	},
}

// pause puts rows one by one, first alone and then while what prepare returned runs beside it.
func (r *Run) pause(prepare func(engine.Client) (work func() error, err error)) error {
	if err := r.open(); err != nil {
		return err
	}
	return r.withClient(func(beside engine.Client) error {
		work, err := prepare(beside)
		if err != nil {
			return err
		}
		return r.withClient(func(c engine.Client) error { return r.compare(c, work) })
	})
}

func (r *Run) compare(c engine.Client, work func() error) error {
	first, a := r.rows(), newArena(1, valueSize)
	row := first
	put := func(lat *latencies) error {
		k, v := a.row(hashed, row, valueSize, 0)
		row++
		began := time.Now()
		err := c.Put(k, v)
		lat.add(time.Since(began))
		return err
	}
	var idle, busy latencies
	for range r.ops(5_000) {
		if err := put(&idle); err != nil {
			return err
		}
	}
	err := r.timed(1, 0, func() error {
		done := make(chan error, 1)
		go func() { done <- work() }()
		for { // At least one put, however soon the work is done.
			if err := put(&busy); err != nil {
				return err
			}
			select {
			case err := <-done:
				return err
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	r.percentiles(&busy)
	r.Result.IdleP99, r.Result.Beside = idle.percentile(99).Seconds()*1e6, int(busy.count)
	r.Result.Value = r.Result.P99us / r.Result.IdleP99
	return readRows(c, first, row)
}
