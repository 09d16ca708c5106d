package fuzz

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebbkv/ebb/internal/crashfs"
)

// Options of a campaign. Zero fields are defaults.
type Options struct {
	Seed     uint64
	Budget   time.Duration // 0: until everything was tried
	Most     int           // distinct images, as a bound; 0: none
	Profiles crashfs.Profile
	Depth    int // 1, 2 or 3 crashes in a row; 0 is 2. The third is sampled.
	Length   int // of enumerated sequences; 0 is 2
	Skip     int // workloads that an earlier campaign of this seed and length has begun with
	Workers  int // 0 is 1
	Thin     int // of so many images after a fault that would be judged, one is; 0 is 1
	// Tick, if not nil, is called now and then with what was done so far; TickFaults is the same
	// for Faults.
	Tick       func(Report)
	TickFaults func(FaultReport)
}

// Report is what a campaign did.
type Report struct {
	Seed      uint64         `json:"seed"`
	Skipped   int            `json:"skipped,omitempty"`
	Workloads int            `json:"workloads"`
	Tried     int            `json:"images_tried"`
	Distinct  int            `json:"images_distinct"`
	Profiles  map[string]int `json:"per_profile"`
	Crashed   int            `json:"recoveries_crashed"` // images of crashes in a recovery; in the second:
	Deeper    int            `json:"second_recoveries_crashed"`
	Complete  bool           `json:"complete"` // everything was tried that was not skipped
	Failures  []string       `json:"failures"` // replay lines, each with its reason
	Seconds   float64        `json:"seconds"`
}

// pass says how much of the images of a workload is looked at. Passes go from breadth to
// everything, so that whatever the budget is, it is spread over all workloads.
type pass struct {
	points  int // crash points of a workload; 0: all
	keep    int // of so many images one is judged
	deep    int // of so many judged images one has its recovery crashed
	inner   int // of so many images of a recovery one is judged
	most    int // images of a recovery that are judged; 0: all
	subsets int // random ones at a point; 0: the whole profile
	randoms int // after so many sequences comes a random workload
}

var passes = []pass{
	{points: 8, keep: 12, deep: 4, inner: 8, most: 16, subsets: 3, randoms: 40},
	{points: 0, keep: 8, deep: 4, inner: 4, most: 48, subsets: 8, randoms: 8},
	{points: 0, keep: 1, deep: 16, inner: 4, most: 0, subsets: 0, randoms: 4},
	{points: 0, keep: 1, deep: 1, inner: 1, most: 0, subsets: 0, randoms: 4},
}

// randomLength is the number of operations of a random workload.
const randomLength = 200

type campaign struct {
	ctx   context.Context
	o     Options
	began time.Time
	stop  atomic.Bool

	mu sync.Mutex // guards the fields below
	// images, to how far their recoveries were crashed: the number of that pass, from 1, or 0
	seen    map[uint64]int
	report  Report
	kinds   map[string]int // failures by what they say, numbers left out
	cases   []*Failure
	tasks   func() (task, bool)
	planned bool // no task is left to begin with
}

type task struct {
	w     Workload
	pass  pass
	level int // number of the pass, from 1
	salt  uint64
	whole bool // no shorter workload has its first crash points
}

// Campaign crashes workloads until the budget is used up or ctx ends, and reports. Failures are
// shrunk, unless ctx has ended: that takes its time.
func Campaign(ctx context.Context, o Options) Report {
	if o.Profiles == 0 {
		o.Profiles = crashfs.AllProfiles
	}
	if o.Depth == 0 {
		o.Depth = 2
	}
	if o.Length == 0 {
		o.Length = 2
	}
	c := &campaign{ctx: ctx, o: o, began: time.Now(), seen: map[uint64]int{}, kinds: map[string]int{}}
	c.report = Report{Seed: o.Seed, Skipped: o.Skip, Profiles: map[string]int{}, Failures: []string{}}
	c.tasks = c.plan()
	var done sync.WaitGroup
	for range max(o.Workers, 1) {
		done.Go(func() {
			for t, ok := c.next(); ok; t, ok = c.next() {
				c.run(t)
			}
		})
	}
	done.Wait()
	c.report.Complete = c.planned && !c.stop.Load() // A task that is under way is cut short, too.
	for _, f := range c.cases {
		if ctx.Err() == nil {
			f = Shrink(f)
		}
		c.report.Failures = append(c.report.Failures, f.Error())
	}
	c.report.Seconds = time.Since(c.began).Seconds()
	return c.report
}

func (c *campaign) plan() func() (task, bool) {
	rnd := rand.New(rand.NewPCG(c.o.Seed, 1))
	var list []task
	random := uint64(0)
	for i, p := range passes {
		var sequences []Workload
		for length := range c.o.Length + 1 { // Short ones first; among equals the seed says which.
			of := Sequences(length)
			from := len(sequences)
			sequences = append(sequences, of[from:]...)
			part := sequences[from:]
			rnd.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
		}
		for _, w := range Specials() {
			list = append(list, task{w: w, pass: p, level: i + 1, whole: true})
		}
		for _, w := range cancelledCompactions() {
			list = append(list, task{w: w, pass: p, level: i + 1})
		}
		for j, w := range sequences {
			if j%p.randoms == p.randoms/2 {
				random++
				seed := c.o.Seed<<32 + random
				list = append(list, task{Random(seed, randomLength), p, i + 1, mix(seed), true})
			}
			list = append(list, task{w: w, pass: p, level: i + 1})
		}
	}
	at := min(max(c.o.Skip, 0), len(list))
	return func() (task, bool) {
		if at == len(list) {
			c.planned = true
			return task{}, false
		}
		at++
		return list[at-1], true
	}
}

// next gives the next task, until time is up or there is too much to tell.
func (c *campaign) next() (task, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over() {
		return task{}, false
	}
	t, ok := c.tasks()
	if ok {
		c.report.Workloads++
		if c.o.Tick != nil && c.report.Workloads%50 == 0 {
			c.report.Seconds = time.Since(c.began).Seconds()
			c.o.Tick(c.report)
		}
	}
	return t, ok
}

// enoughFailures ends a campaign: they are found one cause at a time.
const enoughFailures = 8

func (c *campaign) over() bool {
	if c.ctx.Err() != nil || c.o.Budget > 0 && time.Since(c.began) > c.o.Budget {
		c.stop.Store(true)
	}
	return c.stop.Load()
}

// judged says whether an image is new, and counts it.
func (c *campaign) judged(key uint64, profile crashfs.Profile, depth int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Tried++
	if _, ok := c.seen[key]; ok {
		return false
	}
	c.seen[key] = 0
	c.report.Distinct++
	c.report.Profiles[profile.String()]++
	if depth > 1 {
		c.report.Crashed++
	}
	if depth > 2 {
		c.report.Deeper++
	}
	if c.o.Most > 0 && c.report.Distinct >= c.o.Most {
		c.stop.Store(true)
	}
	return true
}

// deepens says whether the recovery from an image is to be crashed in a pass: no earlier one has
// done as much.
func (c *campaign) deepens(key uint64, level int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[key] >= level {
		return false
	}
	c.seen[key] = level
	return true
}

var digits = regexp.MustCompile(`[0-9]+`)

func (c *campaign) failed(f *Failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := digits.ReplaceAllString(f.Reason, "#")
	if c.kinds[kind]++; c.kinds[kind] > 1 {
		return
	}
	if c.cases = append(c.cases, f); len(c.cases) == enoughFailures {
		c.stop.Store(true)
	}
}

func (c *campaign) run(t task) {
	r, err := Do(t.w)
	if err != nil {
		c.failed(&Failure{Case{Workload: t.w}, err.Error()})
		return
	}
	e := &explorer{c: c, t: t, r: r, j: &Judge{run: r}}
	e.j.Recovery = func(d *crashfs.Disk, points int, v verdict) error {
		e.d, e.points, e.v = d, points, v
		return nil
	}
	e.explore()
}

func (r Report) String() string {
	return fmt.Sprintf("%6.1fs %6d workloads %8d images %8d distinct %8d in recoveries %d failures",
		r.Seconds, r.Workloads, r.Tried, r.Distinct, r.Crashed, len(r.Failures))
}
