package cf

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/golden"
)

func TestEntryBytesArePinned(t *testing.T) {
	want := &Family{Name: "sessions", Base: 6, Options: Options{
		DefaultTTLMs: 3_600_000, RetentionMs: 2_592_000_000, PartitionMs: 86_400_000,
	}}
	golden.Require(t, "entry.hex", `catalog entry of family "sessions"`, golden.Row([]golden.Part{
		{
			1,
			"version",
		}, {1, "flags"}, {6, "reserved"}, {8, "base: trees 6, 7, 8 and 9"}, {8, "default ttl: 3 600 000 ms"},
		{8, "retention: 2 592 000 000 ms"}, {8, "partition: 86 400 000 ms"},
	}...), appendEntry(nil, want))
	got, err := decodeEntry("sessions", golden.Read(t, "testdata/entry.hex"))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestEntryThatDoesNotHoldItsPromisesIsCorrupt(t *testing.T) {
	good := golden.Read(t, "testdata/entry.hex")
	for _, test := range []struct {
		name   string
		family string
		change func(b []byte) []byte
	}{
		{"empty", "a", func(b []byte) []byte { return nil }},
		{"short", "a", func(b []byte) []byte { return b[:entrySize-1] }},
		{"long", "a", func(b []byte) []byte { return append(b, 0) }},
		{"version_zero", "a", func(b []byte) []byte { b[offVersion] = 0; return b }},
		{"flags", "a", func(b []byte) []byte { b[offFlags] = 1; return b }},
		{"reserved", "a", func(b []byte) []byte { b[offReserved+5] = 1; return b }},
		{"base_is_the_tree_table", "a", func(b []byte) []byte { b[offBase] = 0; return b }},
		{"base_is_the_catalog", "a", func(b []byte) []byte { b[offBase] = 1; return b }},
		{"base_wraps", "a", func(b []byte) []byte { return fill(b, offBase, 0xff) }},
		{"negative_ttl", "a", func(b []byte) []byte { return fill(b, offDefaultTTL, 0xff) }},
		{"negative_retention", "a", func(b []byte) []byte { return fill(b, offRetention, 0x80) }},
		{"retention_without_partition", "a", func(b []byte) []byte { return fill(b, offPartition, 0) }},
		{"partition_without_retention", "a", func(b []byte) []byte { return fill(b, offRetention, 0) }},
		{"reserved_name", "__a", func(b []byte) []byte { return b }},
		{"empty_name", "", func(b []byte) []byte { return b }},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := decodeEntry(test.family, test.change(bytes.Clone(good)))
			require.ErrorIs(t, err, badfile.ErrCorrupt)
		})
	}
}

func fill(b []byte, off int, with byte) []byte {
	for i := off; i < off+8; i++ {
		b[i] = with
	}
	return b
}

func TestEntryOfALaterVersionIsNotCorruption(t *testing.T) {
	_, err := decodeEntry("a", []byte{entryVersion + 1, 99})
	require.ErrorIs(t, err, ErrVersion)
	require.NotErrorIs(t, err, badfile.ErrCorrupt)
}

func TestNamesAreChecked(t *testing.T) {
	for _, test := range []struct {
		name   string
		family string
		want   error
	}{
		{"empty", "", ErrName},
		{"longest", strings.Repeat("x", MaxName), nil},
		{"too_long", strings.Repeat("x", MaxName+1), ErrName},
		{"not_utf8", "a\xff", ErrName},
		{"nul", "a\x00b", ErrName},
		{"reserved", "__ttl_k__a", ErrReserved},
		{"one_underscore", "_a", nil},
		{"not_ascii", "größe/µ", nil},
	} {
		t.Run(test.name, func(t *testing.T) { require.ErrorIs(t, CheckName(test.family), test.want) })
	}
}

func TestOptionsAreChecked(t *testing.T) {
	require.NoError(t, Options{}.check())
	require.NoError(t, Options{DefaultTTLMs: math.MaxInt64, RetentionMs: 2, PartitionMs: 1}.check())
	require.ErrorIs(t, Options{DefaultTTLMs: -1}.check(), ErrOptions)
	require.ErrorIs(t, Options{RetentionMs: 1}.check(), ErrOptions)
}

func TestRoleTellsTheTreesOfAFamily(t *testing.T) {
	f := &Family{Base: 6}
	require.Equal(t, "data", f.Role(f.Data()))
	require.Equal(t, "key index", f.Role(f.KeyIndex()))
	require.Equal(t, "expiry index", f.Role(f.ExpiryIndex()))
	require.Equal(t, "metadata", f.Role(9))
	require.Empty(t, f.Role(5))
	require.Empty(t, f.Role(10))
	require.Empty(t, (&Family{}).Role(0))
}
