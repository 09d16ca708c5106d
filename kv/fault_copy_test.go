package kv_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// files are the contents of all files of a directory, by name. Equal contents of two moments are
// one slice.
type files map[string][]byte

// filesOf reads a directory. What is as it was before is taken from there.
func filesOf(t *testing.T, fsys vfs.FS, before files) files {
	t.Helper()
	names, err := fsys.List("dir")
	require.NoError(t, err)
	all := files{}
	for _, name := range names {
		f, err := fsys.Open("dir/"+name, 0)
		require.NoError(t, err)
		size, err := f.Size()
		require.NoError(t, err)
		b := make([]byte, size)
		if size > 0 {
			require.NoError(t, vfs.ReadFull(f, b, 0))
		}
		require.NoError(t, f.Close())
		if old, ok := before[name]; ok && bytes.Equal(old, b) {
			b = old
		}
		all[name] = b
	}
	return all
}

// disk makes a file system of files.
func (fs files) disk(t *testing.T) vfs.FS {
	t.Helper()
	disk := vfs.NewMemory()
	for name, b := range fs {
		f, err := disk.Open("dir/"+name, vfs.Write|vfs.Create)
		require.NoError(t, err)
		require.NoError(t, vfs.WriteFull(f, b, 0))
		require.NoError(t, f.Close())
	}
	return disk
}

// hash tells two sets of files apart.
func (fs files) hash(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, name := range slices.Sorted(maps.Keys(fs)) {
		_, _ = fmt.Fprintf(&h, "%s %d ", name, len(fs[name])) // a hash cannot fail
		_, _ = h.Write(fs[name])
	}
	return h.Sum64()
}

// A copier takes the files that were listed first, one after the other, while the store goes on;
// moments are the directory as it was whenever the copier went on.
type copier struct {
	name string
	copy func(moments []files) files
}

const mainFile = "test.ebb"

var copiers = []copier{
	{"main_file_first", func(m []files) files {
		all := segmentsAt(m[0], m[1:])
		all[mainFile] = m[0][mainFile]
		return all
	}},
	{"main_file_last", func(m []files) files {
		all := segmentsAt(m[0], m)
		all[mainFile] = m[len(m)-1][mainFile]
		return all
	}},
	{"newest_segment_first", func(m []files) files {
		all := segmentsAt(m[0], reversed(m))
		all[mainFile] = m[len(m)-1][mainFile]
		return all
	}},
	{"main_file_page_by_page", func(m []files) files {
		all := segmentsAt(m[0], m[len(m)-1:])
		all[mainFile] = inTurn(m)
		return all
	}},
	{"main_file_page_by_page_from_its_end", func(m []files) files {
		all := segmentsAt(m[0], m[len(m)-1:])
		all[mainFile] = inTurn(reversed(m))
		return all
	}},
}

func reversed(m []files) []files {
	m = slices.Clone(m)
	slices.Reverse(m)
	return m
}

// segmentsAt copies the segments of a listing, the i-th as it is at the i-th moment; one that is
// gone by then is missing.
func segmentsAt(listing files, moments []files) files {
	var names []string
	for name := range listing {
		if name != mainFile {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	all := files{}
	for i, name := range names {
		if b, ok := moments[min(i, len(moments)-1)][name]; ok {
			all[name] = b
		}
	}
	return all
}

// inTurn takes the first pages of the main file from the first moment, the next ones from the next
// moment.
func inTurn(moments []files) []byte {
	const page = 4096
	var all []byte
	for i, m := range moments {
		main := m[mainFile]
		end := len(main)
		if i < len(moments)-1 {
			end = len(main) / page * (i + 1) / len(moments) * page
		}
		if end > len(all) {
			all = append(all, main[len(all):end]...)
		}
	}
	return all
}

// TestCopyOfAnOpenStoreIsRightOrCorrupt copies the files of an open store, in several orders, with
// the calls of a session between them: the copy opens and has a committed state, or it is ErrCorrupt,
// at Open or where it is read.
func TestCopyOfAnOpenStoreIsRightOrCorrupt(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	states := sessionStates(t)
	disk := vfs.NewMemory()
	var trace []files
	fsys := &hookFS{disk, func(call, name string) error {
		if changes(call) {
			var before files
			if len(trace) > 0 {
				before = trace[len(trace)-1]
			}
			trace = append(trace, filesOf(t, disk, before))
		}
		return nil
	}}
	s, err := openSession(fsys)
	require.NoError(t, err)
	created := len(trace)
	require.NoError(t, s.run())
	trace = append(trace, filesOf(t, disk, nil))
	right, corrupt := 0, 0
	seed, seen := maphash.MakeSeed(), map[uint64]bool{}
	for at := created; at < len(trace); at += stride(5) {
		for _, pace := range []int{0, 1, 2, 5, 11, 29, 61} {
			moments := []files{}
			for i := range 5 {
				moments = append(moments, trace[min(at+i*pace, len(trace)-1)])
			}
			for _, c := range copiers {
				why := fmt.Sprintf("%s, from call %d on, %d calls between", c.name, at, pace)
				copied := c.copy(moments)
				if hash := copied.hash(seed); pace == 0 || !seen[hash] {
					seen[hash] = true
				} else {
					continue // Nothing has happened between.
				}
				ok := openCopy(t, copied.disk(t), states, why)
				if ok {
					right++
				} else {
					corrupt++
				}
				if pace == 0 {
					require.True(t, ok, "%s: a copy of one moment", why)
					break // All copiers give the same.
				}
			}
		}
	}
	t.Logf("%d copies are right, %d corrupt", right, corrupt)
	require.NotZero(t, right)
	require.NotZero(t, corrupt, "nothing happened between the files")
}

// openCopy looks at a copy with all means: right, or corrupt.
func openCopy(t *testing.T, fsys vfs.FS, states map[uint64]string, why string) (right bool) {
	t.Helper()
	db, err := reopenAt(fsys, newClock(), nil)
	if err != nil {
		require.ErrorIs(t, err, kv.ErrCorrupt, why)
		return false
	}
	seq, all, err := stored(db)
	if err != nil {
		require.ErrorIs(t, err, kv.ErrCorrupt, why)
	} else {
		require.True(t, states[seq] == all, "%s: commit %d holds something else", why, seq)
	}
	if err := db.Close(); err != nil {
		require.ErrorIs(t, err, kv.ErrCorrupt, why)
		return false
	}
	return err == nil
}

// mixedStore is one store at three times: closed, killed with commits in its log, and killed again
// after checkpoints that
// have cut the log.
type mixedStore struct{ clean, early, late files }

// openMixed opens a store whose random numbers, and so its id, come from salt.
func openMixed(fsys vfs.FS, salt uint64, readOnly bool) (*kv.DB, error) {
	return openfs.Open(fsys, path, &kv.Options{ReadOnly: readOnly}, txn.Options{
		SegmentSize: 16 << 10, NoMap: true, Inline: true,
		Rand: func() uint64 { salt = salt*6364136223846793005 + 1442695040888963407; return salt },
	})
}

// mixedRows reads all rows.
func mixedRows(t *testing.T, db *kv.DB) map[string]string {
	rows := map[string]string{}
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		for key, value := range tx.All() {
			rows[string(key)] = string(value)
		}
		return nil
	}))
	return rows
}

func makeMixed(t *testing.T, salt uint64) (s mixedStore) {
	t.Helper()
	disk := vfs.NewMemory()
	open := func() *kv.DB {
		salt++
		db, err := openMixed(disk, salt, false)
		require.NoError(t, err)
		return db
	}
	put := func(db *kv.DB, from, n int) {
		for i := range n {
			require.NoError(t, db.Put(fmt.Appendf(nil, "row%04d", from+i),
				fmt.Appendf(nil, "store %d", salt>>32)))
		}
	}
	db := open()
	put(db, 0, 10)
	require.NoError(t, db.Close())
	s.clean = filesOf(t, disk, nil)
	db = open()
	put(db, 10, 10)
	s.early = filesOf(t, disk, nil)
	for range 4 {
		put(db, 20, 40)
		require.NoError(t, db.Checkpoint(t.Context()))
	}
	put(db, 60, 5)
	s.late = filesOf(t, disk, nil)
	require.NoError(t, db.Close())
	return s
}

// with gives the main file of one moment beside the log of another.
func (fs files) with(log files) files {
	all := maps.Clone(log)
	all[mainFile] = fs[mainFile]
	return all
}

// idOf is the id of the store as errors name it.
func (fs files) idOf() string {
	return hex.EncodeToString(fs[mainFile][metaStoreID : metaStoreID+16])
}

// TestALogOfAnotherStoreIsNeitherReplayedNorRemoved: the clean main file of another store was copied
// over that of a crashed store, whose log had commits. Open succeeded, and removed the log. Every
// mixture of two stores is refused with both ids and the ways out, and no byte changes.
func TestALogOfAnotherStoreIsNeitherReplayedNorRemoved(t *testing.T) {
	stores := []mixedStore{makeMixed(t, 1<<32), makeMixed(t, 2<<32)}
	moments := func(s mixedStore) map[string]files {
		return map[string]files{"clean": s.clean, "early": s.early, "late": s.late}
	}
	for main := range stores {
		for log := range stores {
			for mainAt, mainFiles := range moments(stores[main]) {
				for logAt, logFiles := range moments(stores[log]) {
					if len(logFiles) == 1 || main == log {
						continue // Without a log it is the main file alone; two times of one store are below.
					}
					for _, readOnly := range []bool{false, true} {
						name := fmt.Sprintf("main_%c_%s/log_%c_%s/read_only_%t", 'A'+main, mainAt,
							'A'+log, logAt, readOnly)
						t.Run(name, func(t *testing.T) {
							mixed := mainFiles.with(logFiles)
							requireForeign(t, mixed, mainFiles.idOf(), logFiles.idOf(), readOnly)
							both := maps.Clone(mixed) // beside a log of its own
							for name, b := range mainFiles {
								if name != mainFile {
									both[strings.Replace(name, "-wal-0", "-wal-1", 1)] = b
								}
							}
							requireForeign(t, both, mainFiles.idOf(), logFiles.idOf(), readOnly)
						})
					}
				}
			}
		}
	}
}

func requireForeign(t *testing.T, mixed files, main, log string, readOnly bool) {
	t.Helper()
	disk := mixed.disk(t)
	_, err := openMixed(disk, 99, readOnly)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	var bad *kv.CorruptError
	require.ErrorAs(t, err, &bad)
	require.Contains(t, bad.File, "-wal-")
	require.ErrorContains(t, err, main)
	require.ErrorContains(t, err, log)
	require.ErrorContains(t, err, "Put back the main file")
	require.Equal(t, mixed, filesOf(t, disk, nil))
}

// TestWhatIsNoSegmentGoesBesideAMainFile: incomplete and retired segments, and those that an undone
// unlink brought back, do not keep a store from opening.
func TestWhatIsNoSegmentGoesBesideAMainFile(t *testing.T) {
	s := makeMixed(t, 3<<32)
	last := slices.Max(slices.Collect(maps.Keys(s.early)))
	for name, b := range map[string][]byte{
		"empty": {}, "zeros": make([]byte, 16<<10), "cut_header": s.early[last][:60],
		"an_older_one_of_its_own": s.early[last],
	} {
		t.Run(name, func(t *testing.T) {
			closed := files{mainFile: closedFrom(t, s.late)[mainFile]}
			closed[mainFile+"-wal-000001"] = b
			if name == "an_older_one_of_its_own" {
				delete(closed, mainFile+"-wal-000001")
				closed[last] = b
			}
			disk := closed.disk(t)
			db, err := openMixed(disk, 98, false)
			require.NoError(t, err)
			require.Len(t, mixedRows(t, db), 65)
			require.NoError(t, db.Close())
			require.Len(t, filesOf(t, disk, nil), 1)
		})
	}
}

// closedFrom opens a store that was killed, and closes it.
func closedFrom(t *testing.T, killed files) files {
	t.Helper()
	disk := killed.disk(t)
	db, err := openMixed(disk, 97, false)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return filesOf(t, disk, nil)
}

// TestMainFileAndLogOfTwoTimesSayWhatToDo: a backup of the main file was put back without removing
// the newer log. Open refused it with "log has to start at LSN 4202496, its segment 1 is missing or
// damaged", and the error did not say how to repair that.
func TestMainFileAndLogOfTwoTimesSayWhatToDo(t *testing.T) {
	s := makeMixed(t, 4<<32)
	clean := closedFrom(t, s.late)
	older := []string{"older copy of " + mainFile + " beside a newer log", "move all files " +
		mainFile + "-wal-* away", "put back the " + mainFile}
	newer := []string{"older log", "beside a newer " + mainFile, "Put back the files " + mainFile + "-wal-*"}
	for _, test := range []struct {
		name  string
		mixed files
		rows  int // 0: refused with the texts
		texts []string
	}{
		{"older_clean_main_newer_log", s.clean.with(s.late), 0, older},
		{"older_killed_main_newer_log", s.early.with(s.late), 0, older},
		{"older_clean_main_next_log", s.clean.with(s.early), 20, nil},
		{"newer_killed_main_older_log", s.late.with(s.early), 0, newer},
		{"killed_main_no_log", files{mainFile: s.late[mainFile]}, 0,
			[]string{"its log is gone", "Put back the files"}},
		{"newer_clean_main_older_log", clean.with(s.early), 65, nil},
	} {
		for _, readOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/read_only_%t", test.name, readOnly), func(t *testing.T) {
				disk := test.mixed.disk(t)
				db, err := openMixed(disk, 96, readOnly)
				if test.rows > 0 {
					require.NoError(t, err)
					require.Len(t, mixedRows(t, db), test.rows)
					require.NoError(t, db.Close())
					return
				}
				require.ErrorIs(t, err, kv.ErrCorrupt)
				for _, text := range test.texts {
					require.ErrorContains(t, err, text)
				}
				require.Equal(t, test.mixed, filesOf(t, disk, nil))
			})
		}
	}
	t.Run("damage_is_another_thing", func(t *testing.T) {
		plain := 0
		for name, b := range s.late {
			damaged := files{mainFile: s.late[mainFile], name: b[:60]}
			_, err := openMixed(damaged.disk(t), 94, true)
			require.ErrorIs(t, err, kv.ErrCorrupt)
			if name != mainFile && !strings.Contains(err.Error(), "Put back") {
				plain++
			}
		}
		require.Equal(t, 1, plain, "the segment that is needed is there, and damaged")
	})
	t.Run("the_ways_out", func(t *testing.T) {
		for _, way := range []files{s.clean, s.late} {
			db, err := openMixed(way.disk(t), 95, false)
			require.NoError(t, err)
			require.NoError(t, db.Close())
		}
	})
}
