package btree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/pager"
)

func benchKey(dst []byte, i int) []byte {
	binary.BigEndian.PutUint64(dst, mix(uint64(i)))
	binary.BigEndian.PutUint64(dst[8:], uint64(i))
	return dst
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// benchTree is a tree of n rows of 16 B keys and 100 B values, put in random order in transactions
// of 1000 rows.
func benchTree(b testing.TB, pageSize, n int) (*arena, Tree) {
	a := newArena(pageSize, n*260+64<<20)
	var t Tree
	key, value := make([]byte, 16), make([]byte, 100)
	for i := range n {
		if _, err := Put(a, &t, benchKey(key, i), value, 0); err != nil {
			require.NoError(b, err)
		}
		if i%1000 == 999 {
			a.commit()
		}
	}
	a.commit()
	return a, t
}

var benchSizes = []struct{ pageSize, rows int }{{4096, 1e6}, {16384, 1e6}}

func BenchmarkGet(b *testing.B) {
	for _, s := range benchSizes {
		b.Run(fmt.Sprintf("%d", s.pageSize), func(b *testing.B) {
			a, t := benchTree(b, s.pageSize, s.rows)
			key := make([]byte, 16)
			r := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				v, ok, err := Get(a, t, benchKey(key, int(r.Uint64N(uint64(s.rows)))))
				if !ok || err != nil || len(v.Bytes) != 100 {
					b.Fatal(ok, err)
				}
			}
		})
	}
}

func BenchmarkSeek(b *testing.B) {
	a, t := benchTree(b, 4096, 1e6)
	key := make([]byte, 16)
	r := rand.New(rand.NewPCG(1, 2))
	var c Cursor
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		c.Reset(a, t)
		if !c.Seek(benchKey(key, int(r.Uint64N(1e6)))) {
			b.Fatal(c.Err())
		}
	}
}

// BenchmarkPut replaces values: the copy-on-write path without splits.
func BenchmarkPut(b *testing.B) {
	for _, batch := range []int{1, 1000} {
		for _, s := range benchSizes {
			b.Run(fmt.Sprintf("%d/batch_%d", s.pageSize, batch), func(b *testing.B) {
				a, t := benchTree(b, s.pageSize, s.rows)
				key, value := make([]byte, 16), make([]byte, 100)
				r := rand.New(rand.NewPCG(1, 2))
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					k := benchKey(key, int(r.Uint64N(uint64(s.rows))))
					if _, err := Put(a, &t, k, value, 0); err != nil {
						b.Fatal(err)
					}
					if i%batch == batch-1 {
						a.commit()
					}
				}
			})
		}
	}
}

// BenchmarkOtherShapes loads rows of one shape into full leaves, changes the length of some of them
// at random, and reports the number of leaves before and after.
func BenchmarkOtherShapes(b *testing.B) {
	const rows = 64_000
	for _, share := range []int{100, 20} {
		b.Run(fmt.Sprintf("one_in_%d", share), func(b *testing.B) {
			for range b.N {
				a := newArena(4096, rows*300)
				bl := NewBuilder(a)
				key := make([]byte, 16)
				for i := range uint64(rows) {
					binary.BigEndian.PutUint64(key[8:], i)
					require.NoError(b, bl.Add(key, make([]byte, 100), 0))
				}
				t, err := bl.Finish()
				require.NoError(b, err)
				_, before := fill(b, a, t)
				r := rand.New(rand.NewPCG(1, 2))
				for range rows / share {
					binary.BigEndian.PutUint64(key[8:], r.Uint64N(rows))
					_, err := Put(a, &t, key, make([]byte, 92), 0)
					require.NoError(b, err)
				}
				_, after := fill(b, a, t)
				b.ReportMetric(float64(before), "leaves")
				b.ReportMetric(float64(after), "leaves-then")
			}
		})
	}
}

// BenchmarkInsert builds trees of 500k rows in one order, in transactions of batch rows, and
// reports their fill.
func BenchmarkInsert(b *testing.B) {
	orders := []struct {
		name string
		key  func(dst []byte, i int) []byte
	}{
		{"random", benchKey},
		{"ascending", func(dst []byte, i int) []byte {
			clear(dst)
			binary.BigEndian.PutUint64(dst[8:], uint64(i))
			return dst
		}},
		{"descending", func(dst []byte, i int) []byte {
			clear(dst)
			binary.BigEndian.PutUint64(dst[8:], uint64(1<<40)-uint64(i))
			return dst
		}},
		{"ascending_in_100", func(dst []byte, i int) []byte {
			binary.BigEndian.PutUint64(dst, mix(uint64(i))%100)
			binary.BigEndian.PutUint64(dst[8:], uint64(i))
			return dst
		}},
	}
	for _, o := range orders {
		for _, batch := range []int{1, 1000} {
			b.Run(fmt.Sprintf("%s/batch_%d", o.name, batch), func(b *testing.B) {
				const rows = 500_000
				for range b.N {
					b.StopTimer()
					a := newArena(4096, 200<<20)
					for i := 0; i < len(a.mem); i += 4096 {
						a.mem[i] = 0 // page faults do not count
					}
					var t Tree
					key, value := make([]byte, 16), make([]byte, 100)
					b.StartTimer()
					for i := range rows {
						if _, err := Put(a, &t, o.key(key, i), value, 0); err != nil {
							b.Fatal(err)
						}
						if i%batch == batch-1 {
							a.commit()
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/rows/float64(b.N), "ns/row")
					share, _ := fill(b, a, t)
					b.ReportMetric(share*100, "%full")
					b.ReportMetric(float64(a.copied)/rows, "copies/row")
				}
			})
		}
	}
}

// BenchmarkInOrder puts rows in order as a batch does, sixteen at a time in transactions of a
// thousand: row by row, and with Append.
func BenchmarkInOrder(b *testing.B) {
	for _, method := range []string{"put", "append"} {
		b.Run(method, func(b *testing.B) {
			a := newArena(4096, 200<<20)
			for i := 0; i < len(a.mem); i += 4096 {
				a.mem[i] = 0 // page faults do not count
			}
			var t Tree
			changes, value := make([]Change, MaxDescent), make([]byte, 100)
			for i := range changes {
				changes[i] = Change{Key: make([]byte, 16), Value: value}
			}
			row := 0
			for b.Loop() {
				var f InsertCursor
				for range 1024 / MaxDescent {
					for i := range changes {
						binary.BigEndian.PutUint64(changes[i].Key[8:], uint64(row))
						row++
					}
					for i := 0; i < MaxDescent; {
						if method == "append" {
							if n := f.Append(&t, changes[i:]); n > 0 {
								i += n
								continue
							}
						}
						if _, err := f.Put(a, &t, changes[i].Key, value, 0); err != nil {
							b.Fatal(err)
						}
						i++
					}
				}
				a.commit()
				if row > 800_000 {
					b.StopTimer()
					a.next, a.free, t, row = 2, nil, Tree{}, 0
					b.StartTimer()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1024/float64(b.N), "ns/row")
		})
	}
}

func BenchmarkDelete(b *testing.B) {
	a, t := benchTree(b, 4096, 1e6)
	key := make([]byte, 16)
	b.ReportAllocs()
	b.ResetTimer()
	n := 0
	for range b.N {
		if n == 1e6 {
			b.StopTimer()
			a, t = benchTree(b, 4096, 1e6)
			n = 0
			b.StartTimer()
		}
		if _, err := Delete(a, &t, benchKey(key, n)); err != nil {
			b.Fatal(err)
		}
		if n++; n%1000 == 0 {
			a.commit()
		}
	}
}

// BenchmarkScan reads key and value of every row, in both directions: of a tree put in random
// order, of one loaded in order, and of one that fits into the cache.
func BenchmarkScan(b *testing.B) {
	random, randomTree := benchTree(b, 4096, 1e6)
	loaded, loadedTree := benchLoad(b, 1e6)
	small, smallTree := benchLoad(b, 2000)
	for _, s := range []struct {
		name string
		a    *arena
		t    Tree
	}{{"random", random, randomTree}, {"loaded", loaded, loadedTree}, {"small", small, smallTree}} {
		for _, back := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/back_%v", s.name, back), func(b *testing.B) {
				var c Cursor
				sum, rows := 0, 0
				for range b.N {
					c.Reset(s.a, s.t)
					if back {
						for ok := c.Last(); ok; ok = c.Prev() {
							sum += int(c.Key()[0]) + int(c.Value()[0])
							rows++
						}
					} else {
						for ok := c.First(); ok; ok = c.Next() {
							sum += int(c.Key()[0]) + int(c.Value()[0])
							rows++
						}
					}
				}
				if c.Err() != nil || rows != b.N*int(s.t.Rows) || sum < 0 {
					b.Fatal(c.Err(), rows)
				}
				b.ReportMetric(float64(rows)/float64(b.Elapsed().Nanoseconds())*1e3, "Mrows/s")
			})
		}
	}
}

func benchLoad(b *testing.B, rows int) (*arena, Tree) {
	a := newArena(4096, rows*150+1<<20)
	bl := NewBuilder(a)
	key, value := make([]byte, 16), make([]byte, 100)
	for i := range rows {
		binary.BigEndian.PutUint64(key[8:], uint64(i))
		require.NoError(b, bl.Add(key, value, 0))
	}
	t, err := bl.Finish()
	require.NoError(b, err)
	return a, t
}

func BenchmarkBuilder(b *testing.B) {
	const rows = 500_000
	for range b.N {
		b.StopTimer()
		a := newArena(4096, 100<<20)
		bl := NewBuilder(a)
		key, value := make([]byte, 16), make([]byte, 100)
		b.StartTimer()
		for i := range rows {
			binary.BigEndian.PutUint64(key[8:], uint64(i))
			if err := bl.Add(key, value, 0); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := bl.Finish(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/rows/float64(b.N), "ns/row")
}

func BenchmarkCheckPage(b *testing.B) {
	for _, pageSize := range []int{4096, 65536} {
		for _, rewritten := range []bool{false, true} {
			name := map[bool]string{false: "put at random", true: "rewritten"}[rewritten]
			b.Run(fmt.Sprintf("%d, %s", pageSize, name), func(b *testing.B) {
				a, t := benchTree(b, pageSize, 20_000)
				var p []byte
				require.NoError(b, Walk(a, t, func(ref pager.Ref, level uint8) (bool, error) {
					p = a.page(ref.Pgid)
					return true, nil
				}))
				if rewritten {
					writeLeaf(p, appendCells(nil, bytes.Clone(p), 0, count(p)))
				}
				for b.Loop() {
					if err := CheckPage(p, pageSize); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
