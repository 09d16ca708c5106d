package fuzz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/txn"
)

// specimenPage is the page size of every specimen.
const specimenPage = 4096

// specimenSegment is small: each byte of a specimen is damaged in turn.
const specimenSegment = 16 << 10

func specimenClock() time.Time { return time.UnixMilli(1_700_000_000_000) }

// openSpecimen opens a store as all of them are opened here: same clock, random numbers that salt
// tells.
func openSpecimen(fsys vfs.FS, salt uint64, readOnly bool) (*kv.DB, error) {
	return openAsSpecimen(fsys, salt, readOnly, txn.Options{NoMap: true})
}

func openAsSpecimen(fsys vfs.FS, salt uint64, readOnly bool, tune txn.Options) (*kv.DB, error) {
	o := &kv.Options{
		PageSize: specimenPage, CacheBytes: 1 << 20, CheckpointBytes: 1 << 30, ReadOnly: readOnly,
		Clock: specimenClock,
	}
	rnd := rand.NewPCG(salt, 0x526f74)
	tune.SegmentSize, tune.Rand, tune.Inline = specimenSegment, rnd.Uint64, true
	return openfs.Open(fsys, path, o, tune)
}

// A Specimen is a small store at rest, as files, with everything that is known about it.
type Specimen struct {
	Name   string
	files  map[string][]byte // by base name: main file and segments
	states []shelf           // what commits 0, 1, 2 ... left
	rows   []shelfRows       // the rows of each state
	acked  uint64            // the last commit that was acknowledged as durable
	floor  uint64            // the last one before acked's group: what a lost last group leaves
	base   uint64            // the last one that the main file holds: what a lost log leaves
	// what stood on a page of the main file before, newest first, without what stands there
	older map[int64][][]byte
	// what each segment held before, oldest first, without what it holds
	earlier map[string][][]byte
	twin    map[string][]byte // the files of another store with the same rows
	// page -> the page that its bytes are proved with: itself, or the first of its extent
	owner map[int64]int64
	clean bool // closed: no byte of it can be taken for a torn tail
}

// A shape is how a specimen is made.
type shape struct {
	name  string
	build func(b *bench) error
	end   func(b *bench) (map[string][]byte, error)
}

// shapes are the specimens that rot is tried on.
var shapes = []shape{
	{"tree", buildTree, closed},
	{"killed", buildLog, killed},
	{"cut", buildLog, powerCut},
	{"families", buildFamilies, killed},
}

// Shapes lists the names of all specimens.
func Shapes() (names []string) {
	for _, s := range shapes {
		names = append(names, s.name)
	}
	return names
}

// NewSpecimen builds one. The same name makes the same bytes each time.
func NewSpecimen(name string) (*Specimen, error) {
	for i := range shapes {
		if shapes[i].name != name {
			continue
		}
		s, err := shapes[i].grow(uint64(i), 1)
		if err != nil {
			return nil, fmt.Errorf("specimen %s: %w", name, err)
		}
		twin, err := shapes[i].grow(uint64(i), 2)
		if err != nil {
			return nil, fmt.Errorf("twin of specimen %s: %w", name, err)
		}
		s.twin = twin.files
		return s, nil
	}
	return nil, fmt.Errorf("specimen %q is not known, these are: %s", name, strings.Join(Shapes(), ", "))
}

// bench is where a specimen is made.
type bench struct {
	disk *crashfs.Disk
	db   *kv.DB
	salt uint64
	spec *Specimen
	rnd  *rand.Rand
}

// grow builds the shape; seed chooses its rows, salt tells stores with the same rows apart.
func (sh shape) grow(seed, salt uint64) (*Specimen, error) {
	b := &bench{
		disk: crashfs.New(crashfs.Options{Direct: true}), salt: salt << 32,
		rnd:  rand.New(rand.NewPCG(seed, 77)),
		spec: &Specimen{Name: sh.name, states: make([]shelf, 1), rows: make([]shelfRows, 1)},
	}
	defer b.abandon()
	if err := b.open(); err != nil {
		return nil, err
	}
	if err := sh.build(b); err != nil {
		return nil, err
	}
	files, err := sh.end(b)
	if err != nil {
		return nil, err
	}
	s := b.spec
	s.files = map[string][]byte{}
	for name, content := range files {
		s.files[filepath.Base(name)] = content
	}
	s.files[mainFile()] = trimmed(s.files[mainFile()])
	b.remember()
	s.own()
	return s, nil
}

// trimmed cuts the room that the main file has reserved and not used, but for one page: zeros
// behind the last page have no meaning, and each byte costs time.
func trimmed(b []byte) []byte {
	n := len(bytes.TrimRight(b, "\x00"))
	return b[:min((n/specimenPage+2)*specimenPage, len(b))]
}

func (b *bench) open() (err error) {
	b.salt++
	b.db, err = openSpecimen(b.disk, b.salt, false)
	if err == nil && len(b.spec.states) == 1 {
		err = b.note() // a store's own first commit
		b.spec.acked = 1
	}
	return err
}

func (b *bench) close() error {
	db := b.db
	b.db = nil
	b.spec.acked = uint64(len(b.spec.states) - 1)
	b.spec.floor, b.spec.base = b.spec.acked, b.spec.acked
	return db.Close()
}

// abandon lets go of memory and locks.
func (b *bench) abandon() {
	if b.db == nil {
		return
	}
	b.disk.Inject(crashfs.Fault{Kinds: crashfs.KindChanges, Sticky: true})
	_ = b.db.Close()
	b.db = nil
}

// note keeps what the store holds now.
func (b *bench) note() error {
	held := readShelf(b.db)
	if err := held.firstError(); err != nil {
		return err
	}
	if held.seq != uint64(len(b.spec.states)) {
		return fmt.Errorf("commit %d after %d states", held.seq, len(b.spec.states))
	}
	b.spec.states = append(b.spec.states, held)
	rows, err := readRows(b.db)
	b.spec.rows = append(b.spec.rows, rows)
	return err
}

// update is one commit.
func (b *bench) update(d kv.Durability, fn func(tx *kv.Tx) error) error {
	err := b.db.Update(func(tx *kv.Tx) error {
		tx.SetDurability(d)
		return fn(tx)
	})
	if err != nil {
		return err
	}
	if err := b.note(); err != nil {
		return err
	}
	if d == kv.Sync {
		s := b.spec
		s.floor, s.acked = s.acked, uint64(len(s.states)-1)
	}
	return nil
}

func (b *bench) checkpoint() error {
	b.spec.base = uint64(len(b.spec.states) - 1)
	return b.db.Checkpoint(context.Background())
}

func (b *bench) value(size int) []byte { return []byte(newValue(b.rnd, size)) }

func closed(b *bench) (map[string][]byte, error) {
	b.spec.clean = true
	err := b.close()
	return b.disk.Files(), err
}

// killed is what a process that is gone leaves: all that it had given to the system.
func killed(b *bench) (map[string][]byte, error) { return b.crash(crashfs.Kill) }

// powerCut is what is left of it when the machine stops in that moment: what was synced.
func powerCut(b *bench) (map[string][]byte, error) { return b.crash(crashfs.None) }

func (b *bench) crash(p crashfs.Profile) (map[string][]byte, error) {
	at := b.disk.Len()
	for im := range b.disk.Images(crashfs.ImageOptions{Profiles: p, From: at, To: at + 1}) {
		return im.Files(), nil
	}
	return nil, errors.New("no image of the crash")
}

// buildTree makes a tree of three levels with overflow extents, and free pages in the middle of the
// file.
func buildTree(b *bench) error {
	key := func(i int) []byte { return append(bytes.Repeat([]byte{'k'}, 900), fmt.Sprintf("%04d", i)...) }
	for part := range 3 {
		err := b.update(kv.Sync, func(tx *kv.Tx) error {
			for i := range 8 {
				if err := tx.Put(key(i*3+part), b.value(20)); err != nil {
					return err
				}
			}
			return tx.Put(fmt.Appendf(nil, "large%d", part), b.value(3000+2500*part))
		})
		if err == nil {
			err = b.checkpoint()
		}
		if err != nil {
			return err
		}
	}
	return b.update(kv.Sync, func(tx *kv.Tx) error {
		for i := range 5 {
			if err := tx.Delete(key(i * 5)); err != nil {
				return err
			}
		}
		return tx.Delete([]byte("large1"))
	})
}

// buildLog makes a store with a base in the main file and a log of several segments after it:
// durable and relaxed commits, one of several records, the last one durable, in a segment with
// others.
func buildLog(b *bench) error {
	err := b.update(kv.Sync, func(tx *kv.Tx) error {
		for i := range 30 {
			if err := tx.Put(fmt.Appendf(nil, "base%03d", i), b.value(200)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = b.close()
	}
	if err == nil {
		err = b.open()
	}
	for i := 0; i < 8 && err == nil; i++ {
		d, rows := kv.Sync, 1
		switch i {
		case 2:
			rows = 5 // goes on in the next segment
		case 1, 3:
			d = kv.NoSync
		}
		err = b.update(d, func(tx *kv.Tx) error {
			for row := range rows {
				if err := tx.Put(fmt.Appendf(nil, "log%03d-%02d", i, row), b.value(300*rows)); err != nil {
					return err
				}
			}
			return tx.Delete(fmt.Appendf(nil, "base%03d", i))
		})
	}
	return err
}

// buildFamilies makes a store with several families, rows with expiries, and a tree that was
// dropped and whose pages are not yet given back. The log after it changes the default family only,
// and drops another one.
func buildFamilies(b *bench) error {
	names := []string{"default", "a", "b", "c", "gone"}
	err := b.update(kv.Sync, func(tx *kv.Tx) error {
		for _, name := range names[1:] {
			if err := tx.CreateCF(name, kv.CFOptions{}); err != nil {
				return err
			}
		}
		for i := range 20 {
			for _, name := range names {
				if err := putTimed(tx.CF(name), i, b.value(60)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil {
		err = b.close()
	}
	if err == nil {
		err = b.open()
	}
	if err == nil {
		err = b.update(kv.Sync, func(tx *kv.Tx) error {
			return errors.Join(tx.DropCF("gone"), tx.CF("a").Expire([]byte("row012"), time.Hour))
		})
	}
	if err == nil {
		err = b.checkpoint()
	}
	for round := 0; round < 3 && err == nil; round++ {
		err = b.update(kv.Sync, func(tx *kv.Tx) error {
			f := tx.CF(defaultFamily)
			return errors.Join(
				f.Persist(fmt.Appendf(nil, "row%03d", 3*round)),
				f.Expire([]byte("row013"), time.Duration(round+1)*time.Hour),
				putTimed(f, 40+round, b.value(60)),
			)
		})
	}
	if err != nil {
		return err
	}
	return b.update(kv.Sync, func(tx *kv.Tx) error {
		return errors.Join(tx.DropCF("c"),
			tx.RenameCF("b", "d"))
	})
}

// putTimed puts row i; two of three have an expiry.
func putTimed(f *kv.CF, i int, value []byte) error {
	key := fmt.Appendf(nil, "row%03d", i)
	if i%3 == 2 {
		return f.Put(key, value)
	}
	return f.PutTTL(key, value, time.Duration(1+i)*time.Minute)
}

// remember collects what stood on each page of the main file, at any moment of the specimen's life.
func (b *bench) remember() {
	s := b.spec
	s.older, s.earlier = map[int64][][]byte{}, map[string][][]byte{}
	main := s.files[mainFile()]
	for im := range b.disk.Images(crashfs.ImageOptions{Profiles: crashfs.Kill}) {
		files := im.Files()
		b.rememberLog(files)
		was := files[path]
		for at := int64(0); (at+1)*specimenPage <= int64(min(len(was), len(main))); at++ {
			page := was[at*specimenPage : (at+1)*specimenPage]
			known := slices.ContainsFunc(s.older[at], func(p []byte) bool { return bytes.Equal(p, page) })
			if !known && !bytes.Equal(page, main[at*specimenPage:(at+1)*specimenPage]) {
				s.older[at] = append(s.older[at], bytes.Clone(page))
			}
		}
	}
}

// rememberLog keeps what the segments held at one moment.
func (b *bench) rememberLog(files map[string][]byte) {
	s := b.spec
	for name, was := range files {
		base := filepath.Base(name)
		now, there := s.files[base]
		if base == mainFile() || !there || len(was) == 0 || bytes.Equal(was, now) {
			continue
		}
		same := func(b []byte) bool { return bytes.Equal(b, was) }
		if !slices.ContainsFunc(s.earlier[base], same) {
			s.earlier[base] = append(s.earlier[base], bytes.Clone(was))
		}
	}
}

// own finds the page that each page of the main file is proved with.
func (s *Specimen) own() {
	s.owner = map[int64]int64{}
	main := s.files[mainFile()]
	last := int64(0)
	for at := int64(0); (at+1)*specimenPage <= int64(len(main)); at++ {
		if h := pager.ReadHeader(main[at*specimenPage:]); h.Pgid == pager.Pgid(at) &&
			h.Kind >= pager.KindMeta &&
			h.Kind <= pager.KindFreeDir {
			last = at
		}
		s.owner[at] = last
	}
}

// specimenDisk puts files into a file system of their own.
func specimenDisk(files map[string][]byte) (vfs.FS, error) {
	fsys := vfs.NewMemory()
	return fsys, putSpecimen(fsys, files)
}

func putSpecimen(fsys vfs.FS, files map[string][]byte) error {
	for name, content := range files {
		f, err := fsys.Open(filepath.Join(filepath.Dir(path), name), vfs.Write|vfs.Create)
		if err != nil {
			return err
		}
		if err := errors.Join(vfs.WriteFull(f, content, 0), f.Close()); err != nil {
			return err
		}
	}
	return nil
}
