package fuzz

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ebbkv/ebb/internal/crashfs"
)

// Crash is a crash point and what persisted there, as crashfs describes it.
type Crash struct {
	Point int
	Desc  string
}

// A Case is one image that can be made again: a workload, what was wrong with the disk meanwhile,
// and a crash; further crashes are each in the recovery from the one before. Its text is one line:
//
//	one put.0 big.1 | fault gate 3 | 17 reorder keep=1-3 | 4 none keep=
//
// A second part of fault KIND N means that the N-th call of that kind fails, see faultKinds, and
// that the store is opened again in the same boot; one of recovery KIND N, that a call of the
// recovery from the first crash fails, and that the second crash is later on that disk; one of
// ignore SITE and its like, that the engine makes that mistake, see mistakes; a mistake and a fault
// are joined by a comma.
type Case struct {
	Workload Workload
	Trouble  string
	Crashes  []Crash
}

func (c Case) String() string {
	parts := []string{c.Workload.String()}
	if c.Trouble != "" {
		parts = append(parts, c.Trouble)
	}
	for _, crash := range c.Crashes {
		parts = append(parts, fmt.Sprintf("%d %s", crash.Point, crash.Desc))
	}
	return strings.Join(parts, " | ")
}

// ParseCase is the inverse of Case.String.
func ParseCase(line string) (c Case, err error) {
	parts := strings.Split(line, "|")
	if c.Workload, err = ParseWorkload(parts[0]); err != nil {
		return c, err
	}
	for i, part := range parts[1:] {
		part = strings.TrimSpace(part)
		number, rest, _ := strings.Cut(part, " ")
		point, err := strconv.Atoi(number)
		switch {
		case err == nil:
			c.Crashes = append(c.Crashes, Crash{point, strings.TrimSpace(rest)})
		case i == 0:
			c.Trouble = part
		default:
			return c, fmt.Errorf("%q is no crash", part)
		}
	}
	return c, nil
}

// Failure is a Case that the engine does not survive.
type Failure struct {
	Case   Case
	Reason string
}

func (f *Failure) Error() string { return f.Case.String() + ": " + f.Reason }

// Replay makes a case again and judges it. nil means that the engine survives it, a *Failure that
// it does not; any other error means that the case does not fit the engine any more: its trace has
// changed.
func Replay(c Case) error { return replay(c, false) }

// Explain is Replay; a failure tells which rows are wrong.
func Explain(c Case) error { return replay(c, true) }

func replay(c Case, keep bool) error {
	r := newRun(c.Workload)
	r.keep = keep
	if err := r.trouble(c.Trouble); err != nil {
		if errors.Is(err, errWrong) {
			return &Failure{c, err.Error()}
		}
		return err
	}
	if len(c.Crashes) == 0 {
		return nil
	}
	im, err := r.Disk.Rebuild(c.Crashes[0].Point, c.Crashes[0].Desc)
	if err != nil {
		return err
	}
	j := &Judge{run: r}
	if hurt, ok := strings.CutPrefix(c.Trouble, "recovery "); ok {
		return j.replayHurt(c, im, hurt)
	}
	if len(c.Crashes) > 1 {
		j.Recovery = func(d *crashfs.Disk, points int, v verdict) error {
			return j.replayDeeper(d, points, v, c.Crashes[1:])
		}
	}
	_, err = j.Image(im)
	var misfit *misfitError
	if errors.As(err, &misfit) {
		return misfit.error
	}
	if err != nil {
		return &Failure{c, err.Error()}
	}
	return nil
}

// replayHurt makes a fault in the recovery from im, and the crash after it.
func (j *Judge) replayHurt(c Case, im *crashfs.Image, fault string) error {
	f, err := parseFault(fault)
	if err != nil {
		return err
	}
	v, err := j.Image(im)
	if err != nil {
		return &Failure{c, err.Error()}
	}
	d, opened, _, err := j.hurt(im, f, v)
	if err == nil && len(c.Crashes) > 1 {
		im, err := d.Rebuild(c.Crashes[1].Point, c.Crashes[1].Desc)
		if err != nil {
			return err
		}
		if _, _, err := j.same(im, v, opened); err != nil {
			return &Failure{c, err.Error()}
		}
	}
	if err != nil {
		return &Failure{c, err.Error()}
	}
	return nil
}

// misfitError is a crash that does not fit the trace.
type misfitError struct{ error }

func (j *Judge) replayDeeper(d *crashfs.Disk, points int, want verdict, crashes []Crash) error {
	im, err := d.Rebuild(crashes[0].Point, crashes[0].Desc)
	if err == nil && im.Point > points {
		err = fmt.Errorf("crash point %d is behind the recovery of %d", im.Point, points)
	}
	if err != nil {
		return &misfitError{err}
	}
	d, points, err = j.same(im, want, points)
	if err != nil || len(crashes) == 1 {
		return err
	}
	return j.replayDeeper(d, points, want, crashes[1:])
}

// trouble runs the workload with what is wrong with the disk.
func (r *Run) trouble(text string) error {
	if mistake, more, ok := strings.Cut(text, ", "); ok {
		kind, site, _ := strings.Cut(mistake, " ")
		fault, err := parseMistake(kind, site)
		if err != nil {
			return err
		}
		r.Disk.Inject(fault)
		text = more
	}
	kind, arg, _ := strings.Cut(text, " ")
	switch kind {
	case "", "recovery":
		return r.all()
	case "fault":
		f, err := parseFault(arg)
		if err != nil {
			return err
		}
		_, err = r.faulty(f)
		return err
	default:
		fault, err := parseMistake(kind, arg)
		if err != nil {
			return err
		}
		r.Disk.Inject(fault)
		return r.all()
	}
}
