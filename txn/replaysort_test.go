package txn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// replayAll replays commits, in batches of at most most bytes, cut into parts.
func replayAll(s *Store, most int, payloads ...[]byte) error {
	s.w.begin()
	s.w.noLog = true
	p := newReplayer(s, emptyMeta(s), 0)
	p.w, p.most = &s.w, most
	var err error
	for i, payload := range payloads {
		if err = takeParts(p, payload, 1+most, wal.LSN(1000+i)); err != nil {
			break
		}
	}
	return p.finish(err)
}

// takeParts has a replayer take a commit in parts of some bytes.
func takeParts(p *replayer, payload []byte, size int, lsn wal.LSN) error {
	for at := 0; ; at += size {
		end := min(at+size, len(payload))
		err := p.part(wal.Part{Payload: payload[at:end], Commit: lsn, First: at == 0, Last: end == len(payload)})
		if err != nil || end == len(payload) {
			return err
		}
	}
}

// emptyMeta is a meta page of a store that knows of no commit.
func emptyMeta(s *Store) *pager.Meta {
	m := s.pg.LastMeta()
	m.Seq, m.ClockMark = 0, 0
	return &m
}

// randomRedo is the payloads of n commits of all kinds of operations, each of which a transaction
// could have written, on a store with the catalog only. Keys are few and share prefixes, so that
// heads are equal and keys come again.
func randomRedo(rnd *rand.Rand, n int) (payloads [][]byte) {
	ids, next := []TreeID{CatalogTree}, firstTree
	key := func() []byte {
		return []byte(
			fmt.Sprintf("%s%0*d", []string{"", "a", "long prefix "}[rnd.Intn(3)], 1+rnd.Intn(6), rnd.Intn(30)),
		)
	}
	for seq := 1; seq <= n; seq++ {
		b := binary.LittleEndian.AppendUint64(nil, uint64(seq))
		b = binary.LittleEndian.AppendUint64(b, uint64(7*seq))
		for range rnd.Intn(60) {
			i := rnd.Intn(len(ids))
			r := redo{op: opPut, id: ids[i], key: key(), value: make([]byte, rnd.Intn(40))}
			rnd.Read(r.value)
			switch n := rnd.Intn(100); {
			case n < 50:
			case n < 60:
				r.op, r.tag = opPutTag, 1+rnd.Int63()
			case n < 75:
				r.op = opDelete
			case n < 85:
				r.op, r.tag = opSetTag, rnd.Int63n(3)
			case n < 87:
				r.value = make([]byte, 5000)
			case n < 90:
				r.op, r.value = opRange, key()
				if bytes.Compare(r.key, r.value) > 0 {
					r.key, r.value = r.value, r.key
				}
			case n < 92:
				r.op = opClear
			case n < 95:
				r.op, r.id = opCreate, next
				ids = append(ids, next)
				next++
			case n < 97:
				r.op, r.id = opNextTree, next+10
			case i > 0:
				r.op = opDrop
				ids = slices.Delete(ids, i, i+1)
			}
			b = appendRedo(b, r)
		}
		payloads = append(payloads, b)
	}
	return payloads
}

// TestReplayInBatchesEndsAsReplayInTheOrderOfTheLog compares trees, values and tags after batches
// of any size with those after one operation at a time.
func TestReplayInBatchesEndsAsReplayInTheOrderOfTheLog(t *testing.T) {
	for seed := int64(1); seed <= seeds(30); seed++ {
		rnd := rand.New(rand.NewSource(seed))
		payloads := randomRedo(rnd, 1+rnd.Intn(20))
		var want []string
		for _, most := range []int{1, 1 + rnd.Intn(2000), 1 + rnd.Intn(20000), 1 << 20} {
			s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
			require.NoError(t, replayAll(s, most, payloads...))
			s.w.publishMaintenance()
			s.queue.makeVisible()
			tx, err := s.Begin(nil, false)
			require.NoError(t, err)
			got := []string{fmt.Sprintf("seq %d mark %d next %d", tx.v.seq, tx.v.mark, tx.v.nextID)}
			tx.v.trees.from(0, func(id TreeID, _ tree.Tree) bool {
				if id >= trashBit {
					return false
				}
				c := tx.Cursor(id)
				for ok := c.First(); ok; ok = c.Next() {
					got = append(got, fmt.Sprintf("tree %d %q %d %q", id, c.Key(), c.Tag(), c.Value()))
				}
				require.NoError(t, c.Err())
				return true
			})
			tx.Rollback()
			if want == nil {
				want = got
			}
			require.Equal(t, want, got, "seed %d, batches of %d bytes", seed, most)
			requireSound(t, s)
		}
	}
}

// TestBatchIsInTheOrderOfTreesAndKeys looks at the order itself: every operation is there once,
// none passes one that keeps its place, and between those there is one run for each tree, by key
// and then as in the log.
func TestBatchIsInTheOrderOfTreesAndKeys(t *testing.T) {
	racetest.OneGoroutine(t)
	for seed := int64(1); seed <= seeds(30); seed++ {
		b := newReplayBuffer(0, seed%2 == 0)
		for i, payload := range randomRedo(rand.New(rand.NewSource(seed)), 30) {
			b.add(payload[redoHead:], wal.LSN(100+i))
		}
		section, sections := 0, map[uint32]int{}
		for rest := b.ops; len(rest) > 0; {
			at := uint32(len(b.ops) - len(rest))
			r, more, err := decodeRedo(rest)
			require.NoError(t, err)
			if !r.isKeyOp() {
				section++
			}
			sections[at] = section
			if !r.isKeyOp() {
				section++
			}
			rest = more
		}
		order, _ := b.sort()
		require.Len(t, order, len(sections))
		seen := map[TreeID]bool{}
		for i, at := range order {
			r, _, err := decodeRedo(b.ops[at:])
			require.NoError(t, err)
			require.Contains(t, sections, at)
			if i == 0 {
				continue
			}
			before := order[i-1]
			require.LessOrEqual(t, sections[before], sections[at], "seed %d", seed)
			was, _, _ := decodeRedo(b.ops[before:])
			switch {
			case sections[before] < sections[at]:
				clear(seen)
			case was.id != r.id:
				require.False(t, seen[r.id], "seed %d: a tree has two runs", seed)
			default:
				c := bytes.Compare(was.key, r.key)
				require.True(
					t,
					c < 0 || c == 0 && before < at,
					"seed %d: %q at %d before %q at %d",
					seed,
					was.key,
					before,
					r.key,
					at,
				)
			}
			seen[r.id] = true
		}
	}
}

// TestReplayReportsTheOffsetOfTheDamage: with the position of the commit, whatever batches its
// operations came in.
func TestReplayReportsTheOffsetOfTheDamage(t *testing.T) {
	put := func(id TreeID, key string) []byte { return appendRedo(nil, redo{op: opPut, id: id, key: []byte(key)}) }
	commit := func(seq byte, ops ...[]byte) []byte {
		return append(append([]byte{seq}, make([]byte, redoHead-1)...), bytes.Join(ops, nil)...)
	}
	for _, test := range []struct {
		name  string
		third []byte
	}{
		{"undecodable", commit(3, put(1, "x"), []byte{200}, put(1, "y"))},
		{"no_such_tree", commit(3, put(1, "x"), put(77, "a"), put(1, "y"))},
		{"key_empty", commit(3, put(1, "x"), put(1, ""), put(1, "y"))},
		{"number", commit(9, put(1, "x"))},
	} {
		for _, most := range []int{1, 20, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", test.name, most), func(t *testing.T) {
				s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
				err := replayAll(
					s,
					most,
					commit(1, put(1, "a")),
					commit(2, put(1, "m"), put(1, "b")),
					test.third,
					commit(4, put(1, "c")),
				)
				s.w.rollback()
				var bad *badfile.Error
				require.True(t, errors.As(err, &bad), "%v", err)
				require.EqualValues(t, 1002, bad.Off)
			})
		}
	}
}

// TestPrefixEndsBetweenOperations: whatever the bound, pieces are whole operations, and together
// all of them.
func TestPrefixEndsBetweenOperations(t *testing.T) {
	all := randomRedo(rand.New(rand.NewSource(1)), 1)[0][redoHead:]
	for len(all) < 8000 {
		all = append(all, all...)
	}
	all = append(all, 200, 1, 2, 3) // does not decode
	for most := 1; most < len(all)+2; most += 1 + most/3 {
		for rest := all; len(rest) > 0; {
			n := prefixLen(rest, most)
			require.Positive(t, n)
			ops := 0
			for piece := rest[:n]; len(piece) > 0; ops++ {
				_, more, err := decodeRedo(piece)
				if err != nil {
					require.Len(t, rest, n, "most %d: what does not decode is in the last piece", most)
					break
				}
				piece = more
			}
			require.True(t, n <= most || ops <= 1, "most %d: %d operations of %d bytes", most, ops, n)
			rest = rest[n:]
		}
	}
}

// BenchmarkBatchSort takes 600,000 rows with keys at random and puts them in order.
func BenchmarkBatchSort(b *testing.B) {
	rnd := rand.New(rand.NewSource(1))
	var ops []byte
	for range 600_000 {
		key, value := make([]byte, 16), make([]byte, 100)
		rnd.Read(key)
		ops = appendRedo(ops, redo{op: opPut, id: firstTree, key: key, value: value})
	}
	x := newReplayBuffer(int64(len(ops)), false)
	defer x.free()
	for b.Loop() {
		x.add(ops, 1)
		x.sort()
		x.reset()
	}
}

// TestBatchIsBounded whatever the cache and the log are: where an operation begins has 32 bits.
func TestBatchIsBounded(t *testing.T) {
	require.Equal(t, int64(100), batchBytes(300))
	require.Equal(t, int64(maxBatch), batchBytes(1<<40))
	require.LessOrEqual(
		t,
		uint64(2*maxBatch),
		uint64(1<<32),
		"one that does not fit comes alone, or begins below",
	)
}
