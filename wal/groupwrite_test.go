package wal

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSmallGroupsAreCopied: of commits without a sync, only those that reach a page for the first
// time cost a call.
func TestSmallGroupsAreCopied(t *testing.T) {
	for _, block := range []int{0, 512, 4096} {
		d := newDisk(t, block)
		o := testOptions(d)
		o.SegmentSize = 64 << 10
		var groups, bytes int64
		o.OnGroup = func(_ int, n int64, _ time.Duration) { groups++; bytes += n }
		l := createTest(t, o)
		const commits, size = 200, 100
		before := d.count("write")
		for range commits {
			l.commit(text(len(l.commits), size), false)
		}
		require.Len(t, l.appender.live, 1)
		pages := (commits*(recHeader+size) + pageUnit - 1) / pageUnit
		require.Equal(t, pages, d.count("write")-before)
		require.Equal(t, commits-pages, d.count("copy"))
		require.Equal(t, int64(commits), groups)
		copied := int64(commits-pages) * (recHeader + size)
		require.Greater(t, bytes, copied+int64(pages*pageUnit))
		require.Less(t, bytes, copied+int64(2*pages*pageUnit), "bytes that were not written do not count")
		mustReplay(t, o, l.start, l.Durable(), l.commits)

		l.commit("durable", true)
		o.FS = d.crash(func() bool { return false })
		mustReplay(t, o, l.start, l.Durable(), l.commits)
	}
}

// TestUnsyncedGroupsAreWrittenBackPieceByPiece: the leader starts the writeback of unsynced groups
// piece by piece, each page once, so that a later sync has less than a piece of each segment to
// write.
func TestUnsyncedGroupsAreWrittenBackPieceByPiece(t *testing.T) {
	d := newDisk(t, 0)
	o := testOptions(d)
	o.SegmentSize, o.FirstSegmentBytes = 3*writebackBytes, 3*writebackBytes
	l := createTest(t, o)
	begun, pieces := firstRecord, 0
	d.hook = func(op, name string, n int) (int, error) {
		var off int
		switch _, err := fmt.Sscanf(op, "begin %d", &off); {
		case !strings.HasSuffix(name, "-000001"):
		case err == nil:
			require.Equal(t, begun, off, "where the piece before ended")
			require.GreaterOrEqual(t, n, writebackBytes)
			begun += n
			pieces++
		case op == "syncdata":
			assert.Fail(t, "a waiter is left")
		}
		return n, nil
	}
	for l.syncer.segment.number == 1 {
		l.commit(text(len(l.commits), 5000), false)
	}
	d.hook = nil
	require.Equal(t, 2, pieces)
	require.LessOrEqual(t, begun, int(o.SegmentSize))
	require.Greater(t, begun, int(o.SegmentSize)-writebackBytes)
	l.commit("in the second segment", true)
	mustReplay(t, o, l.start, 0, l.commits)

	// What is synced anyway is left alone.
	before := len(d.ops)
	for range 3 * writebackBytes / 5000 {
		l.commit(text(len(l.commits), 5000), true)
	}
	for _, op := range d.ops[before:] {
		require.False(t, strings.HasPrefix(op, "begin"), op)
	}

	// The system may tell of a failure only here.
	d.hook = func(op, _ string, n int) (int, error) {
		if strings.HasPrefix(op, "begin") {
			return 0, errBoom
		}
		return n, nil
	}
	end := l.mustAppend(make([]byte, 2*writebackBytes), true)
	err := l.Wait(end, false)
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorIs(t, err, errBoom)
	_, err = l.Append(nil, true)
	require.ErrorIs(t, err, ErrFailed)
}
