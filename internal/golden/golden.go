package golden

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Field names the bytes [Off, Off+Size). It has no type name of its own, so that tables of fields
// need no keys.
type Field = struct {
	Off, Size int
	Remark    string
}

// Part is a field that begins where the one before it ends.
type Part = struct {
	Size   int
	Remark string
}

// Row gives the fields that parts make, beginning at offset 0.
func Row(parts ...Part) (fields []Field) {
	at := 0
	for _, p := range parts {
		fields = append(fields, Field{at, p.Size, p.Remark})
		at += p.Size
	}
	return fields
}

// rowBytes of a field stand in one line.
const rowBytes = 16

// Require holds b against testdata/name. Fields are in order; bytes that none of them names must be
// zero. Lines of zeros are left out, but for the first one of each field.
func Require(t testing.TB, name, title string, fields []Field, b []byte) {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n# %d bytes; lines of zeros are left out.\n", title, len(b))
	at := 0
	for _, f := range fields {
		require.Equal(t, make([]byte, f.Off-at), b[at:f.Off], "bytes of no field")
		for i := 0; i < f.Size; i += rowBytes {
			row := b[f.Off+i : f.Off+min(i+rowBytes, f.Size)]
			if i > 0 && bytes.Count(row, []byte{0}) == len(row) {
				continue
			}
			line := fmt.Sprintf("%06x  %-32x", f.Off+i, row)
			if i == 0 {
				line += "  " + f.Remark
			}
			text.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		at = f.Off + f.Size
	}
	require.Equal(t, make([]byte, len(b)-at), b[at:], "bytes of no field")
	Text(t, name, text.String())
	require.Equal(t, b, Read(t, filepath.Join("testdata", name)))
}

// Text holds a text against testdata/name.
func Text(t testing.TB, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, unix(want), text, "the format has changed: see CONTRIBUTING.md")
}

// Read gives the bytes of a golden file.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var b []byte
	for line := range strings.Lines(unix(text)) {
		var n int
		if _, err := fmt.Sscanf(line, "# %d bytes;", &n); err == nil {
			b = make([]byte, n)
		}
		words := strings.Fields(line)
		if len(words) == 0 || line[0] == '#' {
			continue
		}
		off, err := strconv.ParseInt(words[0], 16, 64)
		require.NoError(t, err)
		raw, err := hex.DecodeString(words[1])
		require.NoError(t, err)
		require.LessOrEqual(t, int(off)+len(raw), len(b), "a line past the end of %s", path)
		copy(b[off:], raw)
	}
	return b
}

// unix undoes what a checkout may have done to line ends.
func unix(text []byte) string { return strings.ReplaceAll(string(text), "\r\n", "\n") }
