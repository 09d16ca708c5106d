package fuzz

import (
	"fmt"

	"github.com/ebbkv/ebb/internal/crashfs"
)

// hurt opens an image on a disk with a fault, then once more when the fault is over: the first may fail, with the
// fault's error; the second must end where a recovery without the fault ends. It gives the disk of both, on which
// nothing is open, and whether the fault happened.
func (j *Judge) hurt(im *crashfs.Image, f crashfs.Fault, want contents) (d *crashfs.Disk, fired bool, err error) {
	d = im.Disk(crashfs.Options{Direct: j.run.config.Direct})
	d.SetPhase("recover")
	in := d.Inject(f)
	judge := &Run{fault: &f}
	salt := mix(im.Hash()) + 5
	err = guard(func() error {
		db, err := j.run.config.open(d, salt)
		if err == nil {
			in.Disarm()
			got, err := readContents(db)
			if err == nil && got != want {
				err = fmt.Errorf("recovery ends in commit %d, without the fault in %d; contents equal: %v", got.seq, want.seq, got.hash == want.hash)
			}
			_ = db.Close() // A failure may have been none of Open's.
			if err != nil {
				return err
			}
		} else if in.Fired() == 0 {
			return fmt.Errorf("open: %w", err)
		} else if err := judge.judgeError(err); err != nil {
			return err
		}
		in.Disarm()
		return j.holds(d, salt+1, want)
	})
	return d, in.Fired() > 0, err
}

// crashHurt crashes a recovery that met a fault at every moment: each time the same must come out.
func (j *Judge) crashHurt(d *crashfs.Disk, want contents, o Options, fresh func(im *crashfs.Image) bool) (*crashfs.Image, error) {
	for im := range d.Images(crashfs.ImageOptions{Profiles: recoveryProfiles | crashfs.Size, Random: 6, Seed: o.Seed}) {
		if !fresh(im) {
			continue
		}
		if _, _, err := j.same(im, want); err != nil {
			return im, err
		}
	}
	return nil, nil
}
