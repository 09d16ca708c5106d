package kv_test

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
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
