package fuzz

import (
	"math/rand/v2"

	"github.com/cespare/xxhash/v2"

	"github.com/ebbkv/ebb/internal/crashfs"
)

// explorer goes through the images of one run.
type explorer struct {
	c *campaign
	t task
	r *Run
	j *Judge

	// What the Judge told of the last image.
	d      *crashfs.Disk
	points int
	v      verdict
}

// explore takes only crash points behind those that a shorter sequence has.
func (e *explorer) explore() {
	p, o := e.t.pass, e.c.o
	from, to := e.r.OpEnds[max(len(e.r.OpEnds)-2, 0)], e.r.Disk.Len()+1
	if len(e.r.OpEnds) == 1 || e.t.whole {
		from = 0
	}
	opts := crashfs.ImageOptions{
		Profiles: o.Profiles, From: from, To: to, Random: p.subsets, Seed: e.seed(), OneOf: oneOf(e.keepOf()),
	}
	if p.points == 0 && e.t.salt == 0 {
		e.images(opts)
		return
	}
	if e.t.salt != 0 {
		opts.Every = max((to-from)/24, 1)
		if opts.Random == 0 {
			opts.Random = 16
		}
		e.images(opts)
		return
	}
	rnd := rand.New(rand.NewPCG(o.Seed, uint64(from)))
	for range p.points {
		opts.From = from + rnd.IntN(to-from)
		opts.To = opts.From + 1
		e.images(opts)
	}
}

// seed makes another choice for each workload.
func (e *explorer) seed() uint64 { return mix(e.c.o.Seed + xxhash.Sum64String(e.t.w.String())) }

// oneOf takes one of so many images, and of sectors, which are many, fewer. 1 takes all.
func oneOf(n int) func(crashfs.Profile) int {
	return func(p crashfs.Profile) int {
		if n > 1 && p&(crashfs.Shorn|crashfs.Torn512) != 0 {
			return n * 6
		}
		return n
	}
}

// keepOf is how many images of a workload stand for one that is judged. Random workloads have many
// more.
func (e *explorer) keepOf() int {
	if e.t.salt != 0 {
		return e.t.pass.keep * 8
	}
	return e.t.pass.keep
}

func (e *explorer) images(opts crashfs.ImageOptions) {
	for im := range e.r.images(opts) {
		if e.c.over() {
			return
		}
		key := mix(im.Hash() + mix(im.Acked+1) + e.t.salt)
		fresh := e.c.judged(key, im.Profile, 1)
		// An image of an earlier pass is judged once more where this one crashes more of its
		// recovery.
		deep := e.c.o.Depth > 1 && mix(im.Hash()+5)%uint64(e.t.pass.deep) == 0 && e.c.deepens(key, e.t.level)
		if !fresh && !deep {
			continue
		}
		crash := []Crash{{im.Point, im.Desc()}}
		if _, err := e.j.Image(im); err != nil {
			e.c.failed(&Failure{Case{Workload: e.t.w, Crashes: crash}, err.Error()})
			continue
		}
		if deep {
			e.deeper(e.d, e.points, im.Hash(), crash, 2)
		}
	}
}

// recoveryProfiles are those of crashes within a recovery.
const recoveryProfiles = crashfs.None | crashfs.Kill | crashfs.Prefix | crashfs.Dirs |
	crashfs.Shorn | crashfs.Reorder

// deeper crashes the recovery from an image with that hash.
func (e *explorer) deeper(d *crashfs.Disk, points int, hash uint64, before []Crash, depth int) {
	want, n := e.v, 0
	opts := crashfs.ImageOptions{
		Profiles: recoveryProfiles & e.c.o.Profiles, To: points + 1, Random: 8,
		Seed: mix(e.c.o.Seed + hash), OneOf: oneOf(e.t.pass.inner),
		Expects: want.from(points),
	}
	for im := range d.Images(opts) {
		if e.c.over() {
			return
		}
		if e.t.pass.most > 0 && n == e.t.pass.most {
			return
		}
		if !e.c.judged(mix(im.Hash()+mix(opts.Expects(im.Point))+e.t.salt+1), im.Profile, depth) {
			continue
		}
		n++
		crashes := append(before[:len(before):len(before)], Crash{im.Point, im.Desc()})
		d2, points2, err := e.j.same(im, want, points)
		if err != nil {
			e.c.failed(&Failure{Case{Workload: e.t.w, Crashes: crashes}, err.Error()})
			continue
		}
		if depth < e.c.o.Depth && mix(im.Hash()+9)%32 == 0 {
			e.deeper(d2, points2, im.Hash(), crashes, depth+1)
		}
	}
}

// firstFailure looks through images of a run until one fails; at most most are judged, and it tells
// how many were.
func firstFailure(r *Run, trouble string, opts crashfs.ImageOptions, most int) (f *Failure, judged int) {
	j := &Judge{run: r}
	for im := range r.images(opts) {
		if judged == most {
			break
		}
		judged++
		if _, err := j.Image(im); err != nil {
			return &Failure{Case{r.Workload, trouble, []Crash{{im.Point, im.Desc()}}}, err.Error()}, judged
		}
	}
	return nil, judged
}
