package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestWrittenBytesCountWhatTheDiskGot: at least what was written, though without a sync.
func TestWrittenBytesCountWhatTheDiskGot(t *testing.T) {
	const size = 4 << 20
	dir := t.TempDir()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(dir, &st))
	if _, err := os.Stat(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev),
		unix.Minor(st.Dev))); err != nil {
		t.Skip("no single disk is known here: ", err)
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
