package fuzz

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/kv"
)

// A verdict is what an image turned out to hold.
type verdict struct {
	contents
	info kv.RecoveryInfo
}

// A Judge is the oracle for the images of one Run: section by section it asks what must be true
// after a crash.
type Judge struct {
	run *Run
	// Recovery, if not nil, is given the disk and the length of its trace when Open had returned:
	// the crash points of the recovery itself. It is called while nothing is open on the disk.
	Recovery func(d *crashfs.Disk, points int, v verdict) error
}

// storeFiles lists what lies beside and below the store's name.
func storeFiles(d *crashfs.Disk) []string {
	names, err := d.List(filepath.Dir(path))
	if err != nil {
		return nil
	}
	return names
}

// guard turns a panic into an error.
func guard(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn()
}

// Image judges an image of the run by what the run knows of commits.
func (j *Judge) Image(im *crashfs.Image) (v verdict, err error) {
	err = guard(func() error {
		v, err = j.full(im, func(v verdict) error { return j.expected(im, v) })
		return err
	})
	return v, err
}

// expected holds what an image has turned out to hold against what the run knows of commits.
func (j *Judge) expected(im *crashfs.Image, v verdict) error {
	lo, hi := j.run.bounds(im)
	switch {
	case v.info.Created && im.Acked > 0: // Commit 1 tells nothing: a new store has it too.
		return errVanished
	case v.seq < lo || v.seq > hi:
		return fmt.Errorf("store holds commit %d, want %d to %d", v.seq, lo, hi)
	}
	return j.known(v)
}

// errVanished is a store that was opened once, and is not there.
var errVanished = errors.New("the store has vanished, and a new one was made")

// quick is Image without the questions that come after recovery.
func (j *Judge) quick(im *crashfs.Image) error {
	return guard(func() error {
		d := im.Disk(crashfs.Options{Direct: j.run.config.Direct, Untraced: true})
		_, _, err := j.recover(d, mix(im.Hash()), func(v verdict) error { return j.expected(im, v) })
		return err
	})
}

// known holds contents against the model.
func (j *Judge) known(v verdict) error {
	if v.seq >= uint64(len(j.run.States)) || v.hash != j.run.States[v.seq].Stored {
		return fmt.Errorf("contents are not those of commit %d%s", v.seq, j.like(v.hash))
	}
	return nil
}

func (j *Judge) like(hash uint64) string {
	for seq, s := range j.run.States {
		if s.Stored == hash && seq > 0 {
			return fmt.Sprintf(", but those of commit %d", seq)
		}
	}
	return ", nor of any other"
}

// full is every question about an image. expect judges what it holds.
func (j *Judge) full(im *crashfs.Image, expect func(verdict) error) (v verdict, err error) {
	c := j.run.config
	salt := mix(im.Hash())
	d := im.Disk(crashfs.Options{Direct: c.Direct})
	d.SetPhase("recover")
	v, points, err := j.recover(d, salt, expect)
	if err != nil {
		return v, err
	}
	if err := j.again(d, salt+1, v); err != nil {
		return v, err
	}
	if err := j.repeat(im, salt+2, v); err != nil {
		return v, err
	}
	if err := j.increment(im, salt+4, v); err != nil {
		return v, err
	}
	if j.Recovery == nil {
		return v, nil
	}
	return v, j.Recovery(d, points, v)
}

// recover opens the store on d, looks at all of it and closes it.
func (j *Judge) recover(
	d *crashfs.Disk,
	salt uint64,
	expect func(verdict) error,
) (v verdict, points int, err error) {
	db, err := j.run.config.open(d, salt)
	if err != nil {
		return v, 0, fmt.Errorf("open: %w", err)
	}
	defer func() {
		if db != nil {
			_ = db.Close()
		}
	}()
	points = d.Len()
	v.info = db.RecoveryInfo()
	if v.contents, err = readContents(db); err == nil {
		err = countsAgree(db)
	}
	if err != nil {
		return v, points, fmt.Errorf("read: %w", err)
	}
	if err := expect(v); err != nil {
		if j.run.keep && v.seq < uint64(len(j.run.models)+1) && v.seq > 0 {
			err = fmt.Errorf("%w\n%s", err, j.run.models[v.seq-1].diff(db))
		}
		return v, points, err
	}
	// A store that had not even its first family got a log with it.
	if names := storeFiles(d); len(names) != 1 && v.seq != 1 {
		return v, points, fmt.Errorf("after recovery there are %v", names)
	}
	if err := sound(db); err != nil {
		return v, points, fmt.Errorf("check: %w", err)
	}
	closing := db
	db = nil
	if err := closing.Close(); err != nil {
		return v, points, fmt.Errorf("close: %w", err)
	}
	if names := storeFiles(d); !slices.Equal(names, []string{filepath.Base(path)}) {
		return v, points, fmt.Errorf("after Close there are %v", names)
	}
	return v, points, nil
}

// sound runs the store's own check.
func sound(db *kv.DB) error {
	var errs []error
	for p := range db.Check(context.Background()) {
		errs = append(errs, errors.New(p.String()))
	}
	return errors.Join(errs...)
}

// again opens the store once more: same contents, nothing to replay, and one more commit survives a
// power cut.
func (j *Judge) again(d *crashfs.Disk, salt uint64, v verdict) error {
	db, err := j.run.config.open(d, salt)
	if err != nil {
		return fmt.Errorf("open again: %w", err)
	}
	defer func() { _ = db.Close() }()
	if info := db.RecoveryInfo(); info.Created {
		return fmt.Errorf("open again: %w", errVanished)
	} else if !info.Clean || info.CommitsReplayed != 0 {
		return fmt.Errorf("open again: not clean: %+v", info)
	}
	got, err := readContents(db)
	if err != nil {
		return fmt.Errorf("open again: read: %w", err)
	}
	if got != v.contents {
		return fmt.Errorf(
			"open again: holds commit %d, held %d; contents equal: %v",
			got.seq,
			v.seq,
			got.hash == v.hash,
		)
	}
	want, err := j.oneMore(db, got)
	if err != nil {
		return fmt.Errorf("one more commit: %w", err)
	}
	at := d.Len()
	for im := range d.Images(crashfs.ImageOptions{Profiles: crashfs.None, From: at, To: at + 1}) {
		cut := im.Disk(crashfs.Options{Direct: j.run.config.Direct, Untraced: true})
		if err := j.holds(cut, salt+2, verdict{contents: want}); err != nil {
			return fmt.Errorf("one more commit and a power cut: %w", err)
		}
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("close again: %w", err)
	}
	return nil
}

// oneMore commits a batch, in which one key has an expiry, and gives what the store should hold
// then.
func (j *Judge) oneMore(db *kv.DB, was contents) (contents, error) {
	want := contents{was.seq + 1, was.hash}
	family := familyHash(defaultFamily)
	err := db.Update(func(tx *kv.Tx) error {
		one, two, more := []byte("\x01one"), []byte("\x01two"), []byte("more")
		want.hash += rowHash(family, one, more) + rowHash(family, two, more) +
			expiryHash(family, two, startMs)
		// Whatever the default ttl of the family.
		_, err := tx.PutWith(one, more, kv.PutOptions{NoExpiry: true})
		return errors.Join(err, tx.PutExpireAt(two, more, time.UnixMilli(startMs)))
	})
	return want, err
}

// holds opens a store that must hold exactly what is wanted, and may be new only if that was.
func (j *Judge) holds(d *crashfs.Disk, salt uint64, want verdict) error {
	_, _, err := j.recover(d, salt, want.equals)
	return err
}

func (v verdict) equals(got verdict) error {
	switch {
	case got.info.Created && !v.info.Created:
		return errVanished
	case got.contents != v.contents:
		return fmt.Errorf("holds commit %d, want %d; contents equal: %v", got.seq, v.seq, got.hash == v.hash)
	}
	return nil
}

// repeat recovers the image a second time, from its start, by another clock: the same comes out,
// less what has expired by then.
func (j *Judge) repeat(im *crashfs.Image, salt uint64, v verdict) error {
	states, c := j.run.marked(v.seq, im.Point), j.run.config
	o, want := c.options(standing(longAgo)), []uint64{}
	for _, s := range states {
		want = append(want, s.AtMark)
	}
	if o.MaxClockStep = anyStep; salt%2 == 0 { // After each of the marks.
		last := slices.MaxFunc(states, func(a, b State) int { return cmp.Compare(a.Mark, b.Mark) })
		o, want = c.options(standing(last.Mark+laterMs)), []uint64{last.Later}
	}
	db, err := c.openWith(im.Disk(crashfs.Options{Direct: c.Direct, Untraced: true}), salt, o)
	if err != nil {
		return fmt.Errorf("open from the start again: %w", err)
	}
	defer func() { _ = db.Close() }()
	got, err := readContents(db)
	switch {
	case err != nil:
		return fmt.Errorf("open from the start again: read: %w", err)
	case got.seq != v.seq:
		return fmt.Errorf("a second recovery ends in commit %d, the first in %d", got.seq, v.seq)
	case !slices.Contains(want, got.hash):
		return fmt.Errorf(
			"what is seen of commit %d with the marks %+v is wrong; opened later: %v",
			v.seq,
			states,
			salt%2 == 0,
		)
	case db.RecoveryInfo() != v.info:
		return fmt.Errorf("a second recovery says %+v, the first %+v", db.RecoveryInfo(), v.info)
	}
	return nil
}

// from names what same wants of images of a recovery, for which Open had returned at crash point
// opened.
func (v verdict) from(opened int) func(point int) uint64 {
	return func(point int) uint64 {
		key := mix(v.seq+1) + v.hash
		if v.info.Created && point < opened {
			key++
		}
		return key
	}
}

// same judges an image of a crash within a recovery: it must end where the recovery would have
// ended. Open had returned at crash point opened.
func (j *Judge) same(im *crashfs.Image, want verdict, opened int) (d *crashfs.Disk, points int, err error) {
	want.info.Created = want.info.Created && im.Point < opened
	d = im.Disk(crashfs.Options{Direct: j.run.config.Direct})
	d.SetPhase("recover")
	err = guard(func() error {
		_, points, err = j.recover(d, mix(im.Hash())+3, want.equals)
		return err
	})
	if err != nil {
		err = fmt.Errorf("after a crash of the recovery: %w", err)
	}
	return d, points, err
}
