package fuzz

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// Fate is what became of a damaged store. All of these are allowed; what is not is an error.
type Fate string

// The fates. Lost is the blind spot: commits that had been acknowledged are gone, and no error says
// so.
const (
	Right   Fate = "right"   // everything is there
	Refused Fate = "refused" // Open names the damage
	Partly  Fate = "partly"  // the families that cannot be read name the damage, the others are right
	Torn    Fate = "torn"    // the log ends earlier, but only what was not acknowledged is gone
	Relaxed Fate = "relaxed" // as Torn, and relaxed commits are gone: they were never promised to survive
	Lost    Fate = "lost"    // as Torn, and durable commits of the last group are gone
	Anew    Fate = "anew"    // an empty main file without a log is made a new store
)

// A finding is the fate of one damage.
type finding struct {
	fate  Fate
	seq   uint64 // commit that the store holds
	told  bool   // RecoveryInfo counts dropped bytes
	named bool   // an error or a Problem names the page or the file that was damaged
}

// Judge looks at the store with one damage, and goes on with it: a commit, a close and another
// open.
func (s *Specimen) Judge(r Rot) (finding, error) {
	files, err := s.apply(r)
	if err != nil {
		return finding{}, err
	}
	return s.bounded(files, func() (finding, error) {
		fsys, err := specimenDisk(files)
		if err != nil {
			return finding{}, err
		}
		j := &autopsy{s: s, rot: r, files: files, fsys: fsys, deep: true}
		err = guard(j.run)
		return j.finding, err
	})
}

// Glance looks at the store with one bit turned, on a disk that holds the sound specimen. It reads
// only, and puts the bit back.
func (s *Specimen) Glance(fsys vfs.FS, r Rot) (f finding, err error) {
	if r.How != "flip" {
		return f, fmt.Errorf("%s takes more than a glance", r)
	}
	if err := turn(fsys, r); err != nil {
		return f, err
	}
	f, err = s.bounded(s.files, func() (finding, error) {
		j := &autopsy{s: s, rot: r, files: s.files, fsys: fsys}
		err := guard(j.run)
		return j.finding, err
	})
	return f, errors.Join(err, turn(fsys, r))
}

// turn flips a bit.
func turn(fsys vfs.FS, r Rot) error {
	file, err := fsys.Open(filepath.Join(filepath.Dir(path), r.File), vfs.Write)
	if err != nil {
		return err
	}
	b := make([]byte, 1)
	err = vfs.ReadFull(file, b, r.At)
	if err == nil {
		b[0] ^= 1 << r.Arg
		err = vfs.WriteFull(file, b, r.At)
	}
	return errors.Join(err, file.Close())
}

// alone is held for reading while a store is judged, and exclusively to measure what that
// allocates.
var alone sync.RWMutex

// bounded fails a look that allocates more than files of this size can be a reason for. The heap is
// counted as a whole: if that is too much, the look is repeated alone.
func (s *Specimen) bounded(files map[string][]byte, look func() (finding, error)) (f finding, err error) {
	most := uint64(64 << 20)
	for _, content := range files {
		most += 4 * uint64(len(content))
	}
	count := func(lock sync.Locker) uint64 {
		lock.Lock()
		defer lock.Unlock()
		before := bound.Allocated()
		f, err = look()
		return bound.Allocated() - before
	}
	if count(alone.RLocker()) > most {
		if used := count(&alone); err == nil && used > most {
			err = fmt.Errorf("%d bytes were allocated, at most %d may be", used, most)
		}
	}
	return f, err
}

// autopsy is one look at a damaged store.
type autopsy struct {
	s     *Specimen
	rot   Rot
	files map[string][]byte
	fsys  vfs.FS
	deep  bool // commit, close and open again; else only read
	db    *kv.DB
	want  shelf
	finding
}

func (j *autopsy) run() (err error) {
	if j.db, err = openSpecimen(j.fsys, 99, !j.deep); err != nil {
		return j.refused(err)
	}
	defer func() { _ = j.db.Close() }()
	got := readShelf(j.db)
	j.seq, j.told = got.seq, j.db.RecoveryInfo().BytesDropped > 0
	if err := j.place(got); err != nil {
		return err
	}
	if got.err != nil { // Without the list there are still the families.
		got.read(j.db, maps.Keys(j.want.families))
	}
	if err := j.errors(got); err != nil {
		return err
	}
	problems, err := j.check()
	if err != nil {
		return err
	}
	if j.fate == Partly && problems == 0 {
		return fmt.Errorf("families %v cannot be read, Check finds nothing", got.errs)
	}
	if !j.deep || j.fate == Anew {
		return nil
	}
	return j.goOn(got, problems)
}

// proper says whether err is damage that names a place.
func proper(err error) error {
	var bad *kv.CorruptError
	if !errors.Is(err, kv.ErrCorrupt) || !errors.As(err, &bad) {
		return fmt.Errorf("error of a wrong kind: %w", err)
	}
	if bad.File == "" && !bad.HasPgid {
		return fmt.Errorf("error without a place: %w", err)
	}
	return nil
}

func (j *autopsy) refused(err error) error {
	j.fate = Refused
	j.blame(err)
	if errors.Is(err, kv.ErrNotDatabase) && j.rot.How != "flip" && j.rot.File == mainFile() {
		return nil // Too little is left of the first page to tell what it was.
	}
	return proper(err)
}

// place finds out which state the store is in, and whether that is allowed.
func (j *autopsy) place(got shelf) error {
	s := j.s
	last := uint64(len(s.states) - 1)
	j.want = s.states[last]
	switch {
	case j.db.RecoveryInfo().Created:
		if len(j.files) > 1 || len(j.files[mainFile()]) > 0 {
			return errors.New("a new store was made where one was")
		}
		j.fate = Anew
	case got.seq == last:
		j.fate = Right
	case got.seq > last || got.seq == 0:
		return fmt.Errorf("store is at commit %d, the last one was %d", got.seq, last)
	case s.clean || !strings.Contains(j.rot.File, "-wal-"):
		return fmt.Errorf("store is at commit %d, not %d, and says nothing", got.seq, last)
	case got.seq < s.base, got.seq < s.floor && j.rot.How == "flip":
		// More than a bit, a page or the end of a log file, can take several groups away together
		// with all that could tell of them. The engine itself cuts what a failed write has left: a
		// short file proves nothing.
		return fmt.Errorf(
			"store is at commit %d: more is gone than the last durable group after commit %d",
			got.seq,
			s.floor,
		)
	case got.seq < s.acked:
		j.fate = Lost
	case got.seq < last:
		j.fate = Relaxed
	}
	if j.fate != Anew {
		j.want = s.states[got.seq]
	}
	return nil
}

// errors holds each family against what it should be.
func (j *autopsy) errors(got shelf) error {
	if j.fate == Anew {
		return nil
	}
	if got.err != nil {
		j.fate = Partly
		j.blame(got.err)
		if err := proper(got.err); err != nil {
			return fmt.Errorf("list of families: %w", err)
		}
	}
	for name, err := range got.errs {
		j.fate = Partly
		j.blame(err)
		if err := proper(err); err != nil {
			return fmt.Errorf("family %q: %w", name, err)
		}
	}
	for name, want := range j.want.families {
		sum, ok := got.families[name]
		if _, failed := got.errs[name]; failed {
			continue
		}
		if !ok || sum != want {
			return fmt.Errorf("family %q: wrong contents (there: %v) at commit %d", name, ok, got.seq)
		}
	}
	if n := len(got.families) + len(got.errs); n != len(j.want.families) {
		return fmt.Errorf("%d families at commit %d, want %d", n, got.seq, len(j.want.families))
	}
	if len(got.errs) > 1 && got.err == nil && j.rot.How == "flip" {
		return fmt.Errorf("damage in one place takes %d families away", len(got.errs))
	}
	return nil
}

// check runs the store's own check. It may find damage that no read has met. That it is incomplete
// has no place: the damage that keeps it from going on has one.
func (j *autopsy) check() (problems int, err error) {
	placed := 0
	for p := range j.db.Check(context.Background()) {
		problems++
		switch {
		case p.Page != 0 || p.Offset >= 0 || p.Family != "":
			placed++
		case p.Kind != "incomplete":
			return problems, fmt.Errorf("a problem without a place: %v", p)
		}
		if p.Page != 0 && int64(p.Page) == j.s.owner[j.rot.At/specimenPage] {
			j.named = true
		}
	}
	if problems > 0 && placed == 0 {
		return problems, fmt.Errorf("%d problems, none of them with a place", problems)
	}
	if problems > 0 && !j.named && j.rot.How == "flip" && j.rot.File == mainFile() {
		return problems, fmt.Errorf(
			"the check finds %d problems, none of them on page %d",
			problems,
			j.s.owner[j.rot.At/specimenPage],
		)
	}
	return problems, nil
}

// blame notes whether an error, or one of several that it joins, names what was damaged.
func (j *autopsy) blame(err error) {
	if bad, ok := err.(*kv.CorruptError); ok {
		if j.rot.File == mainFile() {
			j.named = j.named || bad.HasPgid && int64(bad.Pgid) == j.s.owner[j.rot.At/specimenPage]
		} else {
			j.named = j.named || strings.HasSuffix(bad.File, j.rot.File)
		}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		j.blame(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			j.blame(err)
		}
	}
}

// goOn commits to what is left, closes, and opens again: damage that was not met so far must not
// turn into wrong answers now, as it would if pages in use were taken for free ones.
func (j *autopsy) goOn(got shelf, problems int) error {
	key, value := []byte("\x01more"), []byte("more")
	name := defaultFamily
	err := j.db.Update(func(tx *kv.Tx) error {
		for i := range 40 {
			if err := tx.Put(fmt.Appendf(key, "%d", i), value); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err == nil && got.errs[name] == nil:
		families := map[string]uint64{}
		for n, sum := range j.want.families {
			families[n] = sum
		}
		for i := range 40 {
			families[name] += timedHash(familyHash(name), fmt.Appendf(key, "%d", i), value, 0)
		}
		j.want = shelf{seq: got.seq + 1, families: families}
	case err == nil: // Into what is left of a damaged family.
	case errors.Is(err, kv.ErrCorrupt):
	default:
		return fmt.Errorf("one more commit: %w", err)
	}
	if err := j.db.Close(); err != nil && !errors.Is(err, kv.ErrCorrupt) && !errors.Is(err, kv.ErrFailed) {
		return fmt.Errorf("close: %w", err)
	}
	db, err := openSpecimen(j.fsys, 100, false)
	if err != nil {
		if j.fate != Partly && problems == 0 {
			return fmt.Errorf("open again, after all seemed well: %w", err)
		}
		return proper(err)
	}
	defer func() { _ = db.Close() }()
	after := readShelf(db)
	if after.err != nil {
		if got.err == nil && problems == 0 {
			return fmt.Errorf("one more commit, and the list of families is gone: %w", after.err)
		}
		if err := proper(after.err); err != nil {
			return err
		}
		after.read(db, maps.Keys(j.want.families))
	}
	for name, want := range j.want.families {
		_, was := got.errs[name]
		switch sum, ok := after.families[name]; {
		case after.errs[name] != nil && (was || problems > 0):
			if err := proper(after.errs[name]); err != nil {
				return err
			}
		case was && ok && name == defaultFamily: // The damaged page was written anew.
		case !ok || sum != want:
			return fmt.Errorf("one more commit, and family %q is wrong (error: %v)", name, after.errs[name])
		}
	}
	if j.fate == Partly || problems > 0 {
		return nil
	}
	return sound(db)
}

// ReplayRot judges one line of damage again, and says what became of the store.
func ReplayRot(line string) (string, error) {
	r, err := ParseRot(line)
	if err != nil {
		return "", err
	}
	s, err := NewSpecimen(r.Shape)
	if err != nil {
		return "", err
	}
	if r.How == "zero" {
		return r.String() + ": salvaged", s.salvageBoth(r)
	}
	f, err := s.Judge(r)
	if err != nil {
		return "", fmt.Errorf("%s: %w", r, err)
	}
	return fmt.Sprintf("%s: %s, at commit %d of %d", r, f.fate, f.seq, len(s.states)-1), nil
}
