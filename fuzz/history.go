package fuzz

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// A History is what several clients did to one store, and what they were told.
type History struct {
	Seed   uint64  `json:"seed"`
	Keys   int     `json:"keys"`
	Events []Event `json:"events"`
	// Crash is the tick at which the store was lost, and Recovered the commit that the next open
	// found; 0: no crash.
	Crash     uint64 `json:"crash,omitempty"`
	Recovered uint64 `json:"recovered,omitempty"`
	Killed    bool   `json:"killed,omitempty"` // it was the process only: relaxed commits had to survive
}

// Event is one transaction. Ticks count beginnings and ends of all of them: an event that ends
// before another begins was before it.
type Event struct {
	Client int      `json:"client"`
	Begin  uint64   `json:"begin"`
	End    uint64   `json:"end"`
	Seq    uint64   `json:"seq"`             // state seen; of a commit, the state made
	Fate   string   `json:"fate,omitempty"`  // what became of a commit: see below; "" for a reader
	Relax  bool     `json:"relax,omitempty"` // NoSync
	Reads  []Access `json:"reads,omitempty"`
	Writes []Access `json:"writes,omitempty"`
}

// Fates of write transactions.
const (
	Done    = "done"    // Commit returned nil
	Void    = "void"    // rolled back, or an error that says that it did not happen
	Unknown = "unknown" // kv.ErrCommitUnknown: Seq is what it would have
)

// Access is a key and its value; 0 is absent. No two writes of a history have the same value.
type Access struct {
	Key   int    `json:"k"`
	Value uint64 `json:"v"`
}

// HistoryOptions say how clients behave.
type HistoryOptions struct {
	Clients int
	Ops     int // of all clients together
	Keys    int
	Crash   bool // the store is lost in the middle and opened again
}

// recorder runs clients.
type recorder struct {
	o     HistoryOptions
	h     *History
	db    *kv.DB
	disk  *crashfs.Disk
	tick  atomic.Uint64
	value atomic.Uint64
	left  atomic.Int64 // operations until the clients stop
	gone  atomic.Bool  // the store was lost
}

// Record lets clients loose on a new store. How they come to lie beside each other is the
// scheduler's choice, not the seed's: the history itself is what can be judged again.
func Record(seed uint64, o HistoryOptions) (*History, error) {
	r := &recorder{o: o, h: &History{Seed: seed, Keys: o.Keys}, disk: crashfs.New(crashfs.Options{
		Direct: seed%2 == 0, Landing: runtime.Gosched, Untraced: !o.Crash,
	})}
	var err error
	if r.db, err = openHistory(r.disk, seed); err != nil {
		return nil, err
	}
	r.left.Store(int64(o.Ops))
	if o.Crash {
		r.left.Store(int64(o.Ops / 2))
	}
	err = r.clients(1)
	if err == nil && o.Crash {
		if err = r.crash(); err == nil {
			r.left.Store(int64(o.Ops / 2))
			err = r.clients(2)
		}
	}
	if err == nil {
		err = r.transaction(rand.New(rand.NewPCG(seed, 0)), -1, r.readAll)
	}
	if err == nil {
		err = sound(r.db)
	}
	return r.h, errors.Join(err, r.db.Close())
}

// openHistory opens a store whose log and memory are small, so that segments, checkpoints and
// spills happen.
func openHistory(d *crashfs.Disk, seed uint64) (*kv.DB, error) {
	o := &kv.Options{PageSize: 4096, CacheBytes: 256 << 10, CheckpointBytes: 64 << 10}
	if seed/2%2 == 1 {
		o.CacheBytes = 64 << 10 // checkpoints give frames back as they are written
	}
	rnd := rand.New(rand.NewPCG(seed, 0x686973))
	var mu sync.Mutex
	return openfs.Open(
		d,
		path,
		o,
		txn.Options{
			SegmentSize: 32 << 10,
			LeastRoom:   leastRoom,
			NoMap:       true,
			NoDirect:    seed%2 == 1,
			SmallGroups: seed/4%2 == 1,
			SubmitFrom:  2,
			LeavesFrom:  1,
			ManyFrom:    2,
			Rand: func() uint64 {
				mu.Lock()
				defer mu.Unlock()
				return rnd.Uint64()
			},
		},
	)
}

// clients runs them until no operation is left, or the store is.
func (r *recorder) clients(session uint64) error {
	events := make([][]Event, r.o.Clients)
	errs := make([]error, r.o.Clients)
	var done sync.WaitGroup
	crashAt := int64(-1)
	if r.o.Crash && session == 1 {
		crashAt = int64(r.h.Seed % uint64(max(r.o.Ops/4, 1)))
	}
	for id := range r.o.Clients {
		done.Go(func() {
			c := &client{r: r, id: id, rnd: rand.New(rand.NewPCG(r.h.Seed, session<<32+uint64(id)))}
			for {
				left := r.left.Add(-1)
				if left < 0 || errs[id] != nil || r.gone.Load() {
					break
				}
				if left == crashAt {
					r.gone.Store(true)
					r.disk.Inject(crashfs.Fault{Kinds: crashfs.KindChanges, Sticky: true})
				}
				errs[id] = guard(c.operation)
			}
			errs[id] = errors.Join(errs[id], c.releaseSnapshot())
			events[id] = c.events
		})
	}
	done.Wait()
	for _, list := range events {
		r.h.Events = append(r.h.Events, list...)
	}
	return errors.Join(errs...)
}

// crash takes what a killed process or a power cut leaves, and opens it.
func (r *recorder) crash() error {
	r.h.Crash, r.h.Killed = r.tick.Add(1), r.h.Seed%4 < 2
	profile := crashfs.None
	if r.h.Killed {
		profile = crashfs.Kill
	}
	at := r.disk.Len()
	var left *crashfs.Image
	for im := range r.disk.Images(crashfs.ImageOptions{Profiles: profile, From: at, To: at + 1}) {
		left = im
	}
	if left == nil {
		return errors.New("no image of the crash")
	}
	_ = r.db.Close() // It failed long ago; only memory and locks are let go.
	r.gone.Store(false)
	r.disk = left.Disk(crashfs.Options{Direct: r.h.Seed%2 == 0, Landing: runtime.Gosched, Untraced: true})
	var err error
	if r.db, err = openHistory(r.disk, r.h.Seed+1<<40); err != nil {
		return fmt.Errorf("open after the crash: %w", err)
	}
	r.h.Recovered = r.db.RecoveryInfo().Seq
	return nil
}
