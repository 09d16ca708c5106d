//go:build !race

package offheap

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestUseSmallPagesSplitsHugePages and changes nothing in them. In a cgroup of 256 MB, 18 to 55 MB
// were in huge pages of which parts had been released.
func TestUseSmallPagesSplitsHugePages(t *testing.T) {
	b, err := Alloc(4 * HugePage)
	require.NoError(t, err)
	defer func() { require.NoError(t, Free(b)) }()
	for at := range b {
		b[at] = byte(at >> 12)
	}
	if hugeKiB(t, b) == 0 {
		t.Skip("no huge pages here")
	}
	UseSmallPages(b)
	require.Zero(t, hugeKiB(t, b))
	for at := range b {
		if b[at] != byte(at>>12) {
			t.Fatalf("byte %d is %d", at, b[at])
		}
	}
}

// hugeKiB is how much of the map that begins with b is in huge pages (proc(5), smaps).
func hugeKiB(t *testing.T, b []byte) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	found := false
	begin := fmt.Sprintf("%08x-", uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	for line := range strings.Lines(string(text)) {
		found = found || strings.HasPrefix(line, begin)
		if rest, ok := strings.CutPrefix(line, "AnonHugePages:"); ok && found {
			_, err := fmt.Sscan(rest, &n)
			require.NoError(t, err)
			return n
		}
	}
	t.Fatal("no such map")
	return 0
}
