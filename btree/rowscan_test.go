package btree

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestEmptyValueOfAScanPointsIntoItsPage: the first cell of a leaf ends with the page, and so does
// its empty value. A slice that begins there would point to other memory and keep it alive;
// checkptr aborts the program.
func TestEmptyValueOfAScanPointsIntoItsPage(t *testing.T) {
	m := newMemory(4096)
	var tree Tree
	for _, key := range []string{"a", "b"} {
		_, err := Put(m, &tree, []byte(key), nil, 0)
		require.NoError(t, err)
	}
	page, err := m.Page(tree.Root)
	require.NoError(t, err)
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(page)))
	for _, forward := range []bool{true, false} {
		var c Cursor
		c.Reset(m, tree)
		require.True(t, forward && c.First() || !forward && c.Last())
		require.True(t, c.BeginScan(forward, 0))
		c.i -= c.scan.step
		rows := 0
		for _, value, ok := c.ScanRow(); ok; _, value, ok = c.ScanRow() {
			rows++
			require.Empty(t, value)
			require.NotNil(t, value)
			at := uintptr(unsafe.Pointer(unsafe.SliceData(value)))
			require.True(t, lo <= at && at < lo+uintptr(len(page)), "value at %d of the page", at-lo)
		}
		require.Equal(t, 2, rows)
	}
}
