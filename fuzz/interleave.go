package fuzz

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// An Interleaving is two roles, and which of them runs first at each place where both could: true
// is the second.
type Interleaving struct {
	Roles [2]string
	Turns []bool
}

func (i Interleaving) String() string {
	var b strings.Builder
	for _, second := range i.Turns {
		b.WriteByte("ab"[map[bool]int{true: 1}[second]])
	}
	return fmt.Sprintf("%s %s %s", i.Roles[0], i.Roles[1], b.String())
}

// ParseInterleaving is the inverse of String.
func ParseInterleaving(line string) (i Interleaving, err error) {
	words := strings.Fields(line)
	if len(words) < 2 || len(words) > 3 || len(words) == 3 && strings.Trim(words[2], "ab") != "" {
		return i, fmt.Errorf("%q is not an interleaving: want ROLE ROLE TURNS, turns as in abba", line)
	}
	i.Roles = [2]string{words[0], words[1]}
	for _, name := range i.Roles {
		if !slices.Contains(Roles(), name) {
			return i, fmt.Errorf("role %q is not known, these are: %s", name, strings.Join(Roles(), ", "))
		}
	}
	if len(words) == 3 {
		for _, c := range words[2] {
			i.Turns = append(i.Turns, c == 'b')
		}
	}
	return i, nil
}

// Roles lists what actors can be.
func Roles() (names []string) {
	for _, r := range roles {
		names = append(names, r.name)
	}
	return names
}

// Play runs an interleaving, its turns first and then as choose says, and judges it: every call
// succeeds, each snapshot is whole, the end is that of both, the store is sound, now and after a
// crash and after a close. It gives back all turns that were taken.
func (i Interleaving) Play(choose func() bool) (turns []bool, err error) {
	files, err := stageFiles()
	if err != nil {
		return nil, err
	}
	fsys, err := specimenDisk(files)
	if err != nil {
		return nil, err
	}
	s := &stage{gate: &gate{}, roles: i.Roles}
	// Everything has expired that can.
	if s.db, err = openStage(gatedFS{fsys, s.gate}, 11); err != nil {
		return nil, err
	}
	// With a log, and something to write for a checkpoint. No actor runs yet.
	if err := s.db.Put([]byte("row000"), []byte("new")); err != nil {
		return nil, err
	}
	turns, err = s.play(i.Turns, choose)
	if err != nil {
		return turns, err // Close would wait for an actor that waits for ever.
	}
	return turns, guard(
		func() error { return errors.Join(s.judge(), s.copyOpens(fsys), s.closeAndReopen(fsys)) },
	)
}

func (s *stage) play(given []bool, choose func() bool) (turns []bool, err error) {
	var done sync.WaitGroup
	errs := make([]error, 2)
	for me, name := range s.roles {
		run := roles[slices.Index(Roles(), name)].run
		s.gate.start(name, &done, func() { errs[me] = guard(func() error { return run(s, me) }) })
	}
	for {
		stopped, err := s.gate.settle()
		if err != nil {
			return turns, err // The goroutines are lost, as in any deadlock.
		}
		if len(stopped) == 0 {
			break
		}
		next := stopped[0]
		if len(stopped) == 2 {
			second := false
			if len(turns) < len(given) {
				second = given[len(turns)]
			} else {
				second = choose()
			}
			turns = append(turns, second)
			if second {
				next = stopped[1]
			}
		}
		s.gate.let(next)
	}
	done.Wait()
	for me, err := range errs {
		if err != nil {
			return turns, fmt.Errorf("%s: %w", s.roles[me], err)
		}
	}
	return turns, nil
}

func (s *stage) judge() error {
	err := s.db.View(func(tx *kv.Tx) error {
		rows, err := s.count(tx)
		return errors.Join(err, s.whole(rows), s.end(rows))
	})
	return errors.Join(err, sound(s.db))
}

// openStage opens the store an hour after its rows were written: whatever can have expired has.
func openStage(fsys vfs.FS, salt uint64) (*kv.DB, error) {
	o := &kv.Options{
		CacheBytes: 1 << 20, CheckpointBytes: 1 << 30,
		Clock: func() time.Time { return time.UnixMilli(1_700_000_000_000).Add(time.Hour) },
	}
	rnd := rand.NewPCG(salt, 0x696e74)
	return openfs.Open(
		fsys,
		path,
		o,
		txn.Options{SegmentSize: specimenSegment, NoMap: true, Rand: rnd.Uint64, Inline: true},
	)
}

// copyOpens opens a copy of the files as they are now: what a killed process leaves.
func (s *stage) copyOpens(fsys vfs.FS) error {
	names, err := fsys.List(filepath.Dir(path))
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, name := range names {
		if files[name], err = readWhole(fsys, filepath.Join(filepath.Dir(path), name)); err != nil {
			return err
		}
	}
	left, err := specimenDisk(files)
	if err != nil {
		return err
	}
	return s.opens(left, "after a kill")
}

func readWhole(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name, 0)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	b := make([]byte, size)
	if err == nil && size > 0 {
		err = vfs.ReadFull(f, b, 0)
	}
	return b, errors.Join(err, f.Close())
}

func (s *stage) closeAndReopen(fsys vfs.FS) error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return s.opens(fsys, "after a close")
}

func (s *stage) opens(fsys vfs.FS, when string) error {
	db, err := openStage(fsys, 12)
	if err != nil {
		return fmt.Errorf("open %s: %w", when, err)
	}
	after := &stage{db: db, gate: &gate{}, roles: s.roles}
	if err := errors.Join(after.judge(), db.Close()); err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	return nil
}

// InterleaveOptions choose interleavings.
type InterleaveOptions struct {
	Sample  int // of each pair of roles so many, chosen by Seed; 0: every one
	Seed    uint64
	Workers int // 0 is 1
	Tick    func(InterleaveReport)
}

// InterleaveReport is what was played.
type InterleaveReport struct {
	Seed     uint64         `json:"seed"`
	Played   int            `json:"interleavings"`
	Pairs    map[string]int `json:"per_pair"`
	Failures []string       `json:"failures"`
	Seconds  float64        `json:"seconds"`
}

// Interleave plays all pairs of roles, a role with itself included, until ctx ends.
func Interleave(ctx context.Context, o InterleaveOptions) InterleaveReport {
	began := time.Now()
	r := InterleaveReport{Seed: o.Seed, Pairs: map[string]int{}, Failures: []string{}}
	pairs := make(chan [2]string, len(roles)*len(roles))
	for i, a := range Roles() {
		for _, b := range Roles()[i:] {
			pairs <- [2]string{a, b}
		}
	}
	close(pairs)
	var mu sync.Mutex // guards r
	var done sync.WaitGroup
	for range max(o.Workers, 1) {
		done.Go(func() {
			for pair := range pairs {
				playPair(ctx, pair, o, func(line string) {
					mu.Lock()
					defer mu.Unlock()
					r.Played++
					r.Pairs[pair[0]+" "+pair[1]]++
					if line != "" {
						r.Failures = append(r.Failures, line)
					}
					if o.Tick != nil {
						o.Tick(r)
					}
				})
			}
		})
	}
	done.Wait()
	slices.Sort(r.Failures)
	r.Seconds = time.Since(began).Seconds()
	return r
}

// playPair plays one pair until all is played, something fails, or ctx ends. tell gets the line of
// a failure, else "".
func playPair(ctx context.Context, pair [2]string, o InterleaveOptions, tell func(failure string)) {
	rnd := rand.New(rand.NewPCG(o.Seed, mix(familyHash(pair[0])+2*familyHash(pair[1]))))
	first := func() bool { return false }
	either := func() bool { return rnd.Uint64()&1 == 0 }
	var given []bool
	for n := 0; ctx.Err() == nil; n++ {
		choose := first
		if o.Sample > 0 {
			if n == o.Sample {
				return
			}
			choose, given = either, nil
		}
		turns, err := Interleaving{pair, given}.Play(choose)
		if err != nil {
			tell(fmt.Sprintf("%s: %v", Interleaving{pair, turns}, err))
			return
		}
		tell("")
		// The next one in order: the last turn that can still go to the second actor does.
		last := len(turns) - 1
		for last >= 0 && turns[last] {
			last--
		}
		if last < 0 && o.Sample == 0 {
			return
		}
		if o.Sample == 0 {
			given = append(slices.Clone(turns[:last]), true)
		}
	}
}

// ReplayInterleaving plays one line again.
func ReplayInterleaving(line string) error {
	i, err := ParseInterleaving(line)
	if err != nil {
		return err
	}
	_, err = i.Play(func() bool { return false })
	return err
}
