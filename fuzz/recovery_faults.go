package fuzz

import (
	"fmt"
	"math"

	"github.com/ebbkv/ebb/internal/crashfs"
)

// hurt opens an image on a disk with a fault, then once more when the fault is over: the first may
// fail, with the fault's error; the second must end where a recovery without the fault ends. It
// gives the disk of both, on which nothing is open, the crash point at which one of them had
// returned, and whether the fault happened.
func (j *Judge) hurt(
	im *crashfs.Image,
	f crashfs.Fault,
	want verdict,
) (d *crashfs.Disk, opened int, fired bool, err error) {
	d = im.Disk(crashfs.Options{Direct: j.run.config.Direct})
	d.SetPhase("recover")
	in := d.Inject(f)
	judge := &Run{fault: &f}
	salt := mix(im.Hash()) + 5
	err = guard(func() error {
		want := want
		db, err := j.run.config.open(d, salt)
		opened = d.Len()
		if err == nil {
			in.Disarm()
			got := verdict{info: db.RecoveryInfo()}
			if got.contents, err = readContents(db); err == nil {
				err = want.equals(got)
			}
			want.info.Created = false // It is there now.
			_ = db.Close()            // A failure may have been none of Open's.
			if err != nil {
				return err
			}
		} else if in.Fired() == 0 {
			return fmt.Errorf("open: %w", err)
		} else if err := judge.judgeError(err); err != nil {
			return err
		}
		in.Disarm()
		if err != nil {
			opened = math.MaxInt // The return of the second is not used.
		}
		return j.holds(d, salt+1, want)
	})
	return d, opened, in.Fired() > 0, err
}

// crashHurt crashes a recovery that met a fault at every moment: each time the same must come out.
func (j *Judge) crashHurt(
	d *crashfs.Disk,
	want verdict,
	opened int,
	o Options,
	fresh func(im *crashfs.Image) bool,
) (*crashfs.Image, error) {
	for im := range d.Images(crashfs.ImageOptions{
		Profiles: recoveryProfiles | crashfs.Size, Random: 6, Seed: o.Seed, Expects: want.from(opened),
	}) {
		if !fresh(im) {
			continue
		}
		if _, _, err := j.same(im, want, opened); err != nil {
			return im, err
		}
	}
	return nil, nil
}
