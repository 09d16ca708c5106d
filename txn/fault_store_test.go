package txn

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// imageOf is what a killed process leaves of a disk: a disk of its own for each test.
func imageOf(t *testing.T, disk *crashfs.Disk) *crashfs.Image {
	t.Helper()
	for im := range disk.Images(crashfs.ImageOptions{Profiles: crashfs.Kill, From: disk.Len()}) {
		return im
	}
	require.Fail(t, "no image")
	return nil
}

// smallOptions are testOptions with the smallest cache, and checkpoints only where a test asks for
// one.
func smallOptions(disk *crashfs.Disk) Options {
	o := testOptions(disk)
	o.CacheBytes, o.CheckpointBytes = 1, 1<<30
	return o
}

// wideRows are n rows of half a kilobyte.
func wideRows(n int) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for i := range n {
			if !yield(fmt.Appendf(nil, "%08d", i), make([]byte, 500)) {
				return
			}
		}
	}
}

// someTrees makes a store with an empty tree 8, and a tree 9 of wide rows.
const someRows = 3000

func someTrees(t *testing.T) (s *Store, disk *crashfs.Disk) {
	t.Helper()
	disk = crashfs.New(crashfs.Options{})
	s, err := Open("/a.ebb", smallOptions(disk))
	require.NoError(t, err)
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(8))
		require.NoError(t, tx.Create(9))
		for key, value := range wideRows(someRows) {
			mustPut(t, tx, 9, key, value, 0)
		}
	})
	return s, disk
}

// rowsOf counts the rows of both trees.
func rowsOf(t *testing.T, s *Store) [2]int {
	t.Helper()
	tx := begin(t, s, false)
	defer tx.Rollback()
	return [2]int{len(contents(t, tx, 8)), len(contents(t, tx, 9))}
}

// readsAndChanges are the two kinds of calls that the tests below fail, one after the other.
var readsAndChanges = map[string]crashfs.Fault{
	"read": {Kinds: crashfs.KindRead}, "change": {Kinds: crashfs.KindChanges},
}

// after is which call fails next: each of the first eight, then fewer and fewer.
func after(n int) int { return n + 1 + n/racetest.Sample(8, 3) }

// TestFailingCallOfAHeavySession fails the n-th read, and the n-th change of the disk, of a session
// that loads a tree, commits values of more than a part of the log, deletes most of a tree, and
// packs the file when it is closed. Whatever call it hits gives that error, and takes it for no
// damage. Opened again, the store holds what had returned, and no half of anything.
func TestFailingCallOfAHeavySession(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	s, disk := someTrees(t)
	require.NoError(t, s.Close())
	im := imageOf(t, disk)
	states := [][2]int{{0, someRows}, {1500, someRows}, {1500, someRows + 2}, {1500, 102}}
	session := func(s *Store) (done int, err error) {
		if _, err = s.bulkLoad(t.Context(), nil, 8, wideRows(states[1][0])); err != nil {
			return 0, err
		}
		for i, fill := range []func(tx *Tx) error{
			func(tx *Tx) error {
				for _, key := range []string{"large", "larger"} {
					if _, err := tx.Put(9, []byte(key), make([]byte, redoChunk), 0); err != nil {
						return err
					}
				}
				return nil
			},
			func(tx *Tx) error { _, err := tx.DeleteRange(9, []byte("00000100"), []byte("1")); return err },
		} {
			tx, err := s.Begin(t.Context(), true)
			if err != nil {
				return i + 1, err
			}
			defer tx.Rollback()
			if err := fill(tx); err != nil {
				return i + 1, err
			}
			if err := tx.Commit(Sync); err != nil {
				return i + 1, err
			}
		}
		return 3, nil
	}
	for name, fault := range readsAndChanges {
		t.Run(name, func(t *testing.T) {
			n := 0
			for ; ; n = after(n) {
				disk := im.Disk(crashfs.Options{})
				s := mustOpen(t, smallOptions(disk))
				fault.N = n
				in := disk.Inject(fault)
				done, err := session(s)
				for _, err := range []error{err, s.Close()} {
					if err != nil {
						require.ErrorIs(t, err, crashfs.ErrIO, "%s %d", name, n)
						require.NotErrorIs(t, err, badfile.ErrCorrupt, "%s %d", name, n)
					}
				}
				in.Disarm()
				if in.Fired() == 0 {
					require.Equal(t, 3, done)
					break
				}
				s, err = Open("/a.ebb", smallOptions(disk))
				require.NoError(t, err, "%s %d", name, n)
				rows := rowsOf(t, s)
				require.Contains(
					t,
					states[done:min(done+2, len(states))],
					rows,
					"%s %d: %d commits had returned",
					name,
					n,
					done,
				)
				requireSound(t, s)
				require.NoError(t, s.Close())
			}
			require.Greater(t, n, 10)
		})
	}
}

// TestFailingCallOfARecovery fails the n-th read, and the n-th change of the disk, of a recovery of
// more than the cache holds: Open gives that error, and the next one finds everything. A read of a
// page that may hold several rows of a run is repeated for the first of them.
func TestFailingCallOfARecovery(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	s, disk := someTrees(t)
	im := imageOf(t, disk)
	require.NoError(t, s.Close())
	for name, fault := range readsAndChanges {
		t.Run(name, func(t *testing.T) {
			n, calls, repeated := 0, 0, 0
			for ; ; n = after(n) {
				calls++
				disk := im.Disk(crashfs.Options{})
				fault.N = n
				in := disk.Inject(fault)
				s, err := Open("/a.ebb", smallOptions(disk))
				in.Disarm()
				if in.Fired() > 0 && name == "read" && err == nil {
					repeated++
				} else if in.Fired() > 0 {
					require.ErrorIs(t, err, crashfs.ErrIO, "%s %d", name, n)
					require.NotErrorIs(t, err, badfile.ErrCorrupt, "%s %d", name, n)
					s, err = Open("/a.ebb", smallOptions(disk))
				}
				require.NoError(t, err, "%s %d", name, n)
				require.Equal(t, [2]int{0, someRows}, rowsOf(t, s), "%s %d", name, n)
				requireSound(t, s)
				require.NoError(t, s.Close())
				if in.Fired() == 0 {
					break
				}
			}
			require.Greater(t, n, 20)
			require.Less(t, repeated, 1+calls/5)
		})
	}
}

// TestCheckReportsAReadError: a check that could not read everything returns an error, not a clean
// result.
func TestCheckReportsAReadError(t *testing.T) {
	s, disk := someTrees(t)
	require.NoError(t, s.Close())
	n := 0
	for ; ; n = after(n) {
		s := mustOpen(t, smallOptions(disk))
		in := disk.Inject(crashfs.Fault{Kinds: crashfs.KindRead, N: n})
		reported := 0
		s.Check(t.Context(), func(p Problem) bool {
			if reported == 0 {
				require.Contains(t, p.Detail, crashfs.ErrIO.Error(), "read %d", n)
			}
			reported++
			return true
		})
		in.Disarm()
		require.NoError(t, s.Close())
		if in.Fired() == 0 {
			require.Zero(t, reported)
			break
		}
		require.NotZero(t, reported, "read %d", n)
	}
	require.Greater(t, n, 300, "every page is read")
}

// TestCursorOfAWriteReturnsAReadError when it finds its row again, and when the value is outside the
// tree.
func TestCursorOfAWriteReturnsAReadError(t *testing.T) {
	for name, look := range map[string]func(c *Cursor) bool{
		"value": func(c *Cursor) bool { return c.Value() != nil },
		"tag":   func(c *Cursor) bool { return c.Tag() != 0 },
		"next":  func(c *Cursor) bool { return c.Next() },
		"large": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s, disk := someTrees(t)
			update(t, s, func(tx *Tx) {
				mustPut(t, tx, 8, []byte("k"), make([]byte, 10_000), 5)
			})
			tx := begin(t, s, true)
			c := tx.Cursor(8)
			if name == "large" {
				require.True(t, c.First())
				look = func(c *Cursor) bool { return c.Value() != nil }
			} else {
				c = tx.Cursor(9)
				require.True(t, c.First())
				// The cursor's page is written early, and goes from the cache.
				for key, value := range wideRows(someRows) {
					mustPut(t, tx, 9, key, value[1:], 0)
				}
			}
			in := disk.Inject(crashfs.Fault{Kinds: crashfs.KindRead, Sticky: true})
			require.False(t, look(c))
			require.ErrorIs(t, c.Err(), crashfs.ErrIO)
			require.False(t, c.Valid())
			require.ErrorIs(t, tx.Err(), crashfs.ErrIO, "the transaction gives nothing else")
			in.Disarm()
			tx.Rollback()
			require.NoError(t, s.Close())
		})
	}
}

// problems are the problems that Check reports of a store, by kind.
func problems(t *testing.T, s *Store) map[string][]uint64 {
	found := map[string][]uint64{}
	s.Check(t.Context(), func(p Problem) bool {
		found[p.Kind] = append(found[p.Kind], p.Page)
		return true
	})
	return found
}

// TestCheckComparesTheFreeMapWithTheTrees counts a page of a tree as free, and a free page as in
// use.
func TestCheckComparesTheFreeMapWithTheTrees(t *testing.T) {
	s, _ := someTrees(t)
	update(t, s, func(tx *Tx) { // so that pages are free
		_, err := tx.DeleteRange(9, []byte("00001000"), nil)
		require.NoError(t, err)
	})
	for range 2 {
		require.NoError(t, s.Checkpoint(t.Context()))
	}
	root, _ := s.head.trees.get(9)
	lost, ok := pager.Pgid(0), false
	for id := pager.Pgid(2); uint64(id) < s.pg.Alloc.Pages() && !ok; id++ {
		used, err := s.pg.Alloc.InUse(id)
		require.NoError(t, err)
		lost, ok = id, !used
	}
	require.True(t, ok, "some page is free")
	require.NoError(t, s.pg.Commit(lost, 1))
	require.NoError(t, s.pg.Alloc.Freed(root.Root.Pgid, 1))
	want := map[string][]uint64{"leak": {uint64(lost)}, "free": {uint64(root.Root.Pgid)}}
	require.Equal(t, want, problems(t, s))

	// Check stops when its callback returns false, and returns the error of an ended context.
	reported := 0
	s.Check(t.Context(), func(Problem) bool { reported++; return false })
	require.Equal(t, 1, reported)
	ctx, cancel := context.WithCancel(t.Context())
	var kinds []string
	s.Check(ctx, func(p Problem) bool {
		cancel()
		kinds = append(kinds, p.Kind)
		return true
	})
	require.Equal(t, "incomplete", kinds[len(kinds)-1])

	_ = s.fail(errors.New("the test has broken it"))
	require.ErrorIs(t, s.Close(), ErrFailed)
}

// TestPageThatTwoTreesShareIsDamage: two rows of a forged tree table name the same root. Check
// reports it, and the commit that frees the pages a second time is refused, also when they have
// become another tree's pages meanwhile: that tree stays whole.
func TestPageThatTwoTreesShareIsDamage(t *testing.T) {
	s, disk := someTrees(t)
	update(t, s, func(tx *Tx) {
		shared, _ := tx.w.trees.get(9)
		tx.w.set(8, shared)
		tx.w.dirty = true
	})
	require.NoError(t, s.Close())
	s, err := Open("/a.ebb", smallOptions(disk))
	require.NoError(t, err)
	root, _ := s.head.trees.get(9)
	require.Equal(t, map[string][]uint64{"twice": {uint64(root.Root.Pgid)}}, problems(t, s))
	stopped := 0
	s.Check(t.Context(), func(Problem) bool { stopped++; return false })
	require.Equal(t, 1, stopped)
	put := func(id TreeID) error {
		tx := begin(t, s, true)
		mustPut(t, tx, id, []byte("00000000"), nil, 0)
		return tx.Commit(Sync)
	}
	require.NoError(t, put(8))
	require.ErrorIs(t, put(9), badfile.ErrCorrupt)
	require.NoError(t, s.Failed())

	update(t, s, func(tx *Tx) { require.NoError(t, tx.Drop(8)) })
	for range 3 { // Two and what comes after them: no page waits any more.
		require.NoError(t, s.Checkpoint(t.Context()))
		update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(TreeID(20+s.Stats().Checkpoints))) })
	}
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(10))
		for i := range 2000 {
			mustPut(t, tx, 10, fmt.Appendf(nil, "%08d", i), make([]byte, 40), 0)
		}
	})
	for name, change := range map[string]func(tx *Tx) error{
		"clear": func(tx *Tx) error { return tx.Clear(9) },
		"range": func(tx *Tx) error { _, err := tx.DeleteRange(9, nil, []byte("00000400")); return err },
		"put":   func(tx *Tx) error { _, err := tx.Put(9, []byte("00000000"), nil, 0); return err },
	} {
		tx := begin(t, s, true)
		if err = change(tx); err == nil && name != "clear" {
			err = tx.Commit(Sync)
		}
		if name != "clear" {
			require.ErrorIs(t, err, badfile.ErrCorrupt, name)
		}
		tx.Rollback()
	}
	require.NoError(t, s.Failed())
	tx := begin(t, s, false)
	require.Len(t, contents(t, tx, 10), 2000)
	tx.Rollback()
	_ = s.Close()
}

// TestTreeTableRowOutsideItsLeafIsCorrupt: a row of the table is 24 bytes. One so long that it lies
// in an extent is read, as every value is, and refused.
func TestTreeTableRowOutsideItsLeafIsCorrupt(t *testing.T) {
	s, disk := someTrees(t)
	s.w.begin()
	_, err := tree.Put(&s.w, &s.table, treeKey(7), make([]byte, 5000), 0)
	require.NoError(t, err)
	s.w.publishMaintenance()
	require.NoError(t, s.Close())
	_, err = Open("/a.ebb", smallOptions(disk))
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.ErrorContains(t, err, "tree table row of 5000 bytes")
}

// TestDamagedFreeMapPageIsNamed by a check, which reads what the open store has no need to read
// again.
func TestDamagedFreeMapPageIsNamed(t *testing.T) {
	s, disk := someTrees(t)
	require.NoError(t, s.Checkpoint(t.Context()))
	refs := s.pg.Alloc.SpacePages()
	require.NotEmpty(t, refs)
	f, err := disk.Open("/a.ebb", vfs.Write)
	require.NoError(t, err)
	var b [1]byte
	for _, ref := range refs {
		at := int64(ref.Pgid)*4096 + 100
		require.NoError(t, vfs.ReadFull(f, b[:], at))
		b[0] ^= 0xff
		require.NoError(t, vfs.WriteFull(f, b[:], at))
		require.Equal(t, map[string][]uint64{"page": {uint64(ref.Pgid)}}, problems(t, s))
		reported := 0
		s.Check(t.Context(), func(Problem) bool { reported++; return false })
		require.Equal(t, 1, reported)
		b[0] ^= 0xff
		require.NoError(t, vfs.WriteFull(f, b[:], at))
	}
	require.NoError(t, f.Close())
	require.Empty(t, problems(t, s))
	require.NoError(t, s.Close())
}
