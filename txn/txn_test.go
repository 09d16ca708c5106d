package txn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/wal"
)

// testOptions are small, so that splits, spills, segment switches and checkpoints all happen.
func testOptions(fs vfs.FS) Options {
	seq := uint64(1)
	return Options{
		FS:              fs,
		SegmentSize:     64 << 10,
		CacheBytes:      256 << 10,
		CheckpointBytes: 128 << 10,
		Inline:          true,
		Choose:          anyOf(),
		Rand:            func() uint64 { seq = seq*6364136223846793005 + 1442695040888963407; return seq },
	}
}

// anyOf chooses at random, in each test the same.
func anyOf() func(n int) int {
	rnd := rand.New(rand.NewSource(4))
	return rnd.Intn
}

// reclaimEverything frees all that can be freed.
func reclaimEverything(t *testing.T, s *Store) {
	t.Helper()
	_, err := s.reclaimer.reclaim(reclaimAll)
	require.NoError(t, err)
}

// openTest opens a store that is checked and closed at the end of the test.
func openTest(t *testing.T, path string, o Options) *Store {
	t.Helper()
	s, err := Open(path, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			return // A transaction may be open, and hold the lock that a check waits for.
		}
		requireSound(t, s)
		require.NoError(t, s.Close())
	})
	return s
}

func requireSound(t *testing.T, s *Store) {
	t.Helper()
	s.Check(context.Background(), func(p Problem) bool {
		if p.Kind != "closed" {
			t.Errorf("Check: %v", p)
		}
		return true
	})
}

func update(t *testing.T, s *Store, fn func(tx *Tx)) {
	t.Helper()
	tx := begin(t, s, true)
	fn(tx)
	require.NoError(t, tx.Commit(Sync))
}

// contents reads a tree whole, forwards.
func contents(t *testing.T, tx *Tx, id TreeID) map[string]string {
	t.Helper()
	m := map[string]string{}
	c := tx.Cursor(id)
	for ok := c.First(); ok; ok = c.Next() {
		m[string(c.Key())] = string(c.Value())
	}
	require.NoError(t, c.Err())
	require.Equal(t, uint64(len(m)), tx.Rows(id))
	requireMany(t, tx, id, m)
	return m
}

func TestCommitsAreThereAfterReopening(t *testing.T) {
	fs := vfs.NewMemory()
	s := mustOpen(t, testOptions(fs))
	require.True(t, s.Recovery().Created)
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, CatalogTree, []byte("k"), []byte("v"), 1)
		mustPut(t, tx, CatalogTree, []byte("big"), bytes.Repeat([]byte("x"), 100000), 0)
	})
	require.NoError(t, s.Close())
	names, err := fs.List("/")
	require.NoError(t, err)
	require.Equal(t, []string{"a.ebb"}, names)
	s = openTest(t, "/a.ebb", testOptions(fs))
	require.True(t, s.Recovery().Clean)
	tx := begin(t, s, false)
	defer tx.Rollback()
	v, tag, found, err := tx.Get(CatalogTree, []byte("k"))
	require.NoError(t, err)
	require.True(t, found)
	require.EqualValues(t, 1, tag)
	require.Equal(t, "v", string(v))
	v, _, _, err = tx.Get(CatalogTree, []byte("big"))
	require.NoError(t, err)
	require.Len(t, v, 100000)
}

// model is what the store should hold: trees of sorted rows.
type model map[TreeID]map[string]string

func (m model) copy() model {
	c := model{}
	for id, rows := range m {
		r := map[string]string{}
		for k, v := range rows {
			r[k] = v
		}
		c[id] = r
	}
	return c
}

func requireModel(t *testing.T, m model, tx *Tx) {
	t.Helper()
	for id, rows := range m {
		require.True(t, tx.Exists(id))
		got := contents(t, tx, id)
		if len(got) == len(rows) {
			same := true
			for k, v := range rows {
				same = same && got[k] == v
			}
			if same {
				continue
			}
		}
		require.Equal(t, rows, got, "tree %d", id)
	}
}

func TestModel(t *testing.T) {
	for _, c := range []struct {
		name string
		o    func(fs vfs.FS) Options
		os   bool
	}{
		{"memory", testOptions, false},
		{"memory, pages of 16 KiB",
			func(fs vfs.FS) Options { o := testOptions(fs); o.PageSize = 16384; return o }, false},
		{"mapped file", testOptions, true},
		{"file that is not mapped",
			func(fs vfs.FS) Options { o := testOptions(fs); o.NoMap = true; return o }, true},
		{"checkpoints beside", func(fs vfs.FS) Options {
			o := testOptions(fs)
			o.Inline,
				o.Choose = false, nil
			return o
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.o(nil).Inline {
				racetest.OneGoroutine(t)
			}
			for seed := int64(1); seed <= seeds(2); seed++ {
				fs, path := vfs.NewMemory(), "/m.ebb"
				if c.os {
					fs, path = vfs.OS, t.TempDir()+"/m.ebb"
				}
				t.Logf("seed %d", seed)
				runModel(t, path, c.o(fs), seed)
			}
		})
	}
}

// seeds is n, fewer in a quick run and under the race detector, where each takes ten times as long.
func seeds(n int64) int64 {
	switch {
	case racetest.Enabled:
		return max(n/3, 1)
	case racetest.Quick():
		return max(n/6, 1)
	}
	return n
}

// runModel does random transactions on a store and on a model, and compares them after each.
func runModel(t *testing.T, path string, o Options, seed int64) {
	rnd := rand.New(rand.NewSource(seed))
	s, err := Open(path, o)
	require.NoError(t, err)
	defer func() {
		if t.Failed() {
			return // a transaction may be open
		}
		requireSound(t, s)
		require.NoError(t, s.Close())
	}()
	m := model{CatalogTree: {}}
	var snap *Tx
	var snapModel model
	for step := 0; step < racetest.Sample(120, 60); step++ {
		switch n := rnd.Intn(40); {
		case n == 0:
			if snap != nil {
				snap.Rollback()
				snap = nil
			}
			require.NoError(t, s.Close())
			s, err = Open(path, o)
			require.NoError(t, err)
			require.True(t, s.Recovery().Clean)
			continue
		case n < 4:
			require.NoError(t, s.Checkpoint(nil))
			continue
		case n < 6:
			requireSound(t, s)
			continue
		case n < 9:
			if snap != nil {
				requireModel(t, snapModel, snap)
				snap.Rollback()
			}
			snap = begin(t, s, false)
			snapModel = m.copy()
			continue
		}
		tx := begin(t, s, true)
		next := m.copy()
		randomOps(t, rnd, tx, next, 1+rnd.Intn(1+rnd.Intn(600)))
		requireModel(t, next, tx)
		if rnd.Intn(5) == 0 {
			tx.Rollback()
		} else {
			require.NoError(t, tx.Commit(Durability(rnd.Intn(2))))
			m = next
		}
		read := begin(t, s, false)
		requireModel(t, m, read)
		read.Rollback()
	}
	if snap != nil {
		requireModel(t, snapModel, snap)
		snap.Rollback()
	}
}

func randomOps(t *testing.T, rnd *rand.Rand, tx *Tx, m model, n int) {
	type saved struct {
		sp Savepoint
		m  model
	}
	var saves []saved
	ids := func() TreeID {
		var all []int
		for id := range m {
			all = append(all, int(id))
		}
		sort.Ints(all)
		return TreeID(all[rnd.Intn(len(all))])
	}
	key := func() []byte { return []byte(fmt.Sprintf("key%0*d", 1+rnd.Intn(30), rnd.Intn(400))) }
	for range n {
		id := ids()
		rows := m[id]
		switch op := rnd.Intn(100); {
		case op < 55:
			k, v := key(), make([]byte, rnd.Intn(300))
			if rnd.Intn(20) == 0 {
				v = make([]byte, rnd.Intn(20000))
			}
			rnd.Read(v)
			was, err := tx.Put(id, k, v, int64(rnd.Intn(2)))
			require.NoError(t, err)
			_, had := rows[string(k)]
			require.Equal(t, had, was.Found)
			rows[string(k)] = string(v)
		case op < 80:
			k := key()
			was, err := tx.Delete(id, k)
			require.NoError(t, err)
			_, had := rows[string(k)]
			require.Equal(t, had, was.Found)
			delete(rows, string(k))
		case op < 88:
			k := key()
			v, _, found, err := tx.Get(id, k)
			require.NoError(t, err)
			want, had := rows[string(k)]
			require.Equal(t, had, found)
			require.Equal(t, want, string(v))
		case op < 90:
			lo, hi := key(), key()
			if bytes.Compare(lo, hi) > 0 {
				lo, hi = hi, lo
			}
			want := uint64(0)
			for k := range rows {
				if k >= string(lo) && k < string(hi) {
					delete(rows, k)
					want++
				}
			}
			got, err := tx.DeleteRange(id, lo, hi)
			require.NoError(t, err)
			require.Equal(t, want, got)
		case op < 92 && len(m) < 40:
			first, err := tx.NewTreeIDs(2)
			require.NoError(t, err)
			require.NotContains(t, m, first)
			require.NoError(t, tx.Create(first))
			m[first] = map[string]string{}
		case op == 92 && id != CatalogTree:
			require.NoError(t, tx.Drop(id))
			delete(m, id)
			for i := range saves {
				_ = i
			}
		case op == 93:
			require.NoError(t, tx.Clear(id))
			m[id] = map[string]string{}
		case op < 96:
			saves = append(saves, saved{tx.Savepoint(), m.copy()})
		case op < 98 && len(saves) > 0:
			i := rnd.Intn(len(saves))
			require.NoError(t, tx.RollbackTo(saves[i].sp))
			for id := range m {
				delete(m, id)
			}
			for id, rows := range saves[i].m.copy() {
				m[id] = rows
			}
			for _, late := range saves[i+1:] {
				require.ErrorIs(t, tx.RollbackTo(late.sp), ErrSavepoint)
			}
			saves = saves[:i+1]
		}
	}
}

func TestStateErrorsComeFirst(t *testing.T) {
	s := openTest(t, "/e.ebb", testOptions(vfs.NewMemory()))
	read := begin(t, s, false)
	_, err := read.Put(CatalogTree, []byte("k"), nil, 0)
	require.ErrorIs(t, err, ErrReadOnly)
	require.ErrorIs(t, s.Close(), ErrTxnsOpen)
	read.Rollback()
	_, _, _, err = read.Get(CatalogTree, []byte("k"))
	require.ErrorIs(t, err, ErrTxnDone)
	write := begin(t, s, true)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = s.Begin(ctx, true)
	require.ErrorIs(t, err, context.Canceled)
	_, err = write.Put(99, []byte("k"), nil, 0)
	require.ErrorIs(t, err, ErrNoTree)
	_, err = write.Put(CatalogTree, []byte("k"), nil, 0)
	require.NoError(t, err)
	require.NoError(t, write.Commit(Sync))
	require.ErrorIs(t, write.Commit(Sync), ErrTxnDone)
	require.False(t, errors.Is(write.err, ErrFailed))
}

// TestReadOnlyCommitWaitsForItsSnapshotToBeDurable has the story of a write transaction that found a
// key deleted, changed nothing, and whose commit returned at once. The delete that it had seen was
// not durable yet: the next reader saw the key again, and so would every reader after a power cut.
func TestReadOnlyCommitWaitsForItsSnapshotToBeDurable(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	first := begin(t, s, true)
	_, err := first.Put(9, []byte("k"), []byte("v"), 0)
	require.NoError(t, err)
	// Commit as far as the release of the writer lock: the record is queued and not written.
	end, err := first.w.logCommit()
	require.NoError(t, err)
	v := first.w.commitVersion(end, true, false)
	first.done = true
	s.unlockWriter()

	second := begin(t, s, true)
	_, _, found, err := second.Get(9, []byte("k"))
	require.NoError(t, err)
	require.True(t, found)
	require.Less(t, s.queue.visible.Load().seq, v.seq)
	require.NoError(t, second.Commit(Sync))
	require.Equal(t, v.seq, s.queue.visible.Load().seq)
	require.GreaterOrEqual(t, s.log.Durable(), end)
	s.open.Add(-1) // of the first one
}

// TestADurableCommitIsVisibleOnlyWhenItIsDurable: a record that is in the file and not yet synced is
// one that a power cut takes. No reader may have seen it then, nor a relaxed commit that builds on
// it.
func TestADurableCommitIsVisibleOnlyWhenItIsDurable(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	seen := s.queue.visible.Load().seq
	// commit is Commit as far as the release of the writer lock.
	commit := func(key string, sync bool) (*version, wal.LSN) {
		tx := begin(t, s, true)
		mustPut(t, tx, 9, []byte(key), nil, 0)
		end, err := tx.w.logCommit()
		require.NoError(t, err)
		v := tx.w.commitVersion(end, sync, false)
		tx.done = true
		s.unlockWriter()
		s.open.Add(-1)
		return v, end
	}
	durable, _ := commit("durable", true)
	relaxed, end := commit("relaxed", false)
	require.NoError(t, s.log.Wait(end, false)) // both are written, neither is synced
	s.queue.makeVisible()
	require.Equal(t, seen, s.queue.visible.Load().seq)
	require.NoError(t, s.log.Wait(durable.lsn, true))
	s.queue.makeVisible()
	require.Equal(t, relaxed.seq, s.queue.visible.Load().seq)
}
