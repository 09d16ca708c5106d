package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
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
	tx, err := s.Begin(nil, true)
	require.NoError(t, err)
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
	tx, err := s.Begin(nil, false)
	require.NoError(t, err)
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
	tx, err := s.Begin(nil, false)
	require.NoError(t, err)
	defer tx.Rollback()
	return int(tx.Rows(CatalogTree))
}

// TestRowsInOrderAreWrittenOnce: most of them are in leaves that the log names, and these are no
// pages that a checkpoint writes.
func TestRowsInOrderAreWrittenOnce(t *testing.T) {
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
		require.Less(t, s.pg.DirtyBytes(), int64(40*DefaultPageSize))
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
		require.True(t, tx.w.parallel.useful)
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
			require.Greater(t, tx.w.refBytes, int64(20*DefaultPageSize), name)
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
		_, err := tx.Put(CatalogTree, changes[500].Key, inOrder(n+500, 1)[0].Value, inOrder(n+500, 1)[0].Tag)
		require.NoError(t, err)
	})
	requireRows(t, s, n+1000)
}

// TestLeafRunsAfterACrash crashes a session at each of its steps: recovery finds the durable rows, or
// a later commit's version, and a killed process leaves all of them.
func TestLeafRunsAfterACrash(t *testing.T) {
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
	images, oneOf := 0, 30
	if racetest.Quick() {
		oneOf = 300
	}
	for im := range disk.Images(crashfs.ImageOptions{Profiles: crashfs.AllProfiles, From: states[1].from - 20, OneOf: func(p crashfs.Profile) int {
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
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CheckpointBytes = 1 << 30
	s := openTest(t, "/a.ebb", o)
	n := 0
	change := func(tx *Tx, from, to int) {
		for i := from; i < to; i += 10 {
			c := inOrder(i, 1)[0]
			_, err := tx.Put(CatalogTree, c.Key, []byte("changed"), 0)
			require.NoError(t, err)
			_, err = tx.Delete(CatalogTree, c.Key)
			require.NoError(t, err)
			_, err = tx.Put(CatalogTree, c.Key, c.Value, c.Tag)
			require.NoError(t, err)
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

// TestDamagedLeafRuns damages leaves in the file: for a durable record that is damage, for another
// one the end of the log.
func TestDamagedLeafRuns(t *testing.T) {
	for _, test := range []struct {
		name  string
		syncs func(s *Store) error
		hurt  int // which of the batches
		left  int // of them; -1: damage
	}{
		{"sound", nil, -1, 3},
		{"last", nil, 2, 2},
		{"second", nil, 1, 1},
		{"durable", func(s *Store) error { return s.Sync() }, 2, -1},
		{"in an earlier segment", func(s *Store) error { return afterRotate(s, nil) }, 1, 1},
		{"in an earlier segment that is durable", func(s *Store) error { return afterRotate(s, s.log.Sync) }, 1, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			disk := vfs.NewMemory()
			o := testOptions(disk)
			o.CheckpointBytes, o.NoMap = 1<<30, true
			s, err := Open("/a.ebb", o)
			require.NoError(t, err)
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Apply(CatalogTree, inOrder(0, 50), nil)) })
			var first []pager.Pgid
			for i := range 3 {
				relaxed(t, s, func(tx *Tx) {
					at := tx.w.allocated.len()
					require.NoError(t, tx.Apply(CatalogTree, inOrder(50+300*i, 300), nil))
					tx.w.allocated.each(at, func(r pageRun) bool {
						if s.pg.Owner(r.id) == tx.w.firstOwner {
							first = append(first, r.id)
							return false
						}
						return true
					})
				})
			}
			require.Len(t, first, 3)
			if test.syncs != nil {
				require.NoError(t, test.syncs(s))
			}
			image := testOptions(copyFiles(t, disk))
			image.CheckpointBytes = 1 << 30
			_ = s.fail(errors.New("over"))
			require.Error(t, s.Close())
			if test.hurt >= 0 {
				f, err := image.FS.Open("/a.ebb", vfs.Write)
				require.NoError(t, err)
				_, err = f.WriteAt([]byte{0xff}, int64(first[test.hurt]+1)*DefaultPageSize+3000)
				require.NoError(t, err)
				require.NoError(t, f.Close())
			}
			for _, readOnly := range []bool{true, false} {
				image.ReadOnly = readOnly
				again, err := Open("/a.ebb", image)
				if test.left < 0 {
					require.ErrorIs(t, err, badfile.ErrCorrupt)
					continue
				}
				require.NoError(t, err)
				requireRows(t, again, 50+300*test.left)
				if test.left < 3 {
					require.Positive(t, again.Recovery().BytesDropped)
				}
				requireSound(t, again)
				require.NoError(t, again.Close())
			}
		})
	}
}

// TestLeafRunsInThePageCacheOnly: the sync of the main file fails, and the process exits. The next
// process in the same boot reads leaves that the disk does not have, and that no later sync would
// write: the rows that it shows stay nevertheless.
func TestLeafRunsInThePageCacheOnly(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CheckpointBytes = 1 << 30
	s, err := Open("/a.ebb", o)
	require.NoError(t, err)
	appendRows(t, s, 0, 50)
	require.Positive(t, appendRows(t, s, 50, 300))
	failed := disk.Inject(crashfs.Fault{Do: crashfs.Gate})
	require.ErrorIs(t, s.Sync(), crashfs.ErrIO)
	failed.Disarm()
	require.Error(t, s.Close())
	s = openTest(t, "/a.ebb", o)
	n := rows(t, s)
	require.Equal(t, 350, n, "nothing was lost yet")
	onCrash(t, disk, o, 3, func(s *Store) { requireRows(t, s, n) })
}

// TestInvalidLeafReferencesInTheLog replays forged records that reference existing leaves.
func TestInvalidLeafReferencesInTheLog(t *testing.T) {
	buildLeaf := func(t *testing.T, s *Store, fill func(b []byte)) (ref pager.Ref, sums []byte) {
		b := make([]byte, s.PageSize())
		pager.WriteHeader(b, pager.Header{Kind: pager.KindLeaf})
		fill(b)
		ref, err := s.pg.WriteLeafRun(s.epoch, 1, b, true)
		require.NoError(t, err)
		return ref, binary.LittleEndian.AppendUint64(nil, pager.Checksum(b))
	}
	for name, test := range map[string]struct {
		fill func(b []byte)
		more func(payload []byte, ref pager.Ref, sums []byte) []byte
		want string
	}{
		"sound":      {fill: func(b []byte) { tree.FillLeaf(b, inOrder(1, 10)) }},
		"not behind": {fill: func(b []byte) { tree.FillLeaf(b, inOrder(0, 10)) }, want: "not behind"},
		"empty":      {fill: func(b []byte) { binary.LittleEndian.PutUint32(b[24:], uint32(len(b))) }, want: "leaf"},
		"a branch":   {fill: func(b []byte) { pager.WriteHeader(b, pager.Header{Kind: pager.KindBranch, Level: 1}) }, want: "page"},
		"twice": {fill: func(b []byte) { tree.FillLeaf(b, inOrder(1, 10)) }, want: "in use", more: func(b []byte, ref pager.Ref, sums []byte) []byte {
			return appendLeaves(b, CatalogTree, ref, sums)
		}},
		"no tree": {fill: func(b []byte) { tree.FillLeaf(b, inOrder(1, 10)) }, want: "tree", more: func(b []byte, ref pager.Ref, sums []byte) []byte {
			return appendLeaves(b[:redoHead], 77, ref, sums)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMemory()
			o := testOptions(disk)
			o.CheckpointBytes = 1 << 30
			s, err := Open("/a.ebb", o)
			require.NoError(t, err)
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Apply(CatalogTree, inOrder(0, 1), nil)) })
			require.NoError(t, s.Checkpoint(t.Context()))
			ref, sums := buildLeaf(t, s, test.fill)
			payload := appendLeaves(nextRedo(s), CatalogTree, ref, sums)
			if test.more != nil {
				payload = test.more(payload, ref, sums)
			}
			again, err := openForged(t, s, disk, payload)
			if test.want != "" {
				require.ErrorIs(t, err, badfile.ErrCorrupt)
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			requireRows(t, again, 11)
			require.NoError(t, again.Close())
		})
	}
}

// TestLeafRunsAreFreed: those of a rolled back transaction, and those of deleted rows.
func TestLeafRunsAreFreed(t *testing.T) {
	o := testOptions(vfs.NewMemory())
	o.CheckpointBytes, o.CacheBytes = 1<<30, 8<<20
	s := openTest(t, "/a.ebb", o)
	appendRows(t, s, 0, 500)
	pages, used := s.pg.Pages(), s.pg.UsedPages()
	for range 20 {
		tx, err := s.Begin(nil, true)
		require.NoError(t, err)
		tx.SetDurability(NoSync)
		require.NoError(t, tx.Apply(CatalogTree, inOrder(500, 1000), nil))
		require.Positive(t, tx.w.refBytes)
		tx.Rollback()
	}
	require.Equal(t, used, s.pg.UsedPages())
	require.InDelta(t, pages, s.pg.Pages(), 100)
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
			pages = s.pg.Pages()
		}
	}
	require.InDelta(t, pages, s.pg.Pages(), 30)
	requireRows(t, s, 1500)
}

// TestRepeatedLeafReferencesInTheLog is refused before all of it is read: each time costs a page.
func TestRepeatedLeafReferencesInTheLog(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	s := openTest(t, "/a.ebb", o)
	appendRows(t, s, 0, 1)
	require.NoError(t, s.lockWriter(t.Context()))
	s.w.begin()
	b := make([]byte, s.pg.PageSize())
	pager.WriteHeader(b, pager.Header{Kind: pager.KindLeaf})
	ref, err := s.pg.WriteLeafRun(s.epoch, s.w.firstOwner, b, true)
	require.NoError(t, err)
	payload := append(binary.LittleEndian.AppendUint64(nil, s.head.seq+1), make([]byte, 8)...)
	for range s.pg.FileBytes()/int64(s.pg.PageSize()) + 1 {
		payload = appendLeaves(payload, CatalogTree, ref, binary.LittleEndian.AppendUint64(nil, pager.Checksum(b)))
	}
	end, err := s.log.Append(append(payload, 255), true) // An operation that does not decode comes last.
	require.NoError(t, err)
	require.NoError(t, s.log.Wait(end, true))
	s.unlockWriter()
	o.FS = imageOf(t, disk).Disk(crashfs.Options{})
	_, err = Open("/a.ebb", o)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.ErrorContains(t, err, "more leaves than the file has pages")
}
