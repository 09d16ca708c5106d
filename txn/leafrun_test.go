package txn

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// Leaves that the log names.

// inOrder makes n rows from the i-th on, in order: some thirty fill a leaf.
func inOrder(i, n int) []Change {
	changes := make([]Change, n)
	for k := range changes {
		changes[k] = Change{
			Key:   fmt.Appendf(nil, "key %08d", i+k),
			Value: fmt.Appendf(nil, "%0100d", i+k),
			Tag:   int64(i+k) % 3,
		}
	}
	return changes
}

// relaxed commits a transaction that waits for no sync.
func relaxed(t *testing.T, s *Store, fn func(tx *Tx)) {
	t.Helper()
	tx := begin(t, s, true)
	tx.SetDurability(NoSync)
	fn(tx)
	require.NoError(t, tx.Commit(NoSync))
}

// appendRows appends n rows in order from the i-th on, and says how many bytes of leaves the log
// names for that.
func appendRows(t *testing.T, s *Store, i, n int) (named int64) {
	t.Helper()
	relaxed(t, s, func(tx *Tx) {
		was := make([]Info, n)
		was[n-1].Found = true
		require.NoError(t, tx.Apply(CatalogTree, inOrder(i, n), was))
		require.Equal(t, make([]Info, n), was)
		named = tx.w.refBytes
	})
	return named
}

// requireRows holds the store against the first n rows of inOrder.
func requireRows(t *testing.T, s *Store, n int) {
	t.Helper()
	tx := begin(t, s, false)
	defer tx.Rollback()
	c := tx.Cursor(CatalogTree)
	i := 0
	for ok := c.First(); ok; ok = c.Next() {
		want := inOrder(i, 1)[0]
		require.Equal(t, string(want.Key), string(c.Key()))
		require.Equal(t, string(want.Value), string(c.Value()))
		require.Equal(t, want.Tag, c.Tag())
		i++
	}
	require.NoError(t, c.Err())
	require.Equal(t, n, i)
	require.EqualValues(t, n, tx.Rows(CatalogTree))
}

func rows(t *testing.T, s *Store) int {
	t.Helper()
	tx := begin(t, s, false)
	defer tx.Rollback()
	return int(tx.Rows(CatalogTree))
}

// TestRowsInOrderAreWrittenOnce: most of them are in leaves that the log names, and these are no
// pages that a checkpoint writes.
func TestRowsInOrderAreWrittenOnce(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, noMap := range []bool{false, true} {
		o := testOptions(vfs.NewMemory())
		o.CheckpointBytes, o.CacheBytes, o.NoMap = 1<<30, 8<<20, noMap
		s := openTest(t, "/a.ebb", o)
		appendRows(t, s, 0, 100) // the log is not started yet, and there is no last leaf
		before := s.log.End()
		_, written := s.pg.Counters()
		n := 100
		for range 10 {
			named := appendRows(t, s, n, 1000)
			require.Greater(t, named, int64(25*DefaultPageSize))
			n += 1000
			requireRows(t, s, n)
		}
		require.Less(t, int64(s.log.End()-before), int64(10*1000*120/8))
		require.Less(t, s.pg.Alloc.DirtyBytes(), int64(40*DefaultPageSize))
		_, now := s.pg.Counters()
		require.InDelta(t, 10*1000/32, now-written, 30)
		require.NoError(t, s.Checkpoint(t.Context()))
		_, then := s.pg.Counters()
		require.Less(t, then-now, uint64(50))
		requireRows(t, s, n)
	}
}

// TestRowsOutOfOrderArePut: rows that would have to go elsewhere end a run of leaves, and few rows
// make none.
func TestRowsOutOfOrderArePut(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	o := testOptions(vfs.NewMemory())
	o.CheckpointBytes, o.CacheBytes = 1<<30, 8<<20
	s := openTest(t, "/a.ebb", o)
	require.Zero(t, appendRows(t, s, 0, 100))
	require.Zero(t, appendRows(t, s, 100, 100), "less than enough leaves")
	update(t, s, func(tx *Tx) { // waits for a sync
		require.NoError(t, tx.Apply(CatalogTree, inOrder(200, 1000), nil))
		require.Zero(t, tx.w.refBytes)
	})
	relaxed(t, s, func(tx *Tx) { // is there already
		require.NoError(t, tx.Apply(CatalogTree, inOrder(200, 1000), nil))
		require.Zero(t, tx.w.refBytes)
	})
	s.o.ManyFrom, s.o.ManyRows = 100, 100
	relaxed(t, s, func(tx *Tx) { // in order, and anywhere: for several workers
		changes := inOrder(0, 1200)
		require.NoError(t, tx.Apply(CatalogTree, changes, nil))
		require.True(t, tx.w.parallel.applied)
		require.Zero(t, tx.w.refBytes)
	})
	s.o.ManyFrom, s.o.ManyRows = 10_000, 0
	relaxed(t, s, func(tx *Tx) {
		tx.Savepoint()
		require.NoError(t, tx.Apply(CatalogTree, inOrder(1200, 800), nil))
		require.Zero(t, tx.w.refBytes)
	})
	for name, odd := range map[string]Change{
		"back":     {Key: []byte("key 00000001"), Value: inOrder(1, 1)[0].Value, Tag: 1},
		"again":    inOrder(2400, 1)[0],
		"deletion": {Key: []byte("key 9"), Delete: true},
	} {
		n := rows(t, s)
		changes := inOrder(n, 1000)
		if name == "again" {
			odd = changes[499]
		}
		relaxed(t, s, func(tx *Tx) {
			all := append(append(append([]Change(nil), changes[:500]...), odd), changes[500:]...)
			was := make([]Info, len(all))
			require.NoError(t, tx.Apply(CatalogTree, all, was))
			require.Greater(t, tx.w.refBytes, int64(10*DefaultPageSize), name)
			for i, info := range was {
				require.Equal(t, i == 500 && name != "deletion", info.Found, i)
			}
		})
		requireRows(t, s, n+1000)
	}
	for i := range 160 { // in the leaf that is filled up first, and right behind full ones
		at := 500*(i%2) + i/2
		n := rows(t, s)
		changes := inOrder(n, 600)
		changes = append(changes[:at:at], append(inOrder(at, 1), changes[at:]...)...)
		relaxed(t, s, func(tx *Tx) { require.NoError(t, tx.Apply(CatalogTree, changes, nil)) })
		require.Equal(t, n+600, rows(t, s))
	}
	requireRows(t, s, rows(t, s))
	n := rows(t, s)
	relaxed(t, s, func(tx *Tx) { // a large value among them
		changes := inOrder(n, 1000)
		changes[500].Value = long(1)
		require.NoError(t, tx.Apply(CatalogTree, changes, nil))
		require.Greater(t, tx.w.refBytes, int64(20*DefaultPageSize))
		mustPut(t, tx, CatalogTree, changes[500].Key, inOrder(n+500, 1)[0].Value, inOrder(n+500, 1)[0].Tag)
	})
	requireRows(t, s, n+1000)
}

// TestLeafRunsAfterACrash crashes a session at each of its steps: recovery finds the durable rows, or
// a later commit's version, and a killed process leaves all of them.
func TestLeafRunsAfterACrash(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CheckpointBytes = 1 << 30
	s := openTest(t, "/a.ebb", o)
	type state struct{ from, rows, durable int } // from this operation of the disk on
	var states []state
	durable := 0
	note := func() { states = append(states, state{disk.Len(), rows(t, s), durable}) }
	note()
	for i, n := range []int{100, 200, 400, 300, 250} {
		before := rows(t, s)
		require.Equal(t, n >= 200, appendRows(t, s, before, n) > 0)
		note()
		switch i {
		case 1:
			require.NoError(t, s.Sync())
			durable = rows(t, s)
			note()
		case 2: // ends the segment
			_, err := s.log.Rotate()
			require.NoError(t, err)
		case 3:
			require.NoError(t, s.Checkpoint(t.Context()))
			durable = rows(t, s)
			note()
		}
	}
	images, oneOf := 0, 100
	if racetest.Quick() {
		oneOf = 300
	}
	for im := range disk.Images(crashfs.ImageOptions{Profiles: crashfs.AllProfiles,
		From: states[1].from - 20, OneOf: func(p crashfs.Profile) int {
			if p == crashfs.Kill || p == crashfs.None {
				return 1
			}
			return oneOf
		}}) {
		now := state{}
		for _, st := range states {
			if im.Point >= st.from {
				now = st
			}
		}
		o.FS = im.Disk(crashfs.Options{})
		again, err := Open("/a.ebb", o)
		require.NoError(t, err, "%v", im)
		n := rows(t, again)
		requireRows(t, again, n)
		require.GreaterOrEqual(t, n, now.durable, "%v", im)
		if im.Profile == crashfs.Kill {
			require.GreaterOrEqual(t, n, now.rows, "%v", im)
		}
		requireSound(t, again)
		appendRows(t, again, n, 300)
		requireRows(t, again, n+300)
		require.NoError(t, again.Close())
		images++
	}
	require.Greater(t, images, 100)
}

// TestLeafRunsStayUntilACheckpoint changes and deletes rows of leaves that the log references, in the
// transaction that appended them and later, and appends others: none of their pages may be reused
// while a crash can return to records that reference them.
func TestLeafRunsStayUntilACheckpoint(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CheckpointBytes = 1 << 30
	s := openTest(t, "/a.ebb", o)
	n := 0
	change := func(tx *Tx, from, to int) {
		for i := from; i < to; i += 10 {
			c := inOrder(i, 1)[0]
			mustPut(t, tx, CatalogTree, c.Key, []byte("changed"), 0)
			mustDelete(t, tx, CatalogTree, c.Key)
			mustPut(t, tx, CatalogTree, c.Key, c.Value, c.Tag)
		}
	}
	for round := range 3 {
		for range 3 {
			relaxed(t, s, func(tx *Tx) {
				require.NoError(t, tx.Apply(CatalogTree, inOrder(n, 300), nil))
				require.True(t, n == 0 || tx.w.refBytes > 0)
				change(tx, n, n+300)
			})
			n += 300
			update(t, s, func(tx *Tx) { change(tx, max(n-600, 0), n) })
			update(t, s, func(tx *Tx) { // others, in the place of pages that were given up
				_, err := tx.DeleteRange(CatalogTree, inOrder(n-200, 1)[0].Key, nil)
				require.NoError(t, err)
				require.NoError(t, tx.Apply(CatalogTree, inOrder(n-200, 200), nil))
			})
			onCrash(t, disk, o, 7, func(s *Store) { requireRows(t, s, n) })
		}
		if round > 0 {
			require.NoError(t, s.Checkpoint(t.Context()))
		}
	}
}

// afterRotate has the log's segment end, and commits a row to the next one after then.
func afterRotate(s *Store, then func() error) error {
	if _, err := s.log.Rotate(); err != nil {
		return err
	}
	if then != nil {
		if err := then(); err != nil {
			return err
		}
	}
	tx, err := s.Begin(nil, true)
	if err == nil {
		_, err = tx.Put(CatalogTree, []byte("zz"), nil, 0)
	}
	return errors.Join(err, tx.Commit(NoSync))
}

// TestLeafRunsAreFreed: those of a rolled back transaction, and those of deleted rows.
func TestLeafRunsAreFreed(t *testing.T) {
	o := testOptions(vfs.NewMemory())
	o.CheckpointBytes, o.CacheBytes = 1<<30, 8<<20
	s := openTest(t, "/a.ebb", o)
	appendRows(t, s, 0, 500)
	pages, used := s.pg.Alloc.Pages(), s.pg.Alloc.UsedPages()
	for range 20 {
		tx := begin(t, s, true)
		tx.SetDurability(NoSync)
		require.NoError(t, tx.Apply(CatalogTree, inOrder(500, 1000), nil))
		require.Positive(t, tx.w.refBytes)
		tx.Rollback()
	}
	require.Equal(t, used, s.pg.Alloc.UsedPages())
	require.InDelta(t, pages, s.pg.Alloc.Pages(), 100)
	requireRows(t, s, 500)
	appendRows(t, s, 500, 1000)
	requireRows(t, s, 1500)
	for i := range 12 { // of leaves that were named, once a checkpoint has come
		update(t, s, func(tx *Tx) {
			_, err := tx.DeleteRange(CatalogTree, inOrder(500, 1)[0].Key, nil)
			require.NoError(t, err)
		})
		require.Positive(t, appendRows(t, s, 500, 1000))
		require.NoError(t, s.Checkpoint(t.Context()))
		if i == 2 {
			pages = s.pg.Alloc.Pages()
		}
	}
	require.InDelta(t, pages, s.pg.Alloc.Pages(), 30)
	requireRows(t, s, 1500)
}
