package fuzz

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ebbkv/ebb/internal/crashfs"
)

// mistakes are what an engine could do wrong at a place in its source that syncs, or writes.
var mistakes = map[string]crashfs.Action{
	"ignore":  crashfs.Ignore,  // no such sync
	"swallow": crashfs.Swallow, // the sync fails, and its error is ignored
	"early":   crashfs.Early,   // the sync comes before the changes
	"drop":    crashfs.Drop,    // no such write
	"swap":    crashfs.Swap,    // the write comes before the one before it
}

// parseMistake reads "ignore SITE" and its like: every call of that site.
func parseMistake(kind, site string) (crashfs.Fault, error) {
	action, ok := mistakes[kind]
	if !ok || site == "" {
		return crashfs.Fault{}, fmt.Errorf("trouble %q is not known", kind+" "+site)
	}
	return crashfs.Fault{Do: action, Site: site, Sticky: true}, nil
}

// SyncSites gives the sites that sync, as traces of all sorts show them: of enumerated operations,
// a random workload, writes that fail half-way, and recoveries. Writes of Direct files are sites
// too, with a slash in their name.
func SyncSites() ([]string, error) {
	all := map[string]bool{}
	note := func(d *crashfs.Disk) {
		for _, site := range d.Sites() {
			all[site] = true
		}
	}
	workloads := append(append(Specials(), Sequences(1)...), Random(1, 60))
	for i, w := range workloads {
		r, err := Do(w)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w, err)
		}
		note(r.Disk)
		if i%7 != 0 {
			continue
		}
		j := &Judge{run: r, Recovery: func(d *crashfs.Disk, _ int, _ verdict) error { note(d); return nil }}
		for im := range r.images(crashfs.ImageOptions{Profiles: crashfs.Kill, Every: 5}) {
			if _, err := j.Image(im); err != nil {
				return nil, &Failure{Case{Workload: w, Crashes: []Crash{{im.Point, im.Desc()}}}, err.Error()}
			}
		}
	}
	for n := range 25 {
		r := newRun(Workload{Base: "busy", Ops: []Op{{Kind: 0}}})
		if _, err := r.faulty(crashfs.Fault{Do: crashfs.Short, Err: errStopped, N: n}); err != nil {
			return nil, err
		}
		note(r.Disk)
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// Notices makes a mistake at a site in one workload after the other, until a crash shows it, and
// gives that case; nil if all workloads survive. The likely images of all workloads come first,
// then more of them.
func Notices(mistake, site string, workloads []Workload) *Failure {
	fault, err := parseMistake(mistake, site)
	if err != nil {
		return &Failure{Case{Trouble: mistake + " " + site}, err.Error()}
	}
	trouble := mistake + " " + site
	type hitRun struct {
		*Run
		trouble string
	}
	var hit []hitRun
	for _, w := range workloads {
		r := newRun(w)
		in := r.Disk.Inject(fault)
		if err := guard(r.all); err != nil {
			return &Failure{Case{Workload: w, Trouble: trouble}, err.Error()}
		}
		if in.Fired() > 0 {
			hit = append(hit, hitRun{r, trouble})
		}
	}
	for n, only := 0, len(hit) == 0; only && n < 25; n++ { // Only a failure leads there.
		k := faultKind{
			name:  "short-error",
			fault: crashfs.Fault{Kinds: crashfs.KindWrite, Do: crashfs.Short, Err: errStopped, N: n},
		}
		r := newRun(Workload{Base: "busy", Ops: []Op{{Kind: 0}, {Kind: 0}}})
		in := r.Disk.Inject(fault)
		both := trouble + ", fault " + k.spell(n, false)
		if _, err := r.faulty(k.fault); err != nil {
			return &Failure{Case{Workload: r.Workload, Trouble: both}, err.Error()}
		}
		if in.Fired() > 0 {
			hit = append(hit, hitRun{r, both})
		}
	}
	for _, opts := range []crashfs.ImageOptions{
		{Profiles: crashfs.None}, {Profiles: crashfs.Dirs | crashfs.Reorder, Random: 3},
		{Profiles: crashfs.Prefix | crashfs.Size},
		{Profiles: crashfs.Dirs | crashfs.Reorder, Random: 8}, {Random: 4}, {Random: 16},
	} {
		for _, r := range hit {
			j := &Judge{run: r.Run}
			for im := range r.images(opts) {
				if opts.Random == 4 && mix(im.Hash())%4 != 0 {
					continue
				}
				if err := j.quick(im); err != nil {
					return &Failure{Case{r.Workload, r.trouble, []Crash{{im.Point, im.Desc()}}}, err.Error()}
				}
			}
		}
	}
	return nil
}

// isSync says whether a site is a call of a sync, and not a write that is durable by itself.
func isSync(site string) bool { return strings.Contains(site, "#") }

// SyncReport is what became of each mistake at each site.
type SyncReport struct {
	Sites    []string          `json:"sites"`
	Caught   map[string]string `json:"caught"` // mistake and site, to the case that shows it
	Survived []string          `json:"survived"`
}

// Syncs makes each mistake with syncs at each site of a sync, until ctx ends, and tells of each as
// it goes. It makes none if there are fewer than least sites.
func Syncs(ctx context.Context, length, least int, tell func(line string)) (SyncReport, error) {
	report := SyncReport{Caught: map[string]string{}, Survived: []string{}}
	sites, err := SyncSites()
	if err != nil {
		return report, err
	}
	report.Sites = slices.DeleteFunc(sites, func(site string) bool { return !isSync(site) })
	if len(report.Sites) < least {
		return report, fmt.Errorf("%d sites, want at least %d", len(report.Sites), least)
	}
	workloads := append(Specials(), Sequences(length)...)
	for _, site := range report.Sites {
		for _, mistake := range []string{"ignore", "swallow", "early"} {
			if ctx.Err() != nil {
				return report, nil
			}
			name := mistake + " " + site
			if f := Notices(mistake, site, workloads); f != nil {
				report.Caught[name] = f.Case.String()
				tell(name + ": " + f.Error())
			} else {
				tell(name + ": SURVIVED")
				report.Survived = append(report.Survived, name)
			}
		}
	}
	return report, nil
}
