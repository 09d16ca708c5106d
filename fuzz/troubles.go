package fuzz

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ebbkv/ebb/internal/crashfs"
)

// FaultReport is what a campaign of faults did.
type FaultReport struct {
	Seed     uint64         `json:"seed"`
	Runs     int            `json:"runs"` // in which the fault happened
	Kinds    map[string]int `json:"per_kind"`
	Images   int            `json:"images_distinct"` // of crashes after the fault
	Complete bool           `json:"complete"`        // each fault was tried at each call
	Failures []string       `json:"failures"`
	Seconds  float64        `json:"seconds"`
}

// Faults runs workloads with each fault at each call, once and for good, until the budget is used
// up or ctx ends, and crashes what it left. kinds are some of FaultKinds; none means all.
func Faults(ctx context.Context, o Options, kinds ...string) (FaultReport, error) {
	for _, name := range kinds {
		if !slices.Contains(FaultKinds(), name) {
			return FaultReport{}, fmt.Errorf("fault %q is not known", name)
		}
	}
	c := &faultCampaign{ctx: ctx, o: o, began: time.Now(), groups: map[string]int{},
		seen: map[uint64]struct{}{}}
	c.report = FaultReport{Seed: o.Seed, Kinds: map[string]int{}, Failures: []string{}}
	for _, w := range append(Sequences(max(o.Length, 1)), relaxedAndKilled()...) {
		for _, k := range faultKinds {
			if len(kinds) > 0 && !slices.Contains(kinds, k.name) {
				continue
			}
			for _, sticky := range []bool{false, true} {
				if sticky && (k.fault.Do == crashfs.Gate || k.fault.Do == crashfs.Short &&
					k.fault.Err == nil) {
					continue
				}
				for _, inRecovery := range []bool{false, true} {
					c.tasks = append(c.tasks, faultTask{w, k, sticky, inRecovery, uint64(len(c.tasks))})
				}
			}
		}
	}
	rnd := rand.New(rand.NewPCG(o.Seed, 3))
	rnd.Shuffle(len(c.tasks), func(i, j int) { c.tasks[i], c.tasks[j] = c.tasks[j], c.tasks[i] })
	var done sync.WaitGroup
	for range max(o.Workers, 1) {
		done.Go(c.work)
	}
	done.Wait()
	c.report.Complete = c.complete()
	c.report.Seconds = time.Since(c.began).Seconds()
	return c.report, nil
}

// FaultKinds gives the names of all kinds.
func FaultKinds() (names []string) {
	for _, k := range faultKinds {
		names = append(names, k.name)
	}
	return names
}

// A faultTask is a workload with a fault at each call in turn; or, if inRecovery, the recoveries
// from crashes of the workload with a fault at each call in turn.
type faultTask struct {
	w          Workload
	kind       faultKind
	sticky     bool
	inRecovery bool
	number     uint64 // of the task, for its random choices
}

type faultCampaign struct {
	ctx   context.Context
	o     Options
	began time.Time
	tasks []faultTask

	mu     sync.Mutex // guards the fields below
	at     int
	cut    bool // something was left out because time was up, ctx had ended, or enough had been done
	report FaultReport
	groups map[string]int // failures by what they say, numbers left out
	seen   map[uint64]struct{}
}

func (c *faultCampaign) over() bool {
	c.cut = c.cut || c.ctx.Err() != nil || c.o.Budget > 0 && time.Since(c.began) > c.o.Budget ||
		c.o.Most > 0 && c.report.Runs >= c.o.Most || len(c.report.Failures) >= enoughFailures
	return c.cut
}

func (c *faultCampaign) complete() bool { return c.at == len(c.tasks) && !c.cut }

func (c *faultCampaign) work() {
	for {
		c.mu.Lock()
		if c.at == len(c.tasks) || c.over() {
			c.mu.Unlock()
			return
		}
		t := c.tasks[c.at]
		c.at++
		c.mu.Unlock()
		if t.inRecovery {
			c.runRecoveries(t)
		} else {
			c.run(t)
		}
	}
}

// recoveriesPerTask is how many crashes of a workload have their recovery hurt.
const recoveriesPerTask = 3

func (c *faultCampaign) runRecoveries(t faultTask) {
	r, err := Do(t.w)
	if err != nil {
		c.fail(&Failure{Case{Workload: t.w}, err.Error()})
		return
	}
	from := r.OpEnds[max(len(r.OpEnds)-2, 0)]
	rnd := rand.New(rand.NewPCG(c.o.Seed, t.number))
	for range recoveriesPerTask {
		at := from + rnd.IntN(r.Disk.Len()+1-from)
		profile := []crashfs.Profile{crashfs.Kill, crashfs.None}[rnd.IntN(2)]
		for im := range r.images(crashfs.ImageOptions{Profiles: profile, From: at, To: at + 1}) {
			c.hurt(t, r, im)
		}
	}
}

func (c *faultCampaign) hurt(t faultTask, r *Run, im *crashfs.Image) {
	j := &Judge{run: r}
	v, err := j.Image(im)
	crashes := []Crash{{im.Point, im.Desc()}}
	if err != nil {
		c.fail(&Failure{Case{Workload: t.w, Crashes: crashes}, err.Error()})
		return
	}
	for n := 0; c.goesOn(); n++ {
		f := t.kind.fault
		f.N, f.Sticky = n, t.sticky
		trouble := "recovery " + t.kind.spell(n, t.sticky)
		d, opened, fired, err := j.hurt(im, f, v)
		if err != nil {
			c.fail(&Failure{Case{t.w, trouble, crashes}, err.Error()})
			return
		}
		if !fired {
			return
		}
		c.count(t)
		share := shareOf(f, 24)
		bad, err := j.crashHurt(
			d,
			v,
			opened,
			c.o,
			func(im *crashfs.Image) bool { return c.fresh(im, share, v.from(opened)(im.Point)) },
		)
		if err != nil {
			c.fail(&Failure{Case{t.w, trouble, append(crashes[:1:1], Crash{bad.Point, bad.Desc()})},
				err.Error()})
			return
		}
	}
}

// goesOn says whether another run may begin.
func (c *faultCampaign) goesOn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.over()
}

// count counts a run in which the fault happened.
func (c *faultCampaign) count(t faultTask) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Runs++
	c.report.Kinds[t.kind.name]++
	if c.o.TickFaults != nil {
		c.report.Seconds = time.Since(c.began).Seconds()
		c.o.TickFaults(c.report)
	}
}

// fresh says whether an image is to be judged: it is new, and one of so many. Runs share what they
// have seen, so expected names what this one wants the image to hold.
func (c *faultCampaign) fresh(im *crashfs.Image, share, expected uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := mix(im.Hash() + mix(expected+3))
	if _, old := c.seen[key]; old || c.over() || mix(key+c.o.Seed)%(share*uint64(max(c.o.Thin, 1))) != 0 {
		return false
	}
	c.seen[key] = struct{}{}
	c.report.Images++
	return true
}

func (c *faultCampaign) run(t faultTask) {
	for n := 0; c.goesOn(); n++ {
		f := t.kind.fault
		f.N, f.Sticky = n, t.sticky
		trouble := "fault " + t.kind.spell(n, t.sticky)
		r := newRun(t.w)
		fired := false
		err := guard(func() (err error) {
			fired, err = r.faulty(f)
			return err
		})
		if err != nil {
			c.fail(&Failure{Case{Workload: t.w, Trouble: trouble}, err.Error()})
			return
		}
		if !fired {
			return
		}
		c.count(t)
		c.crash(r, trouble)
	}
}

func (c *faultCampaign) fail(f *Failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := digits.ReplaceAllString(f.Reason, "#")
	if c.groups[kind]++; c.groups[kind] == 1 {
		c.report.Failures = append(c.report.Failures, f.Error())
	}
}

// shareOf is how many images of crashes after a fault stand for one that is judged. A failed sync
// is what recovery has to fear: there each is judged, elsewhere one of so many.
func shareOf(f crashfs.Fault, elsewhere uint64) uint64 {
	if f.Do == crashfs.Gate {
		return 1
	}
	return elsewhere
}

// crash takes images of the time after the fault: of the store that stood still, and of its opening
// again, which must not lose what it showed.
func (c *faultCampaign) crash(r *Run, trouble string) {
	share, subsets := shareOf(*r.fault, 16), 2
	if r.fault.Do == crashfs.Gate {
		subsets = 8
	}
	j := &Judge{run: r}
	opts := crashfs.ImageOptions{From: r.reopenedAt, Random: subsets, Seed: c.o.Seed, Profiles: c.o.Profiles}
	for im := range r.images(opts) {
		if !c.fresh(im, share, r.mayHold(im)) {
			continue
		}
		if _, err := j.Image(im); err != nil {
			c.fail(&Failure{Case{r.Workload, trouble, []Crash{{im.Point, im.Desc()}}}, err.Error()})
			return
		}
	}
}

func (r FaultReport) String() string {
	return fmt.Sprintf(
		"%.1fs %d runs with a fault, %d images of crashes after it, %d failures",
		r.Seconds,
		r.Runs,
		r.Images,
		len(r.Failures),
	)
}
