package kv_test

import (
	"bytes"
	"cmp"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// keepsOrder holds a codec to its contract on all pairs of values: the encoding decodes to the value,
// and encodings compare as the values do.
func keepsOrder[T any](t *testing.T, c kv.Codec[T], compare func(a, b T) int, values ...T) {
	t.Helper()
	encoded := make([][]byte, len(values))
	for i, v := range values {
		b, err := c.Append([]byte("before"), v)
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(b, []byte("before")), "Append keeps dst")
		encoded[i] = b[len("before"):]
		back, err := c.Decode(encoded[i])
		require.NoError(t, err)
		require.Zero(t, compare(v, back), "Decode(% x) = %v, want %v", encoded[i], back, v)
	}
	for i, a := range values {
		for j, b := range values {
			require.Equal(t, compare(a, b), bytes.Compare(encoded[i], encoded[j]), "%v against %v", a, b)
		}
	}
}

func TestCodecsKeepTheOrderOfTheirValues(t *testing.T) {
	texts := []string{"", "\x00", "\x00\x00", "\x00\x01", "\x00\xff", "\x01", "a", "a\x00", "a\x00\x01",
		"a\x00b", "ab", "b", "\xff", "\xff\xff"}
	keepsOrder(t, kv.String, strings.Compare, texts...)
	var slices [][]byte
	for _, s := range texts {
		slices = append(slices, []byte(s))
	}
	keepsOrder(t, kv.Bytes, bytes.Compare, slices...)
	keepsOrder(t, kv.Uint64, cmp.Compare[uint64], 0, 1, 255, 256, math.MaxInt64, math.MaxUint64)
	keepsOrder(t, kv.Int64, cmp.Compare[int64], math.MinInt64, -256, -1, 0, 1, 255, math.MaxInt64)
	keepsOrder(t, kv.Time, time.Time.Compare, time.Time{}, time.Unix(-1, 999_999_999), time.Unix(0, 0),
		time.Unix(0, 1), time.Date(2026, 11, 29, 12, 0, 0, 0, time.FixedZone("", 3600)),
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC))

	var pairs []kv.Tuple[string, int64]
	for _, s := range texts {
		for _, n := range []int64{-1, 0, 1} {
			pairs = append(pairs, kv.Tuple[string, int64]{First: s, Second: n})
		}
	}
	byBoth := func(a, b kv.Tuple[string, int64]) int {
		return cmp.Or(strings.Compare(a.First, b.First), cmp.Compare(a.Second, b.Second))
	}
	keepsOrder(t, kv.Pair(kv.String, kv.Int64), byBoth, pairs...)

	type nested = kv.Tuple[kv.Tuple[string, int64], string]
	rnd := rand.New(rand.NewPCG(1, 2))
	var deep []nested
	for range 60 {
		deep = append(deep, nested{First: pairs[rnd.IntN(len(pairs))], Second: texts[rnd.IntN(len(texts))]})
	}
	keepsOrder(t, kv.Pair(kv.Pair(kv.String, kv.Int64), kv.String), func(a, b nested) int {
		return cmp.Or(byBoth(a.First, b.First), strings.Compare(a.Second, b.Second))
	}, deep...)
}

func TestAPairsPrefixIsOfExactlyTheKeysWithThatFirstPart(t *testing.T) {
	c := kv.Pair(kv.String, kv.String)
	prefix, err := c.Prefix("a\x00")
	require.NoError(t, err)
	for _, first := range []string{"", "a", "a\x00", "a\x00\x00", "a\x00\x01", "a\x00b", "b"} {
		b, err := c.Append(nil, kv.Tuple[string, string]{First: first, Second: "x"})
		require.NoError(t, err)
		require.Equal(t, first == "a\x00", bytes.HasPrefix(b, prefix), "%q", first)
	}
}

func TestCodecsRefuseBytesThatTheyDidNotWrite(t *testing.T) {
	pair, numbers := kv.Pair(kv.String, kv.Uint64), kv.Pair(kv.Int64, kv.String)
	refuses := func(name string, decode func(b []byte) error, inputs ...string) {
		for _, in := range inputs {
			require.Error(t, decode([]byte(in)), "%s of % x", name, in)
		}
	}
	refuses("Uint64", func(b []byte) error { _, err := kv.Uint64.Decode(b); return err }, "", "1234567", "123456789")
	refuses("Int64", func(b []byte) error { _, err := kv.Int64.Decode(b); return err }, "", "1234567")
	refuses("Time", func(b []byte) error { _, err := kv.Time.Decode(b); return err },
		"", "12345678901", "12345678\xff\xff\xff\xff")
	refuses("JSON", func(b []byte) error { _, err := kv.JSON[int]().Decode(b); return err }, "", "{", `"a"`)
	refuses("Pair", func(b []byte) error { _, err := pair.Decode(b); return err },
		"", "a", "a\x00", "a\x00\xff", "a\x00\x0212345678", "a\x00\x011234567")
	refuses("Pair of numbers", func(b []byte) error { _, err := numbers.Decode(b); return err }, "", "1234567")
}
