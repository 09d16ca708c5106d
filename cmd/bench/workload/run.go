package workload

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/ebbkv/ebb/cmd/bench/engine"
)

// Result is what one run measured. The workload's unit says what Value counts, and whether more is
// better.
type Result struct {
	Engine   string  `json:"engine"`
	Workload string  `json:"workload"`
	Round    int     `json:"round"`
	Value    float64 `json:"value"`
	Seconds  float64 `json:"seconds"`       // of the timed part
	CPU      float64 `json:"cpu_us_per_op"` // microseconds, all threads, per operation or MB; 0: unknown
	P50us    float64 `json:"p50_us,omitempty"`
	P99us    float64 `json:"p99_us,omitempty"`
	P999us   float64 `json:"p99_9_us,omitempty"`
	IdleP99  float64 `json:"idle_p99_us,omitempty"`     // where P99us is that of a busy time
	Beside   int     `json:"puts_beside,omitempty"`     // how many puts that was in
	Peak     int64   `json:"peak_rss_bytes,omitempty"`  // until the end of the timed part; 0: unknown
	Disk     int64   `json:"disk_bytes,omitempty"`      // of the store when the timed part ended
	DiskPeak int64   `json:"disk_peak_bytes,omitempty"` // the most until then, of rows that watch it
	Data     int64   `json:"data_bytes,omitempty"`      // of the live keys and values then
	User     int64   `json:"user_bytes,omitempty"`      // of keys and values handed to the store
	Written  int64   `json:"written_bytes,omitempty"`   // to the disk, from the timed part to Close
	Failure  string  `json:"failure,omitempty"`

	OpenSeconds  float64 `json:"open_seconds,omitempty"` // of rows with a limit of memory
	CloseSeconds float64 `json:"close_seconds,omitempty"`
	Faults       float64 `json:"major_faults_per_op,omitempty"`
	Rows         int     `json:"rows_held,omitempty"` // where a time may have cut the load
}

// Run is one run of a workload on an engine, in a directory of its own.
type Run struct {
	Engine  engine.Engine
	N       int    // rows of the main set
	Dir     string // holds the fixture
	Profile string // file for a CPU profile of the timed part; "" for none

	Result Result

	w       *Workload
	rng     *rand.Rand
	store   engine.Store
	clock   time.Duration // how far the store's clock is ahead
	written int64         // before the timed part
}

// Do runs the workload and closes what it opened.
func (r *Run) Do(w *Workload) (err error) {
	r.begin(w)
	defer func() {
		if closeErr := r.close(); err == nil {
			err = closeErr
		}
		if r.Result.User > 0 {
			r.Result.Written = writtenBytes(r.Dir) - r.written
		}
	}()
	return w.Run(r)
}

// DoLimit does the workload's job without a store.
func (r *Run) DoLimit(w *Workload) error {
	r.begin(w)
	return w.Limit(r)
}

func (r *Run) begin(w *Workload) {
	r.w, r.rng = w, rand.New(rand.NewPCG(uint64(r.N), 7))
}

// open opens the store the way that the workload asks for.
func (r *Run) open() (err error) {
	r.store, err = r.Engine.Open(r.config())
	return err
}

func (r *Run) config() engine.Config {
	return engine.Config{
		Dir: r.Dir, Durable: r.w.Durable, Sorted: r.w.Sorted, KeepLog: r.w.KeepLog,
		Clients: max(r.w.Clients, 1),
		Bytes:   int64(r.rows()) * int64(keySize+r.valueSize()),
		Now:     func() time.Time { return time.Now().Add(r.clock) },
	}
}

func (r *Run) close() error {
	if r.store == nil {
		return nil
	}
	defer func() { r.store = nil }()
	return r.store.Close()
}

func (r *Run) rows() int      { return r.w.Fixture.rows(r.N) }
func (r *Run) valueSize() int { return r.w.Fixture.value() }

// ops scales a number of operations that is meant for a million rows. In a small store there are up
// to ten times as many for each row, so that a run is long enough to be measured; those that wait for
// the disk are long enough.
func (r *Run) ops(perMillion int) int {
	scaled := int(int64(r.N) * int64(perMillion) / 1e6)
	if !r.w.Durable {
		scaled = max(scaled, min(10*scaled, perMillion))
	}
	return max(scaled, 20)
}

// timed measures fn, which does ops operations of the given size in bytes; a size of 0 says that it
// does not write.
func (r *Run) timed(ops, userBytes int, fn func() error) error {
	runtime.GC() // The garbage of what came before is not to be collected in the timed part.
	if r.Profile != "" {
		f, err := os.Create(r.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	r.written = writtenBytes(r.Dir)
	watched := r.watchDisk()
	cpu, began := cpuTime(), time.Now()
	err := fn()
	took := time.Since(began)
	r.Result.DiskPeak = watched()
	r.Result.CPU = (cpuTime() - cpu).Seconds() * 1e6 / r.w.Unit.count(ops)
	r.Result.Seconds, r.Result.User = took.Seconds(), int64(ops)*int64(userBytes)
	r.Result.Value = r.w.Unit.value(ops, took)
	r.Result.Peak, r.Result.Disk = peakRSS(), diskBytes(r.Dir)
	return err
}

// watchInterval is the time between two looks at the files of a store: checkpoints take longer.
const watchInterval = 20 * time.Millisecond

// watchDisk begins to look at the room that the files have, if the workload wants it. The result
// ends that, and returns the most that was seen.
func (r *Run) watchDisk() (end func() int64) {
	if !r.w.WatchDisk {
		return func() int64 { return 0 }
	}
	stop, most := make(chan struct{}), make(chan int64)
	go func() {
		peak, tick := int64(0), time.NewTicker(watchInterval)
		defer tick.Stop()
		for {
			peak = max(peak, diskBytes(r.Dir))
			select {
			case <-tick.C:
			case <-stop:
				most <- max(peak, diskBytes(r.Dir))
				return
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-most
	}
}

// concurrently times ops operations shared among clients. fn does those from lo to hi with a client
// of its own.
func (r *Run) concurrently(
	ops, userBytes int,
	fn func(c engine.Client, lo, hi int, lat *latencies) error,
) error {
	n := max(r.w.Clients, 1)
	clients, hists, errs := make([]engine.Client, n), make([]latencies, n), make([]error, n)
	for i := range clients {
		c, err := r.store.Client()
		if err != nil {
			return err
		}
		defer c.Close()
		clients[i] = c
	}
	err := r.timed(ops, userBytes, func() error {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { errs[i] = fn(clients[i], ops*i/n, ops*(i+1)/n, &hists[i]) })
		}
		wg.Wait()
		return firstError(errs)
	})
	for i := range hists[1:] {
		hists[0].merge(&hists[i+1])
	}
	r.percentiles(&hists[0])
	return err
}

// withClient runs fn, which is not timed, with a client.
func (r *Run) withClient(fn func(engine.Client) error) error {
	c, err := r.store.Client()
	if err != nil {
		return err
	}
	err = fn(c)
	if closeErr := c.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (r *Run) percentiles(l *latencies) {
	r.Result.P50us = l.percentile(50).Seconds() * 1e6
	r.Result.P99us = l.percentile(99).Seconds() * 1e6
	r.Result.P999us = l.percentile(99.9).Seconds() * 1e6
}

// expect fails the run if the store does not hold exactly the rows whose sums are want, in that
// order.
func (r *Run) expect(want engine.Tally) error {
	var got engine.Tally
	err := r.withClient(func(c engine.Client) error {
		return c.View(func(rd engine.Reader) error { return rd.Scan(engine.Range{}, &got) })
	})
	if err != nil {
		return err
	}
	return same(got, want)
}

func same(got, want engine.Tally) error {
	if got != want {
		return fmt.Errorf(
			"wrong answer: %d rows with sum %x; expected %d with sum %x",
			got.Rows,
			got.Sum,
			want.Rows,
			want.Sum,
		)
	}
	return nil
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
