//go:build race || !(linux || darwin || freebsd)

package offheap

// Alloc returns n zeroed bytes. The caller gives them back whole with Free.
func Alloc(n int) ([]byte, error) { return make([]byte, n), nil }

// Free releases what Alloc returned; no slice of it may be used afterwards.
func Free([]byte) error { return nil }

// UseSmallPages does nothing here.
func UseSmallPages([]byte) {}

// Release does nothing here.
func Release([]byte) {}
