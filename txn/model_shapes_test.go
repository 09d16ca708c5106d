package txn

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// A shaped is a row of a store whose rows are alike but for some.
type shaped struct {
	value string
	tag   int64
}

// A shapes is a store of such rows with what has to be in it.
type shapes struct {
	t    *testing.T
	s    *Store
	fs   vfs.FS
	o    Options
	rnd  *rand.Rand
	rows map[string]shaped
	keys int // how many there may be
	size int // of most values
	odd  int // one key of so many is not like the others

	inOrder bool // as the rows that there are at first are put: their leaves are full
}

func (p *shapes) key(i int) []byte {
	at := uint64(i) * 0x9E3779B97F4A7C15
	if p.inOrder {
		at = uint64(i) << 44
	}
	key := binary.BigEndian.AppendUint64(nil, at)
	if i%p.odd == p.odd-1 {
		switch i / p.odd % 40 {
		case 0, 3:
			return append(key, make([]byte, tree.MaxKey(4096)-8)...)
		case 1:
			return key[:1+i/p.odd/40%7]
		default:
			return append(key, make([]byte, 1+i/p.odd%9)...)
		}
	}
	return key
}

func (p *shapes) change() Change {
	c := Change{Key: p.key(p.rnd.IntN(p.keys))}
	if p.rnd.IntN(3) == 0 {
		c.Delete = true
		return c
	}
	c.Value = make([]byte, p.size)
	if len(c.Key) == tree.MaxKey(4096) {
		c.Value = make([]byte, tree.MaxInline(4096, len(c.Key)))
	} else if p.rnd.IntN(4*p.odd) == 0 {
		most := tree.MaxInline(4096, len(c.Key))
		c.Value = make([]byte, []int{0, 1, p.size + 1, p.rnd.IntN(200), most, most + 1, 9000}[p.rnd.IntN(7)])
		c.Tag = int64(p.rnd.IntN(3))
	}
	for i := range c.Value {
		c.Value[i] = byte(p.rnd.Uint32())
	}
	return c
}

// note makes a change in the rows, and says what was there.
func (p *shapes) note(c Change) Info {
	was, found := p.rows[string(c.Key)]
	if c.Delete {
		delete(p.rows, string(c.Key))
	} else {
		p.rows[string(c.Key)] = shaped{string(c.Value), c.Tag}
	}
	return Info{Size: len(was.value), Tag: was.tag, Found: found}
}

// do does something in tx.
func (p *shapes) do(tx *Tx) {
	switch op := p.rnd.IntN(100); {
	case op < 30:
		changes := make([]Change, 1+p.rnd.IntN(1+p.rnd.IntN(400)))
		for i := range changes {
			changes[i] = p.change()
		}
		if p.rnd.IntN(3) == 0 {
			slices.SortFunc(changes, func(a,
				b Change) int {
				return strings.Compare(string(a.Key), string(b.Key))
			})
		}
		was := make([]Info, len(changes))
		require.NoError(p.t, tx.Apply(9, changes, was))
		for i, c := range changes {
			require.Equal(p.t, p.note(c), was[i])
		}
	case op < 34:
		lo, hi := p.key(p.rnd.IntN(p.keys)), p.key(p.rnd.IntN(p.keys))
		if p.rnd.IntN(3) > 0 {
			hi = append(
				binary.BigEndian.AppendUint64(
					nil,
					binary.BigEndian.Uint64(append(slices.Clone(lo), make([]byte, 8)...))|1<<54-1,
				),
				0,
			)
		}
		want := uint64(0)
		for k := range p.rows {
			if k >= string(lo) && k < string(hi) {
				delete(p.rows, k)
				want++
			}
		}
		got, err := tx.DeleteRange(9, lo, hi)
		require.NoError(p.t, err)
		require.Equal(p.t, want, got)
	case op < 50:
		key, tag := p.key(p.rnd.IntN(p.keys)), int64(p.rnd.IntN(3))
		was, err := tx.SetTag(9, key, tag)
		require.NoError(p.t, err)
		row, found := p.rows[string(key)]
		require.Equal(p.t, Info{Size: len(row.value), Tag: row.tag, Found: found}, was)
		if found {
			p.rows[string(key)] = shaped{row.value, tag}
		}
	default:
		for range 1 + p.rnd.IntN(20) {
			c := p.change()
			var was Info
			var err error
			if c.Delete {
				was, err = tx.Delete(9, c.Key)
			} else {
				was, err = tx.Put(9, c.Key, c.Value, c.Tag)
			}
			require.NoError(p.t, err)
			require.Equal(p.t, p.note(c), was)
		}
	}
}

// requireRows holds what tx sees against rows.
func (p *shapes) requireRows(tx *Tx, rows map[string]shaped) {
	p.t.Helper()
	c, n := tx.Cursor(9), 0
	for ok := c.First(); ok; ok = c.Next() {
		row, found := rows[string(c.Key())]
		if !found || row.value != string(c.Value()) || row.tag != c.Tag() {
			require.Fail(p.t, "row", "%x", c.Key())
		}
		n++
	}
	require.NoError(p.t, c.Err())
	require.Equal(p.t, len(rows), n)
	require.EqualValues(p.t, len(rows), tx.Rows(9))
}

// step is a transaction, which is rolled back now and then, as a whole or in part.
func (p *shapes) step() {
	before := maps.Clone(p.rows)
	tx, err := p.s.Begin(nil, true)
	require.NoError(p.t, err)
	for range 1 + p.rnd.IntN(6) {
		if p.rnd.IntN(4) > 0 {
			p.do(tx)
			continue
		}
		sp, saved := tx.Savepoint(), maps.Clone(p.rows)
		for range p.rnd.IntN(4) {
			p.do(tx)
		}
		if p.rnd.IntN(3) > 0 {
			require.NoError(p.t, tx.RollbackTo(sp))
			p.rows = saved
		}
	}
	if p.rnd.IntN(5) == 0 {
		p.requireRows(tx, p.rows)
	}
	if p.rnd.IntN(5) == 0 {
		tx.Rollback()
		p.rows = before
		return
	}
	require.NoError(p.t, tx.Commit(Durability(p.rnd.IntN(2))))
}

// layouts counts the leaves that are uniform, and those that are not.
func (p *shapes) layouts() (n [2]int) {
	view(p.t, p.s, func(tx *Tx) {
		all, _ := tx.tree(9)
		eachPage(p.t, tx.Page, all, func(_ pager.Ref, b []byte) {
			if pager.ReadHeader(b).Kind == pager.KindLeaf {
				n[min(1, binary.LittleEndian.Uint16(b[32:]))]++
			}
		})
	})
	return n
}

// TestRowsOfFewShapes: leaves of rows that are alike get others, and lose them, in all ways that
// rows are changed. What is taken back, in part or as a whole, is as it was, snapshots stay, and a
// crash loses nothing.
func TestRowsOfFewShapes(t *testing.T) {
	racetest.NotQuick(t)
	for name, c := range map[string]struct {
		cache     int64
		from      int // ManyFrom
		keys      int
		size, odd int
		inOrder   bool
	}{
		"fits":             {8 << 20, 1 << 30, 20_000, 8, 100, true},
		"fits, parallel":   {8 << 20, 2, 20_000, 8, 400, false},
		"short":            {300 << 10, 1 << 30, 9000, 40, 40, false},
		"short, parallel":  {300 << 10, 2, 9000, 100, 300, true},
		"deltas":           {1 << 20, 1 << 30, 20_000, 100, 300, true},
		"deltas, parallel": {1 << 20, 2, 20_000, 60, 1000, false},
	} {
		t.Run(name, func(t *testing.T) {
			racetest.OneGoroutine(t)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			p := &shapes{
				t:       t,
				fs:      vfs.NewMemory(),
				rnd:     rand.New(rand.NewPCG(seed, 0)),
				rows:    map[string]shaped{},
				keys:    c.keys,
				size:    c.size,
				odd:     c.odd,
				inOrder: c.inOrder,
			}
			p.o = testOptions(p.fs)
			p.o.ManyFrom, p.o.CacheBytes, p.o.CheckpointBytes = c.from, c.cache, 1<<20
			var err error
			p.s, err = Open("/a.ebb", p.o)
			require.NoError(t, err)
			update(t, p.s, func(tx *Tx) {
				require.NoError(t, tx.Create(9))
				for i := range p.keys / 2 {
					c := Change{Key: p.key(2 * i), Value: make([]byte, p.size)}
					mustPut(t, tx, 9, c.Key, c.Value, 0)
					p.note(c)
				}
			})
			var snap *Tx
			var snapRows map[string]shaped
			var seen [2]int
			rounds := 60
			if racetest.Quick() {
				rounds = 20
			}
			for round := range rounds {
				for range 1 + p.rnd.IntN(4) {
					p.step()
				}
				switch p.rnd.IntN(8) {
				case 0, 1:
					require.NoError(t, p.s.Checkpoint(t.Context()))
				case 2:
					if snap != nil {
						p.requireRows(snap, snapRows)
						snap.Rollback()
					}
					snap = begin(t, p.s, false)
					snapRows = maps.Clone(p.rows)
				case 3:
					update(t, p.s, func(tx *Tx) {}) // all before is durable
					o := p.o
					o.FS = copyFiles(t, p.fs)
					crashed := mustOpen(t, o)
					view(t, crashed, func(tx *Tx) { p.requireRows(tx, p.rows) })
					requireSound(t, crashed)
					require.NoError(t, crashed.Close())
				}
				if round%10 == 9 {
					requireSound(t, p.s)
					for i, n := range p.layouts() {
						seen[i] += n
					}
				}
			}
			if snap != nil {
				p.requireRows(snap, snapRows)
				snap.Rollback()
			}
			require.Positive(t, seen[0])
			require.Positive(t, seen[1])
			requireSound(t, p.s)
			require.NoError(t, p.s.Close())
		})
	}
}
