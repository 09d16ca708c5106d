package workload

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/ebbkv/ebb/cmd/bench/engine"
)

// Fixture is what a store holds before a workload begins, and what the rows look like. Those that
// are the same are built once for each engine, and every run gets a copy.
type Fixture struct {
	Loaded  bool  // false: the store is new, and the fields below are about the workload's rows
	Order   order //
	PerMill int   // rows for each million of the main set; 0: a million
	Value   int   // bytes of a value; 0: 100
	TTL     bool  // rows expire in a year
	Due     bool  // and each tenth in a minute
	Halved  bool  // rows with an even number are deleted again
	Killed  bool  // the process that made it was killed, with a log of about 64 MiB
}

// Expiries of fixtures and of the workloads that put expiring rows.
const (
	longTTL  = 365 * 24 * time.Hour
	shortTTL = time.Minute
	dueEvery = 10 // every tenth row has the short one
)

const batchRows = 1000

// Name distinguishes fixtures, in names of directories too.
func (f Fixture) Name() string {
	return fmt.Sprintf("order%d-%d-%d-%t-%t-%t-%t",
		f.Order, f.PerMill, f.value(), f.TTL, f.Due, f.Halved, f.Killed)
}

func (f Fixture) rows(n int) int {
	if f.PerMill == 0 {
		return n
	}
	return max(int(int64(n)*int64(f.PerMill)/1e6), 20)
}

func (f Fixture) value() int { return cmp.Or(f.Value, valueSize) }

// Build fills the store in dir with the fixture. With Killed it does not return: the process ends
// as by kill -9.
func (f Fixture) Build(e engine.Engine, n int, dir string) error {
	w := &Workload{Fixture: f, Durable: f.Killed, KeepLog: f.Killed, Sorted: f.Order == ascending}
	r := &Run{Engine: e, N: n, Dir: dir}
	r.begin(w)
	if err := r.open(); err != nil {
		return err
	}
	err := r.withClient(func(c engine.Client) error {
		if err := f.load(c.Batch, f.sequence(r.rng, r.rows())); err != nil || !f.Halved {
			return err
		}
		return deleteRows(c.Batch, r.half())
	})
	if err != nil {
		return err
	}
	if f.Killed {
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return err
		}
		if err := self.Kill(); err != nil {
			return err
		}
		select {}
	}
	if s, ok := r.store.(engine.Settler); ok {
		if err := s.Settle(); err != nil {
			return err
		}
	}
	return r.close()
}

// sequence is the order in which rows are put: in key order only if that is what the keys are for.
func (f Fixture) sequence(rng *rand.Rand, rows int) []uint32 {
	if f.Order == ascending {
		return counting(rows)
	}
	return permutation(rng, rows)
}

func counting(n int) []uint32 {
	s := make([]uint32, n)
	for i := range s {
		s[i] = uint32(i)
	}
	return s
}

// load puts rows, about a thousand in each commit.
func (f Fixture) load(commit commit, sequence []uint32) error {
	size := max(1, min(batchRows, 4<<20/f.value()))
	a := newArena(size, f.value())
	for batch := range slices.Chunk(sequence, size) {
		err := commit(func(w engine.Writer) error {
			for _, i := range batch {
				k, v := a.row(f.Order, int(i), f.value(), 0)
				if err := f.put(w, k, v, int(i)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (f Fixture) put(w engine.Writer, k, v []byte, i int) error {
	if !f.TTL {
		return w.Put(k, v)
	}
	return w.(engine.ExpiringWriter).PutTTL(k, v, f.ttl(i))
}

func (f Fixture) ttl(i int) time.Duration {
	if f.Due && i%dueEvery == 0 {
		return shortTTL
	}
	return longTTL
}

// tally is what a scan of rows [0, n) must give, for those that keep accepts; version gives the
// version of each.
func (f Fixture) tally(
	n int,
	reverse bool,
	keep func(i int) bool,
	version func(i int) uint64,
) (t engine.Tally) {
	type numbered struct {
		prefix uint64
		i      uint32
	}
	rows, b := make([]numbered, 0, n), make([]byte, keySize)
	for i := range n {
		if keep == nil || keep(i) {
			k := f.Order.key(b, i)
			rows = append(rows, numbered{bigEndian(k), uint32(i)})
		}
	}
	slices.SortFunc(rows, func(a, b numbered) int {
		if a.prefix != b.prefix {
			return cmp.Compare(a.prefix, b.prefix)
		}
		return cmp.Compare(a.i, b.i)
	})
	if reverse {
		slices.Reverse(rows)
	}
	for _, row := range rows {
		k, v := f.Order.key(b, int(row.i)), uint64(0)
		if version != nil {
			v = version(int(row.i))
		}
		t.Rows++
		t.Sum = t.Sum*31 + sum(k, v)
	}
	return t
}
