package fuzz

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// path is where every store of this package lies.
const path = "db/app.ebb"

// Config is what kind of store and disk a workload runs on.
type Config struct {
	Segment    int64 // bytes of a log segment
	Cache      int64
	Checkpoint int64 // bytes of log that start a checkpoint
	Direct     bool  // the disk offers Direct files
	Groups     bool  // the free map has groups of 64 pages: a small store has many of them
}

// leastRoom makes the first segment of a log short where Config.Segment is larger, as it is with
// the default sizes.
const leastRoom = 16 << 10

// small is the store of enumerated sequences: every bound is met early.
var small = Config{Segment: 16 << 10, Cache: 64 << 10, Checkpoint: 64 << 10}

// wide has segments in which half is less than all that fits.
var wide = Config{Segment: 32 << 10, Cache: 1 << 20, Checkpoint: 1 << 20}

// large is the store of random workloads.
var large = Config{Segment: 32 << 10, Cache: 256 << 10, Checkpoint: 96 << 10}

// options are those of a store whose time is what now says: the same bytes each time.
func (c Config) options(now func() time.Time) *kv.Options {
	return &kv.Options{PageSize: 4096, CacheBytes: c.Cache, CheckpointBytes: c.Checkpoint, Clock: now}
}

// open opens the store on a disk, long ago. salt makes its random numbers; two sessions that could
// meet each other's segments need different ones.
func (c Config) open(d vfs.FS, salt uint64) (*kv.DB, error) {
	return c.openWith(d, salt, c.options(standing(longAgo)))
}

func (c Config) openWith(d vfs.FS, salt uint64, o *kv.Options) (*kv.DB, error) {
	rnd, choices := rand.NewPCG(salt, 0x45626221), rand.New(rand.NewPCG(salt, 0x63686f6f))
	tune := txn.Options{
		SegmentSize: c.Segment,
		LeastRoom:   leastRoom,
		NoMap:       true,
		NoDirect:    !c.Direct,
		Rand:        rnd.Uint64,
		Inline:      true,
		Choose:      choices.IntN,
		SmallGroups: c.Groups,
		SubmitFrom:  2,
		LeavesFrom:  1,
		ManyFrom:    2,
	}
	return openfs.Open(d, path, o, tune)
}

// A Run is a workload in progress, or over.
type Run struct {
	Workload Workload
	Disk     *crashfs.Disk
	// States are what commits 0, 1, 2 ... left; commit 1 is the store's own first one, and 0 stands
	// for a store that was never opened. OpEnds is the length of the trace after the base and after
	// each operation.
	States []State
	OpEnds []int

	config   Config
	keep     bool // models stay, for people
	models   []*Model
	model    *Model // as of the newest commit
	db       *kv.DB
	sessions uint64
	based    int // steps of the base that were done
	held     *heldReader
	backups  []backup     // the newest ones
	relaxed  bool         // the store is opened for commits that wait for no sync
	closed   bool         // the store was closed, not killed, and left no log
	beside   func() error // runs once, in the middle of the next checkpoint
	clock    clock
	attempt  *Model // what the commit in flight would make
	amid     *tx    // the write transaction that a purge has joined
	within   *tx    // the write transaction, or batch, of the workload
	acked    uint64 // last commit that must survive a power cut
	settled  []settlement
	closings []closing
	// fault is what the disk suffers from, failedFor the error after which the store was given up,
	// and unknown what the commit whose fate it left open would make.
	fault      *crashfs.Fault
	reopenedAt int // length of the trace when the store was opened again
	failedFor  error
	unknown    *Model
	// observe is called after each operation.
	observe func(op Op)
}

// A settlement narrows what images from a crash point on may hold, beyond what the marks of the
// trace say.
type settlement struct {
	point  int
	lo, hi uint64
	until  int // the crash point from which on it no longer holds, as the commit is tried again; 0: none
}

func (s settlement) holds(point int) bool {
	return point >= s.point && (s.until == 0 || point < s.until)
}

// settle says that images from now on hold a commit in [lo, hi].
func (r *Run) settle(lo, hi uint64) {
	r.settled = append(r.settled, settlement{point: r.Disk.Len(), lo: lo, hi: hi})
}

// bounds gives the commits that an image may hold.
func (r *Run) bounds(im *crashfs.Image) (lo, hi uint64) {
	lo, hi = max(im.Acked, 1), max(im.Begun, 1) // Open itself makes commit 1.
	for _, s := range r.settled {
		if s.holds(im.Point) {
			lo, hi = max(lo, s.lo), min(hi, s.hi)
		}
	}
	return lo, hi
}

// expects names what images from a crash point may hold, as far as settlements say it.
func (r *Run) expects(point int) (key uint64) {
	for i, s := range r.settled {
		if s.holds(point) {
			key = mix(key + uint64(i) + 1)
		}
	}
	for i, c := range r.closings {
		if point >= c.begin {
			key = mix(key + uint64(i) + 1)
		}
		if point >= c.end {
			key = mix(key + uint64(i) + 2)
		}
	}
	return key
}

// mayHold names the states that an image may hold, the same for all runs.
func (r *Run) mayHold(im *crashfs.Image) uint64 {
	lo, hi := r.bounds(im)
	key := mix(lo)
	for seq := lo; seq <= hi && seq < uint64(len(r.States)); seq++ {
		for _, s := range r.marked(seq, im.Point) {
			key = mix(key + s.Stored + mix(uint64(s.Mark)))
		}
	}
	return key
}

// images goes through images of the run. Bytes that were judged before a settlement are judged
// again after it.
func (r *Run) images(opts crashfs.ImageOptions) iter.Seq[*crashfs.Image] {
	opts.Expects = r.expects
	return r.Disk.Images(opts)
}

type heldReader struct {
	tx   *kv.Tx
	want contents
}

// errWrong marks what the engine did wrong while nothing was wrong with the disk.
var errWrong = errors.New("wrong answer")

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errWrong, fmt.Sprintf(format, args...))
}

// newRun prepares a workload on a fresh disk.
func newRun(w Workload) *Run {
	c := w.config()
	return &Run{
		Workload: w,
		config:   c,
		Disk:     crashfs.New(crashfs.Options{Direct: c.Direct}),
		States:   []State{{}},
		clock:    clock{ms: startMs},
	}
}

// Do runs a workload to its end, the closing included.
func Do(w Workload) (*Run, error) {
	r := newRun(w)
	return r, r.all()
}

// all runs base, operations and the end.
func (r *Run) all() error {
	err := r.steps()
	if err == nil {
		err = r.close()
	}
	r.abandon()
	return err
}

// steps runs base and operations.
func (r *Run) steps() error {
	if err := r.base(); err != nil {
		return fmt.Errorf("base %s: %w", r.Workload.Base, err)
	}
	r.OpEnds = append(r.OpEnds, r.Disk.Len())
	for i, op := range r.Workload.Ops {
		if err := r.apply(op); err != nil {
			return fmt.Errorf("operation %d, %s: %w", i, op, err)
		}
		r.OpEnds = append(r.OpEnds, r.Disk.Len())
		if r.observe != nil {
			r.observe(op)
		}
	}
	return nil
}

func (r *Run) apply(op Op) error { return operations[op.Kind].run(r, op.rand()) }

// abandon lets go of what is open, after a failure too.
func (r *Run) abandon() {
	if r.held != nil {
		_ = r.held.tx.Rollback()
		r.held = nil
	}
	if r.db != nil {
		_ = r.db.Close() // A failed store says so again.
		r.db = nil
	}
}

// open opens the store, which must hold what the model holds.
func (r *Run) open() error {
	r.Disk.SetPhase("open")
	first := r.model == nil
	if first {
		r.Disk.Begun(1)
	}
	r.sessions++
	db, err := r.config.openWith(r.fs(), r.sessions, r.options())
	if err != nil {
		return err
	}
	r.db = db
	defer func() { r.closed = false }()
	if first {
		r.committed(newModel())
		r.durable(1)
	}
	if !first && db.RecoveryInfo().Created {
		return wrong("%v", errVanished)
	}
	if err := r.takeMark(); err != nil {
		return err
	}
	if err := r.moveClock(r.clock.ms); err != nil {
		return err
	}
	got, err := readContents(db)
	if err != nil {
		return err
	}
	want := r.now()
	if got != want {
		return wrong("store holds commit %d, want %d; contents right: %v", got.seq, want.seq,
			got.hash == want.hash)
	}
	if !first && r.closed && !db.RecoveryInfo().Clean {
		return wrong("a store that was closed is not clean: %+v", db.RecoveryInfo())
	}
	r.durable(want.seq) // A recovery that has shown a commit, a relaxed one too, has made it durable.
	return nil
}

// now is the newest commit, as a transaction sees it that begins now.
func (r *Run) now() contents { return contents{r.newest(), r.model.seen(r.clock.read())} }

// newest is the number of the newest commit, 0 if the store was never opened.
func (r *Run) newest() uint64 { return uint64(len(r.States) - 1) }

// committed makes m the newest commit.
func (r *Run) committed(m *Model) {
	r.model, r.attempt = m, nil
	r.States = append(r.States, m.state())
	if r.keep {
		r.models = append(r.models, m.clone())
	}
}

// durable tells that commit n, and all before it, was acknowledged as durable.
func (r *Run) durable(n uint64) {
	r.acked = max(r.acked, n)
	r.Disk.Acked(n)
}

// begun tells that a commit is about to be made.
func (r *Run) begun(m *Model) (next uint64) {
	next = uint64(len(r.States))
	r.attempt = m
	r.clock.sign(m)
	for i := range r.settled {
		if s := &r.settled[i]; s.until == 0 {
			s.until = r.Disk.Len()
		}
	}
	r.Disk.Begun(next)
	return next
}

// close closes the store: everything is durable then.
func (r *Run) close() error {
	if err := r.release(); err != nil {
		return err
	}
	// What has expired was met: the mark that Close stores is known.
	if _, err := readContents(r.db); err != nil {
		return err
	}
	r.Disk.SetPhase("close")
	ended := r.began()
	db := r.db
	r.db = nil // Whatever Close says, the store is closed.
	if err := db.Close(); err != nil {
		return err
	}
	r.durable(r.newest())
	names := storeFiles(r.Disk)
	r.closed = len(names) == 1 // A full disk may leave no room for the last checkpoint: then the log stays.
	if !r.closed && r.fault == nil {
		return wrong("after Close there are %v", names)
	}
	return ended()
}

// release ends the held reader, which must still see what it saw.
func (r *Run) release() error {
	if r.held == nil {
		return nil
	}
	h := r.held
	r.held = nil
	hash, err := hashOf(h.tx)
	if err == nil && hash != h.want.hash {
		err = wrong("a reader on commit %d sees something else now", h.want.seq)
	}
	return errors.Join(err, h.tx.Rollback())
}

// hold begins a read transaction that outlives the operation.
func (r *Run) hold() error {
	if r.held != nil {
		return r.release()
	}
	tx, err := r.db.Begin(context.Background(), false)
	if err != nil {
		return err
	}
	r.held = &heldReader{tx, r.now()}
	return nil
}
