package txn

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// limitRun brings a store of small groups to the limit of its free-map directory, and keeps a model
// of what was acknowledged.
type limitRun struct {
	t     *testing.T
	fs    vfs.FS
	o     Options
	s     *Store
	rnd   *rand.Rand
	rows  map[string]int // key -> length of its value
	next  int
	last  error
	tried int // operations refused for want of space
}

func newLimitRun(t *testing.T, seed int64) *limitRun {
	fs := vfs.NewMemory()
	o := testOptions(fs)
	o.SmallGroups, o.CacheBytes, o.CheckpointBytes, o.SegmentSize = true, 8<<20, 4<<20, 256<<10
	r := &limitRun{t: t, fs: fs, o: o, rnd: rand.New(rand.NewSource(seed)), rows: map[string]int{}}
	r.open()
	return r
}

func (r *limitRun) open() {
	var err error
	r.s, err = Open("/a.ebb", r.o)
	require.NoError(r.t, err)
}

// do runs a transaction, and says whether it was committed: if not, then for want of space and
// nothing else.
func (r *limitRun) do(fn func(tx *Tx) error) bool {
	r.t.Helper()
	tx, err := r.s.Begin(nil, true)
	require.NoError(r.t, err)
	if err = fn(tx); err == nil {
		err = tx.Commit(NoSync)
	}
	tx.Rollback()
	if err == nil {
		return true
	}
	require.ErrorIs(r.t, err, ErrNoSpace)
	r.last = err
	require.NoError(r.t, r.s.Failed())
	r.tried++
	return false
}

func (r *limitRun) put(n, size int) bool {
	first := r.next
	done := r.do(func(tx *Tx) error {
		for i := range n {
			if _, err := tx.Put(CatalogTree, fmt.Appendf(nil, "%08d", first+i), make([]byte, size),
				0); err != nil {
				return err
			}
		}
		return nil
	})
	if done {
		for i := range n {
			r.rows[fmt.Sprintf("%08d", first+i)] = size
		}
		r.next += n
	}
	return done
}

func (r *limitRun) delete(n int) {
	var keys []string
	for key := range r.rows {
		if keys = append(keys, key); len(keys) == n {
			break
		}
	}
	done := r.do(func(tx *Tx) error {
		for _, key := range keys {
			if _, err := tx.Delete(CatalogTree, []byte(key)); err != nil {
				return err
			}
		}
		return nil
	})
	if done {
		for _, key := range keys {
			delete(r.rows, key)
		}
	}
}

// fill puts ever less until nothing fits.
func (r *limitRun) fill() {
	for _, size := range []int{1 << 20, 100_000, 10_000, 4_000, 800, 10} {
		for n := 8; n > 0; n /= 4 {
			for r.put(n, size) {
			}
		}
	}
}

func (r *limitRun) requireRows(s *Store) {
	r.t.Helper()
	tx, err := s.Begin(nil, false)
	require.NoError(r.t, err)
	defer tx.Rollback()
	require.Equal(r.t, uint64(len(r.rows)), tx.Rows(CatalogTree))
	for key, size := range r.rows {
		v, _, found, err := tx.Get(CatalogTree, []byte(key))
		require.NoError(r.t, err)
		require.True(r.t, found, key)
		require.Len(r.t, v, size)
	}
}

// requireKept holds a copy of the files, as a killed process leaves them, and the store against the
// model, and the checkpoint that has to be possible.
func (r *limitRun) requireKept() {
	r.t.Helper()
	o := r.o
	o.FS = copyFiles(r.t, r.fs)
	s, err := Open("/a.ebb", o)
	require.NoError(r.t, err, "a copy of the files")
	r.requireRows(s)
	requireSound(r.t, s)
	require.NoError(r.t, s.Close(), "a copy of the files")
	require.NoError(r.t, r.s.Checkpoint(r.t.Context()))
	require.NoError(r.t, r.s.Failed())
	r.requireRows(r.s)
	requireSound(r.t, r.s)
}

// TestAStoreAtTheLimitOfItsDirectoryStaysWhole: a store of many groups was filled to the limit of
// its free-map directory. ErrNoSpace came as it should, but the steps in which the file grows went
// past the limit, and what is kept for the next checkpoint was counted without the groups that it
// adds itself: Checkpoint panicked when it wrote the directory, and so did Open of a copy of the
// files. The rows were out of reach.
//
// What was acknowledged can be checkpointed, closed, recovered and deleted, at the limit as below
// it.
func TestAStoreAtTheLimitOfItsDirectoryStaysWhole(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	seeds := int64(2)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := newLimitRun(t, seed)
			r.fill()
			require.Positive(t, r.tried)
			require.Greater(t, r.s.pg.Alloc.Pages(), r.s.pg.Alloc.MostPages()*9/10,
				"the limit was met, nothing else")
			_, err := r.s.bulkLoad(t.Context(), create(77), 77, rowsUpTo(1_000_000))
			require.ErrorIs(t, err, ErrNoSpace, "a load past the limit")
			require.NoError(t, r.s.Failed())
			r.requireKept()
			for range racetest.Sample(4, 1) {
				r.delete(1 + r.rnd.Intn(len(r.rows)))
				if r.rnd.Intn(2) == 0 {
					require.NoError(t, r.s.Checkpoint(t.Context()))
				}
				r.fill()
				r.requireKept()
				require.NoError(t, r.s.Close())
				r.open()
				r.requireRows(r.s)
			}
			require.True(t, r.do(func(tx *Tx) error {
				_, err := tx.DeleteRange(CatalogTree, nil, nil)
				return err
			}))
			clear(r.rows)
			require.NoError(t, r.s.Checkpoint(t.Context()))
			require.True(
				t,
				r.put(10, 100_000),
				"there is room again: %v; %+v; %d",
				r.last,
				r.s.Stats(),
				r.s.pg.Alloc.UsedPages(),
			)
			require.NoError(t, r.s.Close())
		})
	}
}

// atLimit opens a store and makes it one that has used up all but a few of its numbers.
func atLimit(t *testing.T, age func(s *Store)) *limitRun {
	r := &limitRun{t: t, fs: vfs.NewMemory(), rows: map[string]int{}}
	r.o = testOptions(r.fs)
	r.open()
	require.True(t, r.put(1, 100))
	require.NoError(t, r.s.Close())
	r.open()
	age(r.s)
	return r
}

// requireEndOf puts rows until the numbers are used up: a change is refused then and nothing else,
// and what was acknowledged stays within reach: by a copy of the files, a checkpoint, Close, and
// the next open, which refuses changes as well.
func (r *limitRun) requireEndOf(what string) {
	for range 1000 {
		if !r.put(1, 30_000) {
			break
		}
		require.NoError(r.t, r.s.Checkpoint(r.t.Context()))
	}
	for range 3 {
		require.Positive(r.t, r.tried)
		require.ErrorContains(r.t, r.last, what)
		r.requireKept()
		require.NoError(r.t, r.s.Close())
		r.open()
		r.requireRows(r.s)
		require.False(r.t, r.put(1, 10))
	}
	require.NoError(r.t, r.s.Close())
}

// TestTheLastEpochsAreForCloseAndRecovery: when no epoch was left a checkpoint ended all writing,
// Close could write none, and what the next open wrote was no meta page any more.
func TestTheLastEpochsAreForCloseAndRecovery(t *testing.T) {
	r := atLimit(t, func(s *Store) { s.epoch = lastEpoch - 10 })
	r.requireEndOf("numbers of checkpoints")
	require.Less(t, r.s.epoch, pager.MaxEpoch-1000)
}

// TestTheLastSegmentsAreForTheSession: when no number of a segment was left, the log failed.
func TestTheLastSegmentsAreForTheSession(t *testing.T) {
	r := atLimit(t, func(s *Store) { s.nextSegment = lastSegment - 10 })
	r.requireEndOf("numbers of log segments")
}

// TestTheLastTreeNumbersFailTheCall and nothing else.
func TestTheLastTreeNumbersFailTheCall(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("an int cannot ask for so many numbers")
	}
	r := atLimit(t, func(*Store) {})
	create := func() bool {
		return r.do(func(tx *Tx) error {
			id, err := tx.NewTreeIDs(4)
			if err != nil {
				return err
			}
			return tx.Create(id)
		})
	}
	require.True(t, r.do(func(tx *Tx) error {
		_, err := tx.NewTreeIDs(int(maxTree - tx.w.nextID - 10))
		return err
	}))
	for create() {
	}
	require.ErrorContains(t, r.last, "numbers of trees")
	require.True(t, r.put(1, 100))
	r.requireKept()
	require.NoError(t, r.s.Close())
	r.open()
	require.False(t, create())
	r.requireRows(r.s)
	require.NoError(t, r.s.Close())
}

// TestTheWaitForSpaceEndsWithItsContext, and leaves nothing behind.
func TestTheWaitForSpaceEndsWithItsContext(t *testing.T) {
	o := testOptions(vfs.NewMemory())
	o.MaxBytes, o.Inline = 4<<20, false
	s := openTest(t, "/a.ebb", o)
	putRows(t, s, CatalogTree, "key", 1<<30, 900)
	update(t, s, func(tx *Tx) {
		_, err := tx.DeleteRange(CatalogTree, nil, nil)
		require.NoError(t, err)
	})
	s.checkpointer.mu <- struct{}{} // as a long Check does
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := s.Begin(ctx, true)
		failed <- err
	}()
	for !s.checkpointer.running.Load() {
		runtime.Gosched()
	}
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	<-s.checkpointer.mu
	require.Equal(t, 100, putRows(t, s, CatalogTree, "new", 100, 900))
}

// TestCrashesAtTheLimitOfItsDirectoryLoseNothing takes images of a simulated disk while a store at
// the limit of its free-map directory refuses a put, deletes, checkpoints, puts again and closes.
// Each image opens with the rows of the last durable commit or of the one in flight, is sound, and
// can be checkpointed and closed.
func TestCrashesAtTheLimitOfItsDirectoryLoseNothing(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	r := newLimitRun(t, 7)
	r.fill()
	require.NoError(t, r.s.Close())
	disk := crashfs.New(crashfs.Options{})
	copyFilesTo(t, r.fs, disk)
	r.fs, r.o.FS = disk, disk
	from := disk.Len()
	type state struct {
		point int // the disk had so many operations when the state was durable
		rows  map[string]int
	}
	states := []state{{from, maps.Clone(r.rows)}}
	r.open()
	step := func(fn func()) {
		fn()
		require.NoError(t, r.s.Sync())
		states = append(states, state{disk.Len(), maps.Clone(r.rows)})
	}
	step(func() { require.False(t, r.put(4, 100_000), "the limit") })
	step(func() { r.delete(len(r.rows) / 2) })
	require.NoError(t, r.s.Checkpoint(t.Context()))
	step(func() { require.True(t, r.put(4, 10_000), "%v", r.last) })
	step(func() { r.delete(len(r.rows) / 2) })
	require.NoError(t, r.s.Close())

	images := 120
	if testing.Short() {
		images = racetest.Sample(8, 4)
	}
	every, seen := max(1, 2*(disk.Len()-from)/images), 0
	profiles := crashfs.None | crashfs.Kill
	for im := range disk.Images(crashfs.ImageOptions{Profiles: profiles, From: from, Every: every}) {
		seen++
		o := r.o
		o.FS = im.Disk(crashfs.Options{Untraced: true})
		s, err := Open("/a.ebb", o)
		require.NoError(t, err, "%s", im.Desc())
		last := 0
		for last+1 < len(states) && states[last+1].point <= im.Point {
			last++
		}
		found := &limitRun{t: t, rows: states[last].rows}
		if next := last + 1; next < len(states) && rowCount(t, s) == uint64(len(states[next].rows)) {
			found.rows = states[next].rows
		}
		found.requireRows(s)
		requireSound(t, s)
		require.NoError(t, s.Checkpoint(t.Context()), "%s", im.Desc())
		require.NoError(t, s.Close(), "%s", im.Desc())
	}
	t.Logf("%d images, %d operations, %d rows, %d pages", seen, disk.Len()-from,
		len(states[0].rows), r.s.pg.Alloc.Pages())
	require.GreaterOrEqual(t, seen, images/2)
}

func rowCount(t *testing.T, s *Store) uint64 {
	tx := begin(t, s, false)
	defer tx.Rollback()
	return tx.Rows(CatalogTree)
}
