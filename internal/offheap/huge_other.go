//go:build (darwin || freebsd) && !race

package offheap

func adviseHuge([]byte) {}

// Touch does nothing here.
func Touch([]byte) {}
