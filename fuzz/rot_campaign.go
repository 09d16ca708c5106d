package fuzz

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebbkv/ebb/internal/vfs"
)

// RotOptions choose what damage is done. Zero fields are defaults.
type RotOptions struct {
	Shapes []string // nil: all
	Hows   []string // kinds of damage; nil: all
	Bits   int      // of so many bits of each byte each is turned, 1 to 8; 0 is 1
	Every  int64    // of bytes and lengths only every so-many-th; 0 is 1
	// one flip in so many is judged with a commit, a close and another open, the others by reading;
	// 0 is 1
	Deep    int64
	Workers int // 0 is 1
	// Tick, if not nil, is called after each some thousand cases with what was done so far.
	Tick func(RotReport)
	// Late, if not nil, is called when a case takes longer than LateAfter: it hangs.
	Late      func(line string)
	LateAfter time.Duration
}

// RotReport is what was damaged, and what became of it.
type RotReport struct {
	Cases    int                   `json:"cases"`
	Deep     int                   `json:"cases_with_commit_and_reopen"`
	Shapes   map[string]*ShapeFate `json:"shapes"`
	Failures []string              `json:"failures"` // first line of each kind of failure, with its reason
	Failed   int                   `json:"cases_failed"`
	Seconds  float64               `json:"seconds"`
}

// ShapeFate counts the fates of one specimen.
type ShapeFate struct {
	MainBytes int                     `json:"main_bytes"`
	LogBytes  int                     `json:"log_bytes"`
	Flips     int                     `json:"bits_flipped"`
	Damages   map[string]map[Fate]int `json:"damages"`     // by kind
	Named     int                     `json:"flips_named"` // damage was found, with its page or segment
	Elsewhere int                     `json:"flips_noticed_elsewhere"`
	// BlindBytes counts the bytes of the log a flip of which silently loses commits acknowledged as
	// durable, and RelaxedBytes those where only relaxed commits go. Untold is how many of all
	// these RecoveryInfo says nothing of.
	BlindBytes   int `json:"blind_bytes"`
	RelaxedBytes int `json:"relaxed_bytes"`
	Untold       int `json:"untold_bytes"`
	MostLost     int `json:"most_durable_commits_lost"`
	// BlindCuts counts the lengths of log files, BlindPages the wrong pages in them, that silently
	// lose commits acknowledged as durable; MostCut is how many.
	BlindCuts  int `json:"blind_lengths"`
	BlindPages int `json:"blind_pages"`
	MostCut    int `json:"most_durable_commits_cut"`
	// Versions counts the earlier versions of log files that took the place of the last one,
	// BlindVersions those that silently lose commits acknowledged as durable; MostBack is how many.
	Versions      int `json:"segment_versions"`
	BlindVersions int `json:"blind_segment_versions"`
	MostBack      int `json:"most_durable_commits_set_back"`
}

// rotBatch is how many cases a worker takes at once.
const rotBatch = 512

// Rots damages the specimens, one damage at a time, until ctx ends. The report is the same each
// time, but for the seconds.
func Rots(ctx context.Context, o RotOptions) (RotReport, error) {
	began := time.Now()
	c := &rotCampaign{ctx: ctx, o: o, kinds: map[string]rotFailure{}, blind: map[string]map[int64]finding{}}
	c.report = RotReport{Shapes: map[string]*ShapeFate{}, Failures: []string{}}
	if o.Shapes == nil {
		o.Shapes = Shapes()
	}
	for _, how := range o.Hows {
		if !slices.ContainsFunc(rotLists, func(l rotList) bool { return l.how == how }) {
			return c.report, fmt.Errorf("damage %q is not known", how)
		}
	}
	for _, name := range o.Shapes {
		s, err := NewSpecimen(name)
		if err != nil {
			return c.report, err
		}
		if err := c.shape(s); err != nil {
			return c.report, err
		}
	}
	c.finish()
	c.report.Seconds = time.Since(began).Seconds()
	return c.report, nil
}

type rotCampaign struct {
	ctx context.Context
	o   RotOptions

	mu     sync.Mutex // guards the fields below
	report RotReport
	kinds  map[string]rotFailure // by what they say, numbers left out
	blind  map[string]map[int64]finding
}

type rotFailure struct {
	no     int // order of the enumeration: the lowest is kept
	line   string
	reason string
	count  int
}

type rotCase struct {
	no  int
	rot Rot
}

// shape damages one specimen in every way.
func (c *rotCampaign) shape(s *Specimen) error {
	fate := &ShapeFate{Damages: map[string]map[Fate]int{}}
	for name, content := range s.files {
		if name == mainFile() {
			fate.MainBytes = len(content)
		} else {
			fate.LogBytes += len(content)
		}
	}
	c.report.Shapes[s.Name] = fate
	next, stop := iter.Pull(c.cases(s))
	defer stop()
	var pull sync.Mutex // guards next and no
	no := 0
	batch := func() (list []rotCase) {
		pull.Lock()
		defer pull.Unlock()
		for len(list) < rotBatch {
			rot, ok := next()
			if !ok {
				break
			}
			list = append(list, rotCase{no, rot})
			no++
		}
		return list
	}
	var done sync.WaitGroup
	for range max(c.o.Workers, 1) {
		sound, err := specimenDisk(s.files)
		if err != nil {
			return err
		}
		done.Go(func() {
			for list := batch(); len(list) > 0 && c.ctx.Err() == nil; list = batch() {
				c.run(s, fate, sound, list)
			}
		})
	}
	done.Wait()
	return nil
}

// run judges a batch and adds what came out to the report.
func (c *rotCampaign) run(s *Specimen, fate *ShapeFate, sound vfs.FS, list []rotCase) {
	findings, errs := make([]finding, len(list)), make([]error, len(list))
	var at atomic.Int64
	late := time.AfterFunc(time.Hour, func() { c.o.Late(list[at.Load()].rot.String()) })
	defer late.Stop()
	for i, r := range list {
		at.Store(int64(i))
		if c.o.Late != nil {
			late.Reset(c.o.LateAfter)
		}
		switch {
		case r.rot.How == "zero":
			errs[i] = s.salvageBoth(r.rot)
			findings[i].fate = Partly
		case c.deep(r):
			findings[i], errs[i] = s.Judge(r.rot)
		default:
			findings[i], errs[i] = s.Glance(sound, r.rot)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range list {
		c.add(s, fate, r, findings[i], errs[i])
	}
	if c.o.Tick != nil {
		c.o.Tick(c.report)
	}
}

func (c *rotCampaign) deep(r rotCase) bool {
	return r.rot.How != "flip" || int64(r.no)%max(c.o.Deep, 1) == 0
}

// add counts one case. Called with mu held.
func (c *rotCampaign) add(s *Specimen, fate *ShapeFate, r rotCase, f finding, err error) {
	c.report.Cases++
	if c.deep(r) {
		c.report.Deep++
	}
	if err != nil {
		c.report.Failed++
		kind := s.Name + r.rot.How + sort(err.Error())
		was, ok := c.kinds[kind]
		if !ok || r.no < was.no {
			c.kinds[kind] = rotFailure{r.no, r.rot.String(), err.Error(), was.count}
		}
		k := c.kinds[kind]
		k.count++
		c.kinds[kind] = k
		return
	}
	if fate.Damages[r.rot.How] == nil {
		fate.Damages[r.rot.How] = map[Fate]int{}
	}
	fate.Damages[r.rot.How][f.fate]++
	if r.rot.How == "back" {
		fate.Versions++
		if f.fate == Lost {
			fate.BlindVersions++
			fate.MostBack = max(fate.MostBack, int(s.acked-f.seq))
		}
	} else if r.rot.How != "flip" && f.fate == Lost {
		if r.rot.How == "cut" {
			fate.BlindCuts++
		} else {
			fate.BlindPages++
		}
		fate.MostCut = max(fate.MostCut, int(s.acked-f.seq))
	}
	if r.rot.How != "flip" {
		return
	}
	fate.Flips++
	switch {
	case f.named:
		fate.Named++
	case f.fate == Refused || f.fate == Partly:
		fate.Elsewhere++
	}
	if f.fate == Lost || f.fate == Relaxed {
		bytes := c.blind[s.Name+r.rot.File]
		if bytes == nil {
			bytes = map[int64]finding{}
			c.blind[s.Name+r.rot.File] = bytes
		}
		if was, ok := bytes[r.rot.At]; !ok || f.seq < was.seq || f.seq == was.seq && !f.told {
			bytes[r.rot.At] = f
		}
		fate.count(s, c.blind)
	}
}

// count sums up the blind spot.
func (fate *ShapeFate) count(s *Specimen, blind map[string]map[int64]finding) {
	fate.BlindBytes, fate.RelaxedBytes, fate.Untold, fate.MostLost = 0, 0, 0, 0
	for name := range s.files {
		for _, f := range blind[s.Name+name] {
			if f.fate == Lost {
				fate.BlindBytes++
				fate.MostLost = max(fate.MostLost, int(s.acked-f.seq))
			} else {
				fate.RelaxedBytes++
			}
			if !f.told {
				fate.Untold++
			}
		}
	}
}

func (c *rotCampaign) finish() {
	kinds := slices.SortedFunc(
		maps.Values(c.kinds),
		func(a, b rotFailure) int { return strings.Compare(a.line, b.line) },
	)
	for _, f := range kinds {
		c.report.Failures = append(c.report.Failures,
			fmt.Sprintf("%s: %s (%d like it)", f.line, f.reason, f.count))
	}
}

// rotList lists the damages of one sort, until yield returns false.
type rotList struct {
	how  string // what RotOptions.Hows calls it
	list func(o RotOptions, s *Specimen, yield func(Rot) bool) bool
}

var rotLists = []rotList{
	{"flip", flips},
	{"cut", cuts},
	{"grow", grown},
	{"page", misplaced},
	{"old", stale},
	{"back", setBack},
	{"mix", mixes},
	{"zero", zeroed},
}

// cases lists all damages to a specimen, in an order that does not change.
func (c *rotCampaign) cases(s *Specimen) iter.Seq[Rot] {
	return func(yield func(Rot) bool) {
		for _, list := range rotLists {
			if c.o.Hows != nil && !slices.Contains(c.o.Hows, list.how) {
				continue
			}
			if !list.list(c.o, s, yield) {
				return
			}
		}
	}
}

// flips turns bits of every byte. If it is not all eight, the byte's place says which.
func flips(o RotOptions, s *Specimen, yield func(Rot) bool) bool {
	every := max(o.Every, 1)
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		for at := int64(0); at < int64(len(s.files[name])); at += every {
			for i := range max(o.Bits, 1) {
				bit := int64(mix(uint64(at)+1)+uint64(i)) & 7
				if !yield(Rot{s.Name, name, "flip", at, bit}) {
					return false
				}
			}
		}
	}
	return true
}

// cuts leaves every length of every file.
func cuts(o RotOptions, s *Specimen, yield func(Rot) bool) bool {
	every := max(o.Every, 1)
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		for at := int64(0); at < int64(len(s.files[name])); at += every {
			if !yield(Rot{s.Name, name, "cut", at, 0}) {
				return false
			}
		}
	}
	return true
}

// grown puts bytes behind every file.
func grown(_ RotOptions, s *Specimen, yield func(Rot) bool) bool {
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		for _, n := range []int64{1, 7, 8, 511, 512, 513, 4095, 4096, 4097, 8192, 16384, 65536,
			65537, 262144} {
			for kind := range int64(growKinds) {
				if !yield(Rot{s.Name, name, "grow", n, kind}) {
					return false
				}
			}
		}
	}
	return true
}

// misplaced puts every page where every other belongs, and the twin's pages where ours belong.
// Segments are cut into pages too: the disk knows no difference.
func misplaced(_ RotOptions, s *Specimen, yield func(Rot) bool) bool {
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		n := int64(len(s.files[name])) / specimenPage
		for a := range n {
			if page(s.twin[name], a) != nil && !yield(Rot{s.Name, name, "other", a, 0}) {
				return false
			}
			for b := range n {
				if a != b && !yield(Rot{s.Name, name, "write", a, b}) ||
					a < b && !yield(Rot{s.Name, name, "swap", a, b}) {
					return false
				}
			}
		}
	}
	return true
}

// stale puts every older version of every page of the main file in its place.
func stale(_ RotOptions, s *Specimen, yield func(Rot) bool) bool {
	for _, at := range slices.Sorted(maps.Keys(s.older)) {
		for i := range s.older[at] {
			if !yield(Rot{s.Name, mainFile(), "old", at, int64(i)}) {
				return false
			}
		}
	}
	return true
}

// setBack puts every earlier version of every segment in its place.
func setBack(_ RotOptions, s *Specimen, yield func(Rot) bool) bool {
	for _, name := range slices.Sorted(maps.Keys(s.earlier)) {
		for i := range s.earlier[name] {
			if !yield(Rot{s.Name, name, "back", 0, int64(i)}) {
				return false
			}
		}
	}
	return true
}

// zeroed clears each page, both meta pages, and each segment; what is left is salvaged.
func zeroed(_ RotOptions, s *Specimen, yield func(Rot) bool) bool {
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		n := int64(len(s.files[name])) / specimenPage
		whole := n
		if name == mainFile() {
			whole = 2
		}
		if n > 0 && !yield(Rot{s.Name, name, "zero", 0, whole}) {
			return false
		}
		for at := range n {
			if !yield(Rot{s.Name, name, "zero", at, 1}) {
				return false
			}
		}
	}
	return true
}

// mixes takes each file from the specimen, from its twin, or from neither.
func mixes(_ RotOptions, s *Specimen, yield func(Rot) bool) bool {
	n := int64(1)
	for range s.names() {
		n *= mixKinds
	}
	for code := range n {
		if !yield(Rot{s.Name, "-", "mix", code, 0}) {
			return false
		}
	}
	return true
}
