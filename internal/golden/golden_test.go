package golden

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// failure is what a test that is meant to fail sees.
type failure struct{ testing.TB }

func (failure) Helper()               {}
func (failure) Errorf(string, ...any) {}
func (failure) FailNow()              { panic("failed") }

func fails(t *testing.T, fn func(t testing.TB)) {
	t.Helper()
	require.PanicsWithValue(t, "failed", func() { fn(failure{t}) })
}

// TestBytesAreThoseOfTheFile: what Require accepts is exactly what the file says.
func TestBytesAreThoseOfTheFile(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("testdata", 0o755))
	b := make([]byte, 60)
	b[0], b[1], b[40] = 7, 8, 9
	fields := append(Row(Part{2, "two"}, Part{20, "twenty"}), Field{40, 4, "four"})
	text := "# title\n# 60 bytes; lines of zeros are left out.\n" +
		"000000  0708                              two\n" +
		"000002  00000000000000000000000000000000  twenty\n" +
		"000028  09000000                          four\n"
	path := filepath.Join("testdata", "a.hex")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	Require(t, "a.hex", "title", fields, b)
	require.Equal(t, b, Read(t, path))

	fails(t, func(t testing.TB) { Require(t, "a.hex", "another", fields, b) })
	fails(t, func(t testing.TB) { Require(t, "none.hex", "title", fields, b) })
	fails(t, func(t testing.TB) { Require(t, "a.hex", "title", fields[:2], b) })
	b[30] = 1
	fails(t, func(t testing.TB) { Require(t, "a.hex", "title", fields, b) })
	b[30], b[41] = 0, 1
	fails(t, func(t testing.TB) { Require(t, "a.hex", "title", fields, b) })

	require.NoError(t, os.WriteFile(path, []byte("# 2 bytes;\n000001  0708\n"), 0o600))
	fails(t, func(t testing.TB) { Read(t, path) })
}
