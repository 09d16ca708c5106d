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
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// replayAll replays commits, in buffers of at most most bytes, cut into parts.
func replayAll(s *Store, most int, payloads ...[]byte) error {
	s.w.begin()
	s.w.noLog = true
	p := newReplayer(s, emptyMeta(s), 1<<20)
	p.applyWith(&s.w)
	defer p.free()
	p.buffer.most = most
	for i, payload := range payloads {
		if err := takeParts(p, payload, 1+most, wal.LSN(1000+i)); err != nil {
			return err
		}
	}
	return p.finish()
}

// takeParts has a replayer take a commit in parts of some bytes.
func takeParts(p *replayer, payload []byte, size int, lsn wal.LSN) error {
	for at := 0; ; at += size {
		end := min(at+size, len(payload))
		err := p.part(wal.Part{Payload: payload[at:end], Commit: lsn, First: at == 0,
			Last: end == len(payload)})
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
			fmt.Sprintf("%s%0*d", []string{"", "a", "long prefix "}[rnd.Intn(3)], 1+rnd.Intn(6),
				rnd.Intn(30)),
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
			tx := begin(t, s, false)
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

// TestReplayReportsTheOffsetOfTheDamage: with the position of the commit, whatever batches its
// operations came in.
func TestReplayReportsTheOffsetOfTheDamage(t *testing.T) {
	put := func(id TreeID, key string) []byte {
		return appendRedo(nil,
			redo{op: opPut, id: id, key: []byte(key)})
	}
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

// TestReplayBufferIsBounded: the buffer is applied before it holds more than it may.
func TestReplayBufferIsBounded(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	s.w.begin()
	s.w.noLog = true
	p := newReplayer(s, emptyMeta(s), 1<<20)
	p.applyWith(&s.w)
	p.buffer.most = 10_000
	payload := commitOne()
	for i := range 1000 {
		payload = appendRedo(payload,
			redo{op: opPut, id: CatalogTree, key: fmt.Appendf(nil, "%06d", i), value: make([]byte, 100)})
	}
	for at := 0; at < len(payload); at += 500 {
		end := min(at+500, len(payload))
		require.NoError(t, p.part(wal.Part{
			Payload: payload[at:end], Commit: 1000, First: at == 0, Last: end == len(payload),
		}))
		require.LessOrEqual(t, len(p.buffer.ops.All), p.buffer.most)
	}
	require.NoError(t, p.finish())
	s.w.publishMaintenance()
	s.queue.makeVisible()
	view(t, s, func(tx *Tx) { require.EqualValues(t, 1000, tx.Rows(CatalogTree)) })
}
