package fuzz

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// HistoriesOptions say how many histories are recorded and judged.
type HistoriesOptions struct {
	Seed    uint64
	Count   int
	Clients int    // of each history; 0 is 6
	Ops     int    // of each history; 0 is 1000
	Workers int    // histories at a time; 0 is 1
	Keep    string // directory for histories that fail; "": they are not kept
	Tick    func(HistoriesReport)
}

// HistoriesReport is what was recorded and judged.
type HistoriesReport struct {
	Seed      uint64   `json:"seed"`
	Histories int      `json:"histories"`
	Events    int      `json:"transactions"`
	Commits   int      `json:"commits"`
	Beside    int      `json:"transactions_beside_others"` // others began or ended between its ends
	Crashes   int      `json:"crashes"`
	Unknown   int      `json:"commits_of_unknown_fate"`
	Failures  []string `json:"failures"`
	Seconds   float64  `json:"seconds"`
}

// Histories records and judges, until ctx ends. Every second history has a crash: by turns of the
// process and of the power.
func Histories(ctx context.Context, o HistoriesOptions) HistoriesReport {
	if o.Clients == 0 {
		o.Clients = 6
	}
	if o.Ops == 0 {
		o.Ops = 1000
	}
	began := time.Now()
	r := HistoriesReport{Seed: o.Seed, Failures: []string{}}
	var mu sync.Mutex // guards r
	var next atomic.Int64
	var done sync.WaitGroup
	for range max(o.Workers, 1) {
		done.Go(func() {
			for n := next.Add(1); n <= int64(o.Count) && ctx.Err() == nil; n = next.Add(1) {
				seed := o.Seed<<20 + uint64(n)
				h, err := Record(
					seed,
					HistoryOptions{Clients: o.Clients, Ops: o.Ops, Keys: 10 + int(seed%7)*20,
						Crash: seed/4%2 == 1},
				)
				if err == nil {
					err = h.Judge()
				}
				mu.Lock()
				r.add(h)
				if err != nil {
					r.Failures = append(r.Failures, fmt.Sprintf("seed %d: %v%s", seed, err, h.keep(o.Keep)))
				}
				if o.Tick != nil {
					o.Tick(r)
				}
				mu.Unlock()
			}
		})
	}
	done.Wait()
	slices.Sort(r.Failures)
	r.Seconds = time.Since(began).Seconds()
	return r
}

func (r *HistoriesReport) add(h *History) {
	if h == nil {
		return
	}
	r.Histories++
	r.Events += len(h.Events)
	if h.Crash > 0 {
		r.Crashes++
	}
	for _, e := range h.Events {
		switch e.Fate {
		case Done:
			r.Commits++
		case Unknown:
			r.Unknown++
		}
		if e.End > e.Begin+1 {
			r.Beside++
		}
	}
}

// keep writes the history down and says where.
func (h *History) keep(dir string) string {
	if dir == "" || h == nil {
		return ""
	}
	name := filepath.Join(dir, fmt.Sprintf("history-%d.json", h.Seed))
	b, err := json.Marshal(h)
	if err == nil {
		err = os.WriteFile(name, b, 0o666)
	}
	if err != nil {
		return fmt.Sprintf(" (cannot be kept: %v)", err)
	}
	return ", kept in " + name
}
