package wal

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestSegmentsAreInTheOrderOfTheirNumbers, which is not that of their names when these grow longer.
func TestSegmentsAreInTheOrderOfTheirNumbers(t *testing.T) {
	o := testOptions(newDisk(t, 0))
	log, err := Create(o, 999_998, 1)
	require.NoError(t, err)
	l := &testLog{Log: log, t: t, opts: o, start: log.End()}
	for i := range 4 {
		l.commit(text(i, 100), true)
		l.mustRotate()
	}
	require.NoError(t, l.Close(false))
	found := mustScan(t, o)
	for i, s := range found.Segments() {
		require.EqualValues(t, 999_998+i, s.Number)
	}
	mustReplay(t, o, l.start, l.Durable(), l.commits)
}

// TestSegmentOfAnotherSizeIsForeign: positions in it would mean something else.
func TestSegmentOfAnotherSizeIsForeign(t *testing.T) {
	l, _ := smallLog(t, 512)
	o := l.opts
	o.SegmentSize *= 2
	found := mustScan(t, o)
	require.Empty(t, found.Segments())
	require.Equal(t, []string{o.name(1)}, found.Foreign())
	_, err := found.Replay(l.start, 0, nil)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
}

// noList is a directory that cannot be listed.
type noList struct{ vfs.FS }

func (noList) List(string) ([]string, error) { return nil, errBoom }

func TestRemoveNeedsAListOfTheFiles(t *testing.T) {
	l, _ := smallLog(t, 512)
	o := l.opts
	o.FS = noList{l.opts.FS}
	require.ErrorIs(t, Remove(o), errBoom)
}

// TestNumbersOfSegmentsEnd: no segment is made that no Scan would take for one.
func TestNumbersOfSegmentsEnd(t *testing.T) {
	d := newDisk(t, 512)
	o := testOptions(d)
	l, err := Create(o, MaxSegment, 2)
	require.NoError(t, err)
	writeFile(t, d, fmt.Sprintf("dir/app.ebb-wal-%d", uint64(maxForeign)+1), []byte("not ours"))
	found := mustScan(t, l.opts)
	require.Len(t, found.Segments(), 1)
	require.Empty(t, found.Foreign())
	require.Equal(t, uint64(MaxSegment+1), found.NextNumber())
	require.ErrorIs(t, l.Prepare(), errSegmentNumbers)
	require.Error(t, l.Close(false))
	_, err = Create(o, found.NextNumber(), 2)
	require.ErrorIs(t, err, errSegmentNumbers)
	again := mustScan(t, l.opts)
	require.Equal(t, found.Segments(), again.Segments())
}

func TestRemoveLeavesTheNewLog(t *testing.T) {
	d := newDisk(t, 512)
	l := createTest(t, testOptions(d))
	l.commit("old", true)
	require.NoError(t, l.Prepare())
	require.NoError(t, l.Close(false))
	writeFile(t, d, "dir/app.ebb-wal-000009", []byte("no segment"))
	writeFile(t, d, "dir/app.ebb-wal-9", []byte("not our name"))
	writeFile(t, d, "dir/other.ebb-wal-000001", []byte("not our name"))
	found := mustScan(t, l.opts)
	require.Equal(t, []string{"dir/app.ebb-wal-000009"}, found.Foreign())
	require.Equal(t, uint64(10), found.NextNumber())
	require.Len(t, found.Segments(), 2)
	require.Equal(t, "dir/app.ebb-wal-000001", found.Segments()[0].File)
	fresh, err := Create(l.opts, found.NextNumber(), 2)
	require.NoError(t, err)
	require.NoError(t, found.Chain(l.start), "the fresh segment is like a spare")
	require.NoError(t, found.Remove(found.Obsolete(fresh.End())))
	bases, err := d.List("dir")
	require.NoError(t, err)
	require.Equal(t, []string{"app.ebb-wal-000010", "app.ebb-wal-9", "other.ebb-wal-000001"}, bases)
	require.NoError(t, fresh.Close(false))
	require.NoError(t, Remove(l.opts))
	bases, err = d.List("dir")
	require.NoError(t, err)
	require.Equal(t, []string{"app.ebb-wal-9", "other.ebb-wal-000001"}, bases)
}

func TestChainNamesWhatIsMissing(t *testing.T) {
	build := func(t *testing.T) (*disk, *testLog, LSN) {
		d := newDisk(t, 512)
		l := createTest(t, testOptions(d))
		for i := range 3 {
			l.commit(text(i, 50), true)
			l.mustRotate()
		}
		end := l.commit("last", true)
		require.NoError(t, l.Prepare())
		require.NoError(t, l.Close(false))
		mustReplay(t, l.opts, l.start, end, l.commits)
		return d, l, end
	}
	for number := uint64(1); number <= 4; number++ {
		t.Run(fmt.Sprintf("segment_%d_is_gone", number), func(t *testing.T) {
			d, l, _ := build(t)
			require.NoError(t, d.FS.Remove(l.opts.name(number)))
			_, _, err := replayAll(l.opts, l.start, 0)
			require.ErrorIs(t, err, badfile.ErrCorrupt)
		})
		t.Run(fmt.Sprintf("segment_%d_is_of_another_store", number), func(t *testing.T) {
			d, l, _ := build(t)
			other := testOptions(newDisk(t, 512))
			other.StoreID[0] = 1
			o, err := Create(other, number, 1)
			require.NoError(t, err)
			require.NoError(t, o.Close(false))
			writeFile(t, d.FS, l.opts.name(number), readFile(t, other.FS, l.opts.name(number)))
			_, _, err = replayAll(l.opts, l.start, 0)
			require.ErrorIs(t, err, badfile.ErrCorrupt)
		})
	}
	t.Run("the_spare_is_gone", func(t *testing.T) {
		d, l, end := build(t)
		require.NoError(t, d.FS.Remove(l.opts.name(5)))
		mustReplay(t, l.opts, l.start, end, l.commits)
	})
	t.Run("a_log_of_its_own_comes_after", func(t *testing.T) {
		_, l, end := build(t)
		found := mustScan(t, l.opts)
		fresh, err := Create(l.opts, found.NextNumber(), 2)
		require.NoError(t, err)
		mustReplay(t, l.opts, l.start, end, l.commits)
		lsn, err := fresh.Append([]byte("new"), true)
		require.NoError(t, err)
		require.NoError(t, fresh.Wait(lsn, true))
		_, _, err = replayAll(l.opts, l.start, end)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
		require.NoError(t, fresh.Close(false))
	})
}

// TestSegmentsOfAnotherStoreAreNeverObsolete: they were counted as foreign files, which Open removes.
// They are another store's also with another version, or a number that is not that of their name.
func TestSegmentsOfAnotherStoreAreNeverObsolete(t *testing.T) {
	for name, change := range map[string]func(b []byte){
		"as_it_is":          func([]byte) {},
		"of_a_next_version": func(b []byte) { b[segOffVer]++ },
		"renamed":           func(b []byte) { b[segOffNum]++ },
		"of_another_size":   func(b []byte) { b[segOffSize+2]++ },
	} {
		t.Run(name, func(t *testing.T) {
			l, file := smallLog(t, 512)
			change(file)
			binary.LittleEndian.PutUint64(file[segOffSum:], xxhash.Sum64(file[:segOffSum]))
			d := newDisk(t, 512)
			o := testOptions(d)
			o.StoreID[0] ^= 1
			for _, number := range []uint64{1, maxForeign + 1} {
				writeFile(t, d, o.name(number), file)
			}
			found := mustScan(t, o)
			require.Empty(t, found.Segments())
			require.Empty(t, found.Foreign())
			require.Empty(t, found.Obsolete(First(o.SegmentSize, 100)))
			require.Equal(t, []OtherSegment{
				{File: o.name(1), StoreID: l.opts.StoreID}, {File: o.name(maxForeign + 1),
					StoreID: l.opts.StoreID},
			}, found.OfOtherStores())
			require.EqualValues(t, 2, found.NextNumber())
		})
	}
}
