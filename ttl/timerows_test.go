package ttl

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/txn"
)

func TestOldestLiveTimestamp(t *testing.T) {
	for _, c := range []struct{ now, retention, want int64 }{
		{100, 10, 91}, // a row of 90 expires at 100
		{0, 1, 0},
		{-5, 10, -14},
		{math.MinInt64, 1, math.MinInt64},
		{math.MinInt64 + 9, 10, math.MinInt64},
		{math.MinInt64 + 10, 10, math.MinInt64 + 1},
		{math.MaxInt64, 1, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, 1},
	} {
		f := &cf.Family{Options: cf.Options{RetentionMs: c.retention}}
		require.Equal(t, c.want, TimeRows{Family: f}.OldestLive(c.now), "%+v", c)
	}
}

func TestTimestampIsRoundedDownOrRefused(t *testing.T) {
	for _, c := range []struct {
		t    time.Time
		want int64
		ok   bool
	}{
		{time.Unix(0, 1), 0, true},
		{time.Unix(0, -1), -1, true},
		{time.Unix(1, 999_999_999), 1999, true},
		{time.UnixMilli(math.MaxInt64), math.MaxInt64, true},
		{time.UnixMilli(math.MinInt64), math.MinInt64, true},
		{time.UnixMilli(math.MaxInt64).Add(time.Millisecond), 0, false},
		{time.UnixMilli(math.MinInt64).Add(-1), 0, false},
		{time.Unix(math.MaxInt64, 0), 0, false},
		{time.Time{}, -62135596800000, true},
	} {
		got, err := Timestamp(c.t)
		if !c.ok {
			require.ErrorIs(t, err, ErrInvalid, "%v", c.t)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%v", c.t)
	}
}

// TestCheckNamesEachBrokenRowByTime breaks a time-partitioned family in one way after the other.
func TestCheckNamesEachBrokenRowByTime(t *testing.T) {
	s, err := txn.Open("x", txn.Options{FS: crashfs.New(crashfs.Options{})})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for _, test := range []struct {
		name string
		harm func(r Rows, p cf.Partition)
		want []string
	}{
		{"nothing", func(Rows, cf.Partition) {}, nil},
		{"key_cut_short", func(r Rows, p cf.Partition) { put(t, r, p.Tree, cf.AppendInstant(nil, 15), nil) },
			[]string{"P1: partition 10: row with a key of 8 bytes"}},
		{"row_of_another_partition",
			func(r Rows, p cf.Partition) { put(t, r, p.Tree, AppendTimeKey(nil, 20, []byte("k")), nil) },
			[]string{"P1: partition from 10 to 19 has a row of 20"}},
		{"tag", func(r Rows, p cf.Partition) {
			_, err := r.Tx.Put(p.Tree, AppendTimeKey(nil, 12, []byte("k")), nil, 5)
			require.NoError(t, err)
		}, []string{"P2: partition 10: row of 12 with a tag"}},
		{"row_of_a_key", func(r Rows, p cf.Partition) { put(t, r, r.Family.Data(), []byte("k"), nil) },
			[]string{"P2: 1 rows in the data of a time-partitioned family"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tx, err := s.Begin(t.Context(), true)
			require.NoError(t, err)
			defer tx.Rollback()
			f, err := cf.Create(tx, "p", cf.Options{RetentionMs: 100, PartitionMs: 10})
			require.NoError(t, err)
			p, err := cf.EnsurePartition(tx, f, 12, 0)
			require.NoError(t, err)
			r := Rows{Tx: tx, Family: f}
			put(t, r, p.Tree, AppendTimeKey(nil, 12, []byte("k")), []byte("v"))
			test.harm(r, p)
			require.Equal(t, test.want, findings(t, r))
		})
	}
}
