package workload

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWrittenBytesCountWhatTheDiskGot: at least what was written, though nobody has synced it.
func TestWrittenBytesCountWhatTheDiskGot(t *testing.T) {
	const size = 4 << 20
	dir := t.TempDir()
	if _, ok := writtenSectors(dir); !ok {
		t.Skip("no single disk is known here")
	}
	before := writtenBytes(dir)
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i >> 9)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), b, 0o600))
	require.GreaterOrEqual(t, writtenBytes(dir)-before, int64(size))
	_, ok := writtenSectors(filepath.Join(dir, "absent"))
	require.False(t, ok)
}
