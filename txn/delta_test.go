package txn

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/platformtest"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// deltaTest is a store larger than its cache, with all of its pages in the file, beside a map of
// its rows in tree 9.
type deltaTest struct {
	t    *testing.T
	s    *Store
	rows map[string]string
	rnd  *rand.Rand
}

// deltaModes are the ways in which a store reads its file.
var deltaModes = map[string]func(t *testing.T) (vfs.FS, string){
	"mapped": func(t *testing.T) (vfs.FS, string) { return vfs.OS, t.TempDir() + "/a.ebb" },
	"read":   func(*testing.T) (vfs.FS, string) { return vfs.NewMemory(), "/a.ebb" },
}

func eachDeltaMode(t *testing.T, test func(p *deltaTest)) {
	for name, open := range deltaModes {
		t.Run(name, func(t *testing.T) {
			if name == "mapped" {
				platformtest.NeedsMap(t)
			}
			fs, path := open(t)
			s := openTest(
				t,
				path,
				Options{FS: fs, CacheBytes: 512 << 10, CheckpointBytes: 1 << 30, SegmentSize: 64 << 10},
			)
			require.Equal(t, name == "mapped", s.pg.Mapped())
			p := &deltaTest{t, s, map[string]string{}, rand.New(rand.NewPCG(1, 2))}
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
			p.put(10000)
			require.NoError(t, s.Checkpoint(t.Context()))
			test(p)
		})
	}
}

// put commits n rows, three of four of them new ones, at random.
func (p *deltaTest) put(n int) {
	update(p.t, p.s, func(tx *Tx) { p.putIn(tx, n, p.rows) })
}

func (p *deltaTest) putIn(tx *Tx, n int, rows map[string]string) {
	p.putOver(tx, n, rows, slices.Sorted(maps.Keys(rows)))
}

// putOver is putIn with the keys of which one of four rows is a new version.
func (p *deltaTest) putOver(tx *Tx, n int, rows map[string]string, keys []string) {
	for range n {
		key := string(binary.BigEndian.AppendUint64(nil, p.rnd.Uint64()))
		if len(keys) > 0 && p.rnd.IntN(4) == 0 {
			key = keys[p.rnd.IntN(len(keys))]
		}
		value := fmt.Sprintf("%0*d", 100+p.rnd.IntN(2)*p.rnd.IntN(30), p.rnd.Uint32())
		_, err := tx.Put(9, []byte(key), []byte(value), 0)
		require.NoError(p.t, err)
		rows[key] = value
	}
}

// requireRows looks whether a transaction sees these rows, one by one and in order.
func (p *deltaTest) requireRows(tx *Tx, want map[string]string) {
	p.t.Helper()
	require.Equal(p.t, want, contents(p.t, tx, 9))
	for key, value := range want {
		got, _, found, err := tx.Get(9, []byte(key))
		require.NoError(p.t, err)
		require.True(p.t, found)
		require.Equal(p.t, value, string(got))
	}
}

func (p *deltaTest) reader() *Tx {
	tx, err := p.s.Begin(nil, false)
	require.NoError(p.t, err)
	return tx
}

// deltaBytes is the memory of deltas that no checkpoint writes yet.
func (p *deltaTest) deltaBytes() int64 {
	require.NoError(p.t, p.s.lockWriter(nil))
	defer p.s.unlockWriter()
	return p.s.pg.Pool.DeltaBytes()
}

func TestLeavesOfAStoreLargerThanItsCacheGetDeltas(t *testing.T) {
	racetest.OneGoroutine(t)
	eachDeltaMode(t, func(p *deltaTest) {
		t := p.t
		frames := p.s.pg.Pool.FrameBytes()
		p.put(200)
		deltas, leaves := p.deltaBytes(), p.s.pg.Alloc.DirtyBytes()
		require.Positive(t, deltas)
		require.Less(t, p.s.pg.Pool.FrameBytes()-frames, leaves/3, "a copy of each would be as much")
		tx := p.reader()
		p.requireRows(tx, p.rows)
		tx.Rollback()
		requireSound(t, p.s)

		require.NoError(t, p.s.Checkpoint(t.Context()))
		require.Zero(t, p.deltaBytes())
		require.LessOrEqual(t, p.s.pg.Pool.FrameBytes(), frames)
		require.Zero(t, p.s.reclaimer.waiting[unmerged].len())
		requireSound(t, p.s)
	})
}

func TestLeavesOfASmallStoreGetFrames(t *testing.T) {
	s := openTest(t, "/a.ebb", Options{FS: vfs.NewMemory(), CacheBytes: 4 << 20})
	p := &deltaTest{t, s, map[string]string{}, rand.New(rand.NewPCG(1, 2))}
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	p.put(10000)
	require.NoError(t, s.Checkpoint(t.Context()))
	p.put(200)
	require.Zero(t, p.deltaBytes())
}

// TestDeltasBeginWhereFramesRunOut: when the pages of the store are more than the frames that
// start a checkpoint.
func TestDeltasBeginWhereFramesRunOut(t *testing.T) {
	s := openTest(t, "/a.ebb", Options{FS: vfs.NewMemory(), CacheBytes: 4 << 20})
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	may := func(bound int64) bool {
		s.o.CacheBytes = bound
		tx := begin(t, s, true)
		defer tx.Rollback()
		return tx.w.mayDelta
	}
	used := int64(s.pg.Alloc.UsedPages()) * int64(s.pg.PageSize())
	require.False(t, may(2*used))
	require.False(t, may(used+used/2))
	require.True(t, may(used+used/4))
	require.True(t, may(used))
}

// TestSnapshotsOfLeavesWithDeltasStay: neither the bases of deltas nor their memory are reused while a
// snapshot may read them: repeated checkpoints overwrite everything else.
func TestSnapshotsOfLeavesWithDeltasStay(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	eachDeltaMode(t, func(p *deltaTest) {
		t := p.t
		type held struct {
			tx   *Tx
			rows map[string]string
		}
		var readers []held
		hold := func() { readers = append(readers, held{p.reader(), maps.Clone(p.rows)}) }
		for range 4 {
			for range 3 {
				p.put(150)
				hold()
			}
			require.NoError(t, p.s.Checkpoint(t.Context()))
			hold()
		}
		for range 3 {
			p.put(600)
			require.NoError(t, p.s.Checkpoint(t.Context()))
		}
		for _, i := range p.rnd.Perm(len(readers)) {
			p.requireRows(readers[i].tx, readers[i].rows)
			readers[i].tx.Rollback()
			p.put(20)
		}
		requireSound(t, p.s)
		require.NoError(t, p.s.Checkpoint(t.Context()))
		p.put(1) // a transaction takes back what the last readers held
		require.Empty(t, p.s.reclaimer.pins)
		require.Empty(t, p.s.reclaimer.detached)
	})
}

// TestDeltasBesideTheCheckpointThatWritesTheirBase: leaves that a checkpoint is about to write from a
// delta, has in a frame, or has just written, change again, and their readers see them before and
// after.
func TestDeltasBesideTheCheckpointThatWritesTheirBase(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	eachDeltaMode(t, func(p *deltaTest) {
		t := p.t
		for range 3 {
			p.put(800)
			var before, beside *Tx
			var rowsBefore, rowsBeside map[string]string
			parts := 0
			checkpointBy(t, p.s, func() {
				before, rowsBefore = p.reader(), maps.Clone(p.rows)
				p.put(300)
				beside, rowsBeside = p.reader(), maps.Clone(p.rows)
			}, func() {
				if parts++; parts%2 == 0 {
					p.put(30)
				}
			})
			require.Greater(t, parts, 1)
			tx := p.reader()
			p.requireRows(tx, p.rows)
			tx.Rollback()
			require.NoError(t, p.s.Checkpoint(t.Context()))
			p.requireRows(before, rowsBefore)
			before.Rollback()
			p.requireRows(beside, rowsBeside)
			beside.Rollback()
			requireSound(t, p.s)
		}
	})
}

// TestDeltasThatAreRolledBack: transactions and savepoints that are rolled back leave no row, page or
// memory behind.
func TestDeltasThatAreRolledBack(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	eachDeltaMode(t, func(p *deltaTest) {
		t := p.t
		p.put(100)
		used := p.s.pg.Alloc.UsedPages()
		var most int64
		for i := range 60 {
			tx := begin(t, p.s, true)
			p.putIn(tx, 100, maps.Clone(p.rows))
			if i == 10 {
				most = p.s.pg.Pool.DeltaBytes()
			}
			tx.Rollback()
		}
		require.Equal(t, used, p.s.pg.Alloc.UsedPages())
		require.LessOrEqual(t, p.deltaBytes(), most+most/4)
		update(t, p.s, func(tx *Tx) {
			p.putIn(tx, 50, p.rows)
			sp := tx.Savepoint()
			p.putIn(tx, 200, maps.Clone(p.rows))
			require.NoError(t, tx.RollbackTo(sp))
			p.putIn(tx, 50, p.rows)
		})
		tx := p.reader()
		p.requireRows(tx, p.rows)
		tx.Rollback()
		requireSound(t, p.s)
		require.NoError(t, p.s.Checkpoint(t.Context()))
		requireSound(t, p.s)
	})
}

// TestNoDeltaOfAPageThatNoCheckpointWrites: an epoch may end without one. What was born in it is
// not in the file.
func TestNoDeltaOfAPageThatNoCheckpointWrites(t *testing.T) {
	racetest.OneGoroutine(t)
	eachDeltaMode(t, func(p *deltaTest) {
		t := p.t
		p.put(50)
		update(t, p.s, func(tx *Tx) {
			for i, key := range slices.Sorted(maps.Keys(p.rows)) {
				if i%200 == 0 { // the leaf gets a frame
					mustDelete(t, tx, 9, []byte(key))
					delete(p.rows, key)
				}
			}
		})
		_, err := p.s.bulkLoad(nil, create(10), 10, func(yield func(key, value []byte) bool) {
			_ = yield([]byte("b"), make([]byte, 9000)) && yield([]byte("a"), nil)
		})
		require.ErrorIs(t, err, ErrOrder)
		p.put(300)
		require.NoError(t, p.s.Checkpoint(t.Context()))
		tx := p.reader()
		p.requireRows(tx, p.rows)
		tx.Rollback()
		requireSound(t, p.s)
	})
}

// TestATransactionLargerThanTheCacheGetsDeltasOnlyInPart: they cannot be written early.
func TestATransactionLargerThanTheCacheGetsDeltasOnlyInPart(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	eachDeltaMode(t, func(p *deltaTest) {
		t := p.t
		var deltas, frames int64
		update(t, p.s, func(tx *Tx) {
			keys := slices.Sorted(maps.Keys(p.rows))
			for range 200 {
				p.putOver(tx, 100, p.rows, keys)
				deltas, frames = max(deltas, p.s.pg.Pool.DeltaBytes()), max(frames, p.s.pg.Pool.FrameBytes())
			}
		})
		require.Greater(t, deltas, p.s.o.CacheBytes/2)
		require.Less(t, deltas, p.s.o.CacheBytes)
		require.Less(t, frames, 2*p.s.o.CacheBytes)
		tx := p.reader()
		p.requireRows(tx, p.rows)
		tx.Rollback()
	})
}

// TestACheckpointVerifiesTheBasesOfDeltas: a page that was damaged on the disk meanwhile is not
// written anew with a valid checksum.
func TestACheckpointVerifiesTheBasesOfDeltas(t *testing.T) {
	fs := vfs.NewMemory()
	s := mustOpen(t, Options{FS: fs, CacheBytes: 512 << 10, CheckpointBytes: 1 << 30})
	p := &deltaTest{t, s, map[string]string{}, rand.New(rand.NewPCG(1, 2))}
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	p.put(10000)
	require.NoError(t, s.Checkpoint(t.Context()))
	p.put(100)
	base := s.reclaimer.waiting[unmerged].oldest().id
	f, err := fs.Open("/a.ebb", vfs.Write)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{0xff}, int64(base)*4096+4000)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	err = s.Checkpoint(t.Context())
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.ErrorContains(t, err, fmt.Sprintf("page %d", base))
	_ = s.Close()
	_, err = Open("/a.ebb", Options{FS: fs})
	require.ErrorIs(
		t,
		err,
		badfile.ErrCorrupt,
		"the state that the log begins with is damaged, and no other has taken its place",
	)
}

// TestRowsAtRandomBesideCheckpoints is a load of which each part finds another one being written.
func TestRowsAtRandomBesideCheckpoints(t *testing.T) {
	racetest.NotQuick(t)
	for name, open := range deltaModes {
		t.Run(name, func(t *testing.T) {
			fs, path := open(t)
			s := openTest(t, path, Options{FS: fs, CacheBytes: 1 << 20})
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
			perm := rand.New(rand.NewPCG(1, 2)).Perm(40000)
			var most int64
			for at := 0; at < len(perm); at += 100 {
				update(t, s, func(tx *Tx) {
					for bunch := range slices.Chunk(perm[at:at+100], 10) {
						var changes []Change
						for _, i := range bunch {
							key := binary.BigEndian.AppendUint64(nil, uint64(i)*0x9E3779B97F4A7C15)
							changes = append(changes, Change{Key: key, Value: make([]byte, 100)})
						}
						require.NoError(t, tx.Apply(9, changes, nil))
					}
					most = max(most, s.pg.Pool.DeltaBytes())
				})
				if at%4000 == 0 {
					requireSound(t, s)
				}
			}
			require.Greater(t, most, int64(100<<10))
			require.Greater(t, s.checkpointer.count.Load(), uint64(3))
		})
	}
}
