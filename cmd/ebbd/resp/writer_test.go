package resp

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWriterEncodesEachTypeInBothVersions(t *testing.T) {
	for _, c := range []struct {
		name       string
		write      func(w *Writer)
		two, three string
	}{
		{"simple", func(w *Writer) { w.Simple("OK") }, "+OK\r\n", "+OK\r\n"},
		{"error", func(w *Writer) { w.Error("ERR a\r\nb") }, "-ERR a  b\r\n", "-ERR a  b\r\n"},
		{"int", func(w *Writer) { w.Int(-5) }, ":-5\r\n", ":-5\r\n"},
		{"bulk", func(w *Writer) { w.Bulk([]byte("a\r\n")) }, "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n"},
		{"null", func(w *Writer) { w.Null() }, "$-1\r\n", "_\r\n"},
		{"null_array", func(w *Writer) { w.NullArray() }, "*-1\r\n", "_\r\n"},
		{"array", func(w *Writer) { w.Array(2) }, "*2\r\n", "*2\r\n"},
		{"map", func(w *Writer) { w.Map(2) }, "*4\r\n", "%2\r\n"},
		{"set", func(w *Writer) { w.Set(2) }, "*2\r\n", "~2\r\n"},
		{"push", func(w *Writer) { w.Push(2) }, "*2\r\n", ">2\r\n"},
		{"true", func(w *Writer) { w.Bool(true) }, ":1\r\n", "#t\r\n"},
		{"false", func(w *Writer) { w.Bool(false) }, ":0\r\n", "#f\r\n"},
		{"double", func(w *Writer) { w.Double(0.1) }, "$3\r\n0.1\r\n", ",0.1\r\n"},
		{"verbatim", func(w *Writer) { w.Verbatim("hi") }, "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			two, three := &Writer{Version: 2}, &Writer{Version: 3}
			c.write(two)
			c.write(three)
			require.Equal(t, c.two, string(two.Bytes()))
			require.Equal(t, c.three, string(three.Bytes()))
		})
	}
}

func TestDoublesAreShortAndExact(t *testing.T) {
	for f, want := range map[float64]string{
		3: "3", -0.5: "-0.5", 1e20: "1e+20", 123456789012: "123456789012",
		math.Inf(1): "inf", math.Inf(-1): "-inf", 0.1: "0.1", 1.0 / 3: "0.3333333333333333",
	} {
		require.Equal(t, want, FormatDouble(f))
	}
}

func TestWriterDropsWhatExceedsItsBound(t *testing.T) {
	w := &Writer{Version: 2, Most: 100}
	w.Simple("OK")
	w.BulkString(strings.Repeat("x", 100))
	require.True(t, w.Overflow())
	require.LessOrEqual(t, w.Len(), 100)
	w.Reset()
	require.False(t, w.Overflow())
	require.Zero(t, w.Len())
}
