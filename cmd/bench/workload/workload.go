package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ebbkv/ebb/cmd/bench/engine"
)

// Unit says what Result.Value counts.
type Unit string

// Units.
const (
	PerSecond Unit = "/s"
	MBps      Unit = "MB/s" // of 1e6 bytes; ops are bytes
	Millis    Unit = "ms"
	Times     Unit = "x" // busy p99 as a multiple of idle p99
)

// MoreIsBetter tells rates from times.
func (u Unit) MoreIsBetter() bool { return u == PerSecond || u == MBps }

// value is the figure of a run with so many operations, or bytes.
func (u Unit) value(ops int, took time.Duration) float64 {
	if u.MoreIsBetter() {
		return u.count(ops) / took.Seconds()
	}
	return took.Seconds() * 1e3
}

// count is what a run counts as in the unit.
func (u Unit) count(ops int) float64 {
	if u == MBps {
		return float64(ops) / 1e6
	}
	return float64(ops)
}

// Workload is one row of the table.
type Workload struct {
	Name    string
	About   string // one sentence
	Unit    Unit
	Goal    float64 // how many times as good as the best peer we mean to be; 0: no such goal
	Durable bool    // each commit is on the disk before it returns
	Sorted  bool    // rows are written in order
	KeepLog bool    // see engine.Config
	// WatchDisk looks at the room of the files during the timed part: see Result.DiskPeak.
	WatchDisk bool
	Clients   int     // goroutines; 0: one
	Fixture   Fixture // what the store holds before, and what its rows look like
	Needs     func(engine.Engine) bool
	Run       func(*Run) error
	Limit     func(*Run) error // the same job without a store; nil: there is no such thing
	Big       bool             // more data, or more than half a minute: only when asked for
	Memory    int64            // bytes that the process may use, in a control group of its own; 0: no limit
}

// All workloads, in the order of the table.
func All() []Workload {
	return slices.Concat(
		puts,
		batches,
		gets,
		scans,
		closures,
		mixes,
		overwrites,
		sessions,
		larges,
		deletes,
		opens,
		expiries,
		pauses,
		bigs,
		memories,
	)
}

// Select returns the workloads named in a list with commas, each once; "" selects all but the big
// ones, "all" those too, but for those with a limit of memory: they are named. A name with a star
// at its end selects all that begin so.
func Select(list string) ([]Workload, error) {
	if list == "" || list == "all" {
		return slices.DeleteFunc(All(),
			func(w Workload) bool { return w.Big && list == "" || w.Memory > 0 }), nil
	}
	var chosen []Workload
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		known := false
		prefix, many := strings.CutSuffix(name, "*")
		for _, w := range All() {
			if w.Name != name && !(many && strings.HasPrefix(w.Name, prefix)) {
				continue
			}
			known = true
			if !slices.ContainsFunc(chosen, func(c Workload) bool { return c.Name == w.Name }) {
				chosen = append(chosen, w)
			}
		}
		if !known {
			return nil, fmt.Errorf("no workload %q", name)
		}
	}
	return chosen, nil
}

// Takes reports whether an engine takes part.
func (w *Workload) Takes(e engine.Engine) bool {
	if w.Needs != nil {
		return w.Needs(e)
	}
	return !e.OnlyTTL
}
