package report

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/ebbkv/ebb/cmd/bench/engine"
	"github.com/ebbkv/ebb/cmd/bench/workload"
)

// Names of two entrants that are not peers.
const (
	ours      = "ebb"
	limitName = "limit"
)

// Report is all that was measured.
type Report struct {
	Machine Machine `json:"machine"`
	Rounds  int     `json:"rounds"`
	Sizes   []Size  `json:"sizes"`
}

// Size is what was measured with one number of rows.
type Size struct {
	N       int               `json:"rows"`
	Rows    []Row             `json:"workloads"`
	Results []workload.Result `json:"results"`
}

// Machine is the kind of machine, without its name.
type Machine struct {
	OS       string            `json:"os"`
	Arch     string            `json:"arch"`
	CPUs     int               `json:"cpus"`
	Go       string            `json:"go"`
	Versions map[string]string `json:"versions"` // of the peers
}

// Row is one workload with a figure for each entrant.
type Row struct {
	Workload string   `json:"workload"`
	About    string   `json:"about"`
	Unit     string   `json:"unit"`
	More     bool     `json:"more_is_better"`
	Goal     float64  `json:"goal,omitempty"`
	Figures  []Figure `json:"figures"` // best first, the limit last
}

// Figure is what one entrant reached in one workload: the median of its rounds, and the worst and
// best of them. All other numbers are medians too.
type Figure struct {
	Engine  string  `json:"engine"`
	Median  float64 `json:"median"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	P50us   float64 `json:"p50_us,omitempty"`
	P99us   float64 `json:"p99_us,omitempty"`
	P999us  float64 `json:"p99_9_us,omitempty"`
	Peak    float64 `json:"peak_rss_bytes,omitempty"`
	PerByte float64 `json:"written_per_user_byte,omitempty"`
	PerLive float64 `json:"disk_per_live_byte,omitempty"`
	Disk    float64 `json:"disk_bytes,omitempty"`
	AnyTime float64 `json:"disk_peak_per_live_byte,omitempty"`
	Failure string  `json:"failure,omitempty"`
	IdleP99 float64 `json:"idle_p99_us,omitempty"`
	Beside  float64 `json:"puts_beside,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	CPU     float64 `json:"cpu_us_per_op,omitempty"`

	OpenSeconds  float64 `json:"open_seconds,omitempty"`
	CloseSeconds float64 `json:"close_seconds,omitempty"`
	Faults       float64 `json:"major_faults_per_op,omitempty"`
	Rows         float64 `json:"rows_held,omitempty"` // 0: all rows of the workload
}

// New makes the report of runs on this machine.
func New(rounds int, sizes ...Size) *Report {
	return &Report{Machine: machine(), Rounds: rounds, Sizes: sizes}
}

// NewSize puts the results of runs with n rows in order.
func NewSize(n int, workloads []workload.Workload, results []workload.Result) Size {
	size := Size{N: n, Results: results}
	for _, w := range workloads {
		row := Row{
			Workload: w.Name,
			About:    w.About,
			Unit:     string(w.Unit),
			More:     w.Unit.MoreIsBetter(),
			Goal:     w.Goal,
		}
		row.Figures = figures(w.Name, results)
		if len(row.Figures) == 0 {
			continue // An interrupt came before it.
		}
		slices.SortStableFunc(row.Figures, row.better)
		size.Rows = append(size.Rows, row)
	}
	return size
}

func machine() Machine {
	m := Machine{
		OS:       runtime.GOOS,
		Arch:     runtime.GOARCH,
		CPUs:     runtime.NumCPU(),
		Go:       runtime.Version(),
		Versions: map[string]string{},
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return m
	}
	for _, name := range engine.Names() {
		e, err := engine.ByName(name)
		if err != nil || e.Module == "" {
			continue
		}
		for _, dep := range info.Deps {
			if dep.Path == e.Module {
				m.Versions[name] = dep.Version
			}
		}
	}
	return m
}

// figures of one workload, in the order in which the entrants first came.
func figures(name string, results []workload.Result) (out []Figure) {
	by := map[string][]workload.Result{}
	var order []string
	for _, r := range results {
		if r.Workload == name {
			if by[r.Engine] == nil {
				order = append(order, r.Engine)
			}
			by[r.Engine] = append(by[r.Engine], r)
		}
	}
	for _, name := range order {
		out = append(out, figure(name, by[name]))
	}
	return out
}

// figure of one entrant. One failure among its rounds makes it a failure.
func figure(name string, rounds []workload.Result) Figure {
	f := Figure{Engine: name}
	for _, r := range rounds {
		if r.Failure != "" {
			f.Failure = r.Failure
			return f
		}
	}
	of := func(number func(workload.Result) float64) []float64 {
		numbers := make([]float64, len(rounds))
		for i, r := range rounds {
			numbers[i] = number(r)
		}
		slices.Sort(numbers)
		return numbers
	}
	median := func(number func(workload.Result) float64) float64 {
		numbers := of(number)
		return (numbers[(len(numbers)-1)/2] + numbers[len(numbers)/2]) / 2
	}
	values := of(func(r workload.Result) float64 { return r.Value })
	f.Min, f.Max = values[0], values[len(values)-1]
	f.Median = median(func(r workload.Result) float64 { return r.Value })
	f.P50us = median(func(r workload.Result) float64 { return r.P50us })
	f.P99us = median(func(r workload.Result) float64 { return r.P99us })
	f.P999us = median(func(r workload.Result) float64 { return r.P999us })
	f.IdleP99 = median(func(r workload.Result) float64 { return r.IdleP99 })
	f.Beside = median(func(r workload.Result) float64 { return float64(r.Beside) })
	f.Seconds = median(func(r workload.Result) float64 { return r.Seconds })
	f.CPU = median(func(r workload.Result) float64 { return r.CPU })
	f.OpenSeconds = median(func(r workload.Result) float64 { return r.OpenSeconds })
	f.CloseSeconds = median(func(r workload.Result) float64 { return r.CloseSeconds })
	f.Faults = median(func(r workload.Result) float64 { return r.Faults })
	f.Rows = median(func(r workload.Result) float64 { return float64(r.Rows) })
	f.Peak = median(func(r workload.Result) float64 { return float64(r.Peak) })
	f.Disk = median(func(r workload.Result) float64 { return float64(r.Disk) })
	f.PerByte = median(func(r workload.Result) float64 { return ratio(float64(r.Written), float64(r.User)) })
	f.AnyTime = median(func(r workload.Result) float64 { return ratio(float64(r.DiskPeak), float64(r.Data)) })
	f.PerLive = median(func(r workload.Result) float64 { return ratio(float64(r.Disk), float64(r.Data)) })
	return f
}

// ratio is a/b, or 0 if that means nothing.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// better sorts the best first, failures behind, and the limit last.
func (row *Row) better(a, b Figure) int {
	rank := func(f Figure) int {
		switch {
		case f.Engine == limitName:
			return 2
		case f.Failure != "":
			return 1
		}
		return 0
	}
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	if row.More {
		a, b = b, a
	}
	return cmp.Compare(a.Median, b.Median)
}

// find returns the figure of an entrant, nil if it took no part.
func (row *Row) find(name string) *Figure {
	for i := range row.Figures {
		if row.Figures[i].Engine == name {
			return &row.Figures[i]
		}
	}
	return nil
}

// bestPeer is the best figure that is not ours, nil if there is none. A peer whose store holds fewer
// rows than ours, because the time for the load was over, does not count.
func (row *Row) bestPeer() *Figure {
	held := 0.0
	if own := row.find(ours); own != nil {
		held = own.Rows
	}
	for i := range row.Figures {
		f := &row.Figures[i]
		if f.Engine != ours && f.Engine != limitName && f.Failure == "" && f.Rows >= held {
			return f
		}
	}
	return nil
}

// advantage is how many times as good as b a is; 0 if one of them is missing.
func (row *Row) advantage(a, b *Figure) float64 {
	switch {
	case a == nil || b == nil || a.Failure != "" || b.Failure != "":
		return 0
	case row.More:
		return ratio(a.Median, b.Median)
	}
	return ratio(b.Median, a.Median)
}
