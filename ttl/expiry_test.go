package ttl

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/golden"
)

// TestExpiryBytesAreTheOnesOfTheSpec pins both encodings.
func TestExpiryBytesAreTheOnesOfTheSpec(t *testing.T) {
	var text strings.Builder
	text.WriteString(
		"# expiry in milliseconds, value in the key index, key in the expiry index for the user key \"k\"\n",
	)
	for _, ms := range []int64{1, 256, 1003600, 1735000000000, math.MaxInt64} {
		value, due := appendExpiry(nil, ms), appendDue(nil, ms, []byte("k"))
		fmt.Fprintf(&text, "%d %s %s\n", ms, hex.EncodeToString(value), hex.EncodeToString(due))
		back, err := decodeExpiry(value)
		require.NoError(t, err)
		require.Equal(t, ms, back)
		back, key, err := decodeDue(due)
		require.NoError(t, err)
		require.Equal(t, ms, back)
		require.Equal(t, "k", string(key))
	}
	golden.Text(t, "expiry.hex", text.String())
	require.Contains(t, text.String(), "1735000000000 00000193f60f0600 ")
}

func TestBadExpiryBytesAreCorrupt(t *testing.T) {
	for _, b := range []string{"", "0000000000000000", "ffffffffffffffff", "00000000000001",
		"000000000000000100"} {
		raw, err := hex.DecodeString(b)
		require.NoError(t, err)
		_, err = decodeExpiry(raw)
		require.ErrorIs(t, err, badfile.ErrCorrupt, b)
	}
	for _, b := range []string{"", "0000000000000001", "00000000000000006b"} {
		raw, err := hex.DecodeString(b)
		require.NoError(t, err)
		_, _, err = decodeDue(raw)
		require.ErrorIs(t, err, badfile.ErrCorrupt, b)
	}
}

func TestExpiredIffNowIsAtOrAfterTheExpiry(t *testing.T) {
	require.False(t, Expired(9, 10))
	require.True(t, Expired(10, 10))
	require.True(t, Expired(11, 10))
}

func TestTTLIsRoundedUpAndNeverWraps(t *testing.T) {
	for _, test := range []struct {
		now  int64
		d    time.Duration
		want int64 // 0: ErrInvalid
	}{
		{1000, time.Millisecond, 1001},
		{1000, 1, 1001},
		{1000, time.Millisecond + 1, 1002},
		{1000, 0, 0},
		{1000, -1, 0},
		{math.MaxInt64 - 1, time.Millisecond, math.MaxInt64},
		{math.MaxInt64, time.Millisecond, 0},
		{-1000, time.Millisecond, 1}, // the first that can be stored
	} {
		got, err := After(test.now, test.d)
		require.Equal(t, test.want, got, "%+v", test)
		require.Equal(t, test.want == 0, err != nil)
	}
	far := time.Date(300_000_000, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err := At(0, far)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = At(1000, time.UnixMilli(1000))
	require.ErrorIs(t, err, ErrInvalid)
	_, err = At(1000, time.Time{})
	require.ErrorIs(t, err, ErrInvalid)
	got, err := At(1000, time.UnixMilli(1000).Add(1))
	require.NoError(t, err)
	require.Equal(t, int64(1001), got)
}

func TestRemainingIsNeverNegative(t *testing.T) {
	require.Equal(t, time.Duration(0), Remaining(10, 10))
	require.Equal(t, time.Millisecond, Remaining(9, 10))
	require.Equal(t, time.Duration(math.MaxInt64), Remaining(0, math.MaxInt64))
	require.Equal(t, time.Duration(math.MaxInt64), Remaining(math.MinInt64, math.MaxInt64))
}

func FuzzDecodeDue(f *testing.F) {
	f.Add(appendDue(nil, 1003600, []byte("key")))
	f.Fuzz(func(t *testing.T, b []byte) {
		defer bound.Hold(t, uint64(1<<20+4*len(b)))()
		expiry, key, err := decodeDue(b)
		if err != nil {
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			return
		}
		require.Equal(t, b, appendDue(nil, expiry, key))
	})
}

// TestInstantsRoundUpToTheLastMillisecond covers the whole range: the last instant that an expiry
// can name is one of it.
func TestInstantsRoundUpToTheLastMillisecond(t *testing.T) {
	for _, c := range []struct {
		name string
		t    time.Time
		ms   int64
		ok   bool
	}{
		{"epoch", time.Unix(0, 0), 0, true},
		{"a nanosecond later", time.Unix(0, 1), 1, true},
		{"before the epoch", time.Unix(-1, 999_000_001), 0, true},
		{"the last millisecond", time.Unix(math.MaxInt64/1000, 807_000_000), math.MaxInt64, true},
		{"one nanosecond past it", time.Unix(math.MaxInt64/1000, 807_000_001), math.MaxInt64, false},
		{"far past it", time.Unix(math.MaxInt64/1000+1, 0), math.MaxInt64, false},
	} {
		ms, ok := CeilMs(c.t)
		require.Equal(t, c.ok, ok, c.name)
		require.Equal(t, c.ms, ms, c.name)
	}
}
