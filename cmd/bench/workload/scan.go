package workload

import (
	"fmt"
	"math/rand/v2"

	"github.com/ebbkv/ebb/cmd/bench/engine"
)

const (
	scanPasses  = 25
	prefixScans = 250_000 // for each million rows
)

// enoughRows are measured well: a small store is not scanned more often than that takes. With 25
// million, the slowest stores of 100,000 rows took minutes.
const enoughRows = 10_000_000

// scanOps is ops of scans that read so many rows each.
func (r *Run) scanOps(perMillion, rows int) int {
	return min(r.ops(perMillion), max(enoughRows/rows, int(int64(r.N)*int64(perMillion)/1e6)))
}

// passes is how often a scan reads all rows.
func (r *Run) passes() int { return max(r.scanOps(scanPasses*1e6, 1)/r.rows(), 1) }

// Reads of many rows in order.
var scans = []Workload{
	scanWorkload("scan", "all rows in order, at least 25 times in one transaction", false),
	scanWorkload("scan-back", "all rows in reverse, at least 25 times in one transaction", true),
	{
		Name:  "scan-prefix",
		About: "the 100 rows that share a prefix of 8 bytes, at random; scans per second, in one transaction",
		Unit:  PerSecond, Goal: 1.2, Fixture: Fixture{Loaded: true, Order: grouped},
		Run:   func(r *Run) error { return r.prefixScans(inOneView) },
		Limit: func(r *Run) error { return r.copies(r.scanOps(prefixScans, groupRows), groupRows*rowBytes) },
	},
	{
		Name:  "scan-view",
		About: "the same, each in the closure of a read transaction of its own",
		Unit:  PerSecond, Goal: 1.2, Fixture: Fixture{Loaded: true, Order: grouped},
		Run: func(r *Run) error { return r.prefixScans(inViews) },
	},
	{
		Name:  "scan-first",
		About: "all rows in order, once, after half was deleted and the store closed and opened",
		Unit:  PerSecond, Goal: 0.7, Fixture: Fixture{Loaded: true, Halved: true},
		Run:   runFirstScan,
		Limit: func(r *Run) error { return r.copies(r.rows()/2, rowBytes) },
	},
}

func scanWorkload(name, about string, reverse bool) Workload {
	return Workload{
		Name: name, About: about, Unit: PerSecond, Goal: 1.2, Fixture: Fixture{Loaded: true},
		Run: func(r *Run) error {
			if err := r.open(); err != nil {
				return err
			}
			n := r.rows()
			tallies := make([]engine.Tally, r.passes())
			err := r.concurrently(len(tallies)*n, 0, func(c engine.Client, _, _ int, _ *latencies) error {
				return c.View(func(rd engine.Reader) error {
					for i := range tallies {
						if err := rd.Scan(engine.Range{Reverse: reverse}, &tallies[i]); err != nil {
							return err
						}
					}
					return nil
				})
			})
			if err != nil {
				return err
			}
			want := r.w.Fixture.tally(n, reverse, nil, nil)
			for _, t := range tallies {
				if err := same(t, want); err != nil {
					return err
				}
			}
			return nil
		},
		Limit: func(r *Run) error { return r.copies(r.passes()*r.rows(), rowBytes) },
	}
}

func runFirstScan(r *Run) error {
	if err := r.open(); err != nil {
		return err
	}
	var got engine.Tally
	want := r.w.Fixture.tally(r.rows(), false, isOdd, nil)
	err := r.concurrently(want.Rows, 0, func(c engine.Client, _, _ int, _ *latencies) error {
		return c.View(func(rd engine.Reader) error { return rd.Scan(engine.Range{}, &got) })
	})
	if err != nil {
		return err
	}
	return same(got, want)
}

// transactions runs n reads, in one transaction or in one each.
type transactions func(c engine.Client, n int, read func(engine.Reader) error) error

func inOneView(c engine.Client, n int, read func(engine.Reader) error) error {
	return c.View(func(rd engine.Reader) error {
		for range n {
			if err := read(rd); err != nil {
				return err
			}
		}
		return nil
	})
}

func inViews(c engine.Client, n int, read func(engine.Reader) error) error {
	for range n {
		if err := c.View(read); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) prefixScans(in transactions) error {
	if err := r.open(); err != nil {
		return err
	}
	groups := max(r.rows()/groupRows, 1)
	want := make([]engine.Tally, groups)
	for g := range want {
		want[g] = groupTally(g, min(groupRows, r.rows()-g*groupRows))
	}
	rng := rand.New(rand.NewPCG(5, 5))
	ops := r.scanOps(prefixScans, groupRows)
	return r.concurrently(ops, 0, func(c engine.Client, lo, hi int, _ *latencies) error {
		key, end := make([]byte, keySize), make([]byte, 8)
		return in(c, hi-lo, func(rd engine.Reader) error {
			g := rng.IntN(groups)
			prefix := grouped.key(key, g*groupRows)[:8]
			var t engine.Tally
			if err := rd.Scan(engine.Range{Lo: prefix, Hi: after(end, prefix)}, &t); err != nil {
				return err
			}
			if err := same(t, want[g]); err != nil {
				return fmt.Errorf("prefix %x: %w", prefix, err)
			}
			return nil
		})
	})
}

// groupTally is what a scan of the first rows of group g must give.
func groupTally(g, rows int) (t engine.Tally) {
	b := make([]byte, keySize)
	for i := range rows {
		t.Rows++
		t.Sum = t.Sum*31 + sum(grouped.key(b, g*groupRows+i), 0)
	}
	return t
}

// after writes into b the first key of the same length that does not begin with prefix; nil if
// there is none.
func after(b, prefix []byte) []byte {
	copy(b, prefix)
	for i := len(prefix) - 1; i >= 0; i-- {
		if b[i]++; b[i] != 0 {
			return b[:i+1]
		}
	}
	return nil
}

// copies is the limit of reading much: memory of the size of the whole set is copied piece by
// piece, in random order.
func (r *Run) copies(pieces, size int) error {
	src, dst := make([]byte, max(r.rows()*(keySize+r.valueSize()), size)), make([]byte, size)
	for i := 0; i < len(src); i += len(filler) {
		copy(src[i:], filler)
	}
	at := len(src) / size
	run := max(1, 64<<10/size) // Small pieces are copied in stretches: a scan walks along memory too.
	return r.timed(r.opsOf(pieces, size), 0, func() error {
		for i := 0; i < pieces; {
			from := r.rng.IntN(at)
			for j := from; j < min(from+run, at) && i < pieces; j, i = j+1, i+1 {
				copy(dst, src[j*size:])
			}
		}
		return nil
	})
}

// opsOf is what pieces count as in the workload's unit.
func (r *Run) opsOf(pieces, size int) int {
	if r.w.Unit == MBps {
		return pieces * size
	}
	return pieces
}
