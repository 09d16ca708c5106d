package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ebbkv/ebb/cmd/bench/engine"
)

// Rows that run in a control group whose memory, page cache included, is limited, with data of half
// of the limit up to four times as much. They are big: only asked for by name. With -n 1000000 the
// sizes are those of their names; the limit does not change with -n.
var memories = memoryRows()

// What one of these rows takes at most with -n 1000000, so that an engine that has collapsed does
// not hold all up.
const (
	memoryGetTime   = 10 * time.Second
	memoryLoadTime  = 40 * time.Second
	memoryAfterTime = 5 * time.Minute // for the load that is not measured
)

func memoryRows() (rows []Workload) {
	for _, limit := range []int64{256, 600} {
		for _, size := range []struct {
			name  string
			parts int64 // halves of the limit
		}{{"half", 1}, {"once", 2}, {"twice", 4}, {"four", 8}} {
			f := Fixture{Loaded: true, PerMill: int(limit << 20 * size.parts / 2 / rowBytes)}
			empty := f
			empty.Loaded = false
			add := func(kind, about string, durable bool, f Fixture, run func(*Run) error) {
				rows = append(rows, Workload{
					Name: fmt.Sprintf("memory-%d-%s-%s", limit, size.name, kind),
					About: fmt.Sprintf("%s; in %d MB of memory, data %s of it", about, limit,
						times(size.parts)),
					Unit: PerSecond, Goal: 1, Durable: durable, Fixture: f, Run: run, Big: true,
					Memory: limit << 20,
				})
			}
			add("get", "gets at random for ten seconds", false, f, runMemoryGets)
			add("scan", "the store is opened, and all rows read in order, once", false, f, runMemoryScan)
			add(
				"load",
				"a new store is filled at random in batches of 1000, each durable, for up to 40 s",
				true,
				empty,
				runMemoryLoad,
			)
			add(
				"after",
				"gets at random for ten seconds after a load without syncs of up to 5 min, "+
					"in the same process",
				false,
				empty,
				runMemoryAfter,
			)
		}
	}
	return rows
}

func times(halves int64) string {
	return map[int64]string{1: "half", 2: "once", 4: "twice", 8: "four times"}[halves]
}

// until is when a row that may take so long with a million rows is over.
func (r *Run) until(d time.Duration) time.Time {
	return time.Now().Add(time.Duration(float64(d) * float64(r.N) / 1e6))
}

// openAndClose opens the store, does fn, and closes it; it notes how long opening and closing took.
func (r *Run) openAndClose(fn func(engine.Client) error) error {
	if err := r.openThen(fn); err != nil {
		return err
	}
	began := time.Now()
	err := r.close()
	r.Result.CloseSeconds = time.Since(began).Seconds()
	return err
}

func (r *Run) openThen(fn func(engine.Client) error) error {
	began := time.Now()
	if err := r.open(); err != nil {
		return err
	}
	r.Result.OpenSeconds = time.Since(began).Seconds()
	return r.withClient(fn)
}

// timedOps is timed where the number of operations is not known before.
func (r *Run) timedOps(userBytes int, fn func() (ops int, err error)) error {
	ops, faults := 0, majorFaults()
	err := r.timed(1, 0, func() (err error) {
		ops, err = fn()
		return err
	})
	r.Result.Faults = float64(majorFaults()-faults) / float64(max(ops, 1))
	r.Result.CPU /= float64(max(ops, 1))
	r.Result.User = int64(ops) * int64(userBytes)
	r.Result.Value = r.w.Unit.value(ops, time.Duration(r.Result.Seconds*float64(time.Second)))
	return err
}

// getsFor gets rows at random among the first n in a transaction each, until the time is over.
func (r *Run) getsFor(c engine.Client, n int) error {
	return r.timedOps(0, func() (ops int, err error) {
		rng, check := rand.New(rand.NewPCG(9, 3)), newChecker(valueSize)
		for end := r.until(memoryGetTime); ops < 100 || time.Now().Before(end); ops++ {
			if _, err := c.Get(hashed.key(check.key[:], rng.IntN(n)), check.use); err != nil {
				return ops, err
			}
		}
		return ops, check.expect(ops)
	})
}

func runMemoryGets(r *Run) error {
	return r.openAndClose(func(c engine.Client) error { return r.getsFor(c, r.rows()) })
}

// runMemoryScan measures Open as well: an engine that reads its whole file there has its rows in
// memory afterwards, as far as they fit, and one that does not reads them from the disk.
func runMemoryScan(r *Run) error {
	var t engine.Tally
	err := r.timedOps(0, func() (int, error) {
		err := r.openThen(func(c engine.Client) error {
			return c.View(func(rd engine.Reader) error { return rd.Scan(engine.Range{}, &t) })
		})
		return t.Rows, err
	})
	if err == nil && t.Rows != r.rows() {
		err = fmt.Errorf("wrong answer: %d rows of %d", t.Rows, r.rows())
	}
	began := time.Now()
	err = errors.Join(err, r.close())
	r.Result.CloseSeconds = time.Since(began).Seconds()
	return err
}

// loadFor puts rows 0, 1, 2 and so on, whose keys lie anywhere, until the store holds all of them or
// the time is over.
func (r *Run) loadFor(c engine.Client, d time.Duration) (rows int, err error) {
	all := r.rows()
	for end := r.until(d); rows < all && (rows == 0 || time.Now().Before(end)); {
		n := min(batchRows, all-rows)
		batch := make([]uint32, n)
		for i := range batch {
			batch[i] = uint32(rows + i)
		}
		if err := r.w.Fixture.load(c.Batch, batch); err != nil {
			return rows, err
		}
		rows += n
	}
	return rows, nil
}

func runMemoryLoad(r *Run) error {
	return r.openAndClose(func(c engine.Client) error {
		return r.timedOps(rowBytes, func() (int, error) { return r.loadFor(c, memoryLoadTime) })
	})
}

// runMemoryAfter loads without syncs: with them, the time was over for LMDB at three quarters of the
// rows of Ebb, which nearly fit into memory. It notes how many rows the gets choose from: those of an
// engine that loads slowly may fit, and the report compares only engines that hold as many.
func runMemoryAfter(r *Run) error {
	return r.openAndClose(func(c engine.Client) error {
		rows, err := r.loadFor(c, memoryAfterTime)
		if err != nil {
			return err
		}
		r.Result.Rows = rows
		return r.getsFor(c, rows)
	})
}
