//go:build (darwin || freebsd) && !race

package offheap

func adviseHuge([]byte) {}
