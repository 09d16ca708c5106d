package main

import "runtime/debug"

// Bounds of warmMemory.
const (
	warmPerRow = 2 << 10
	leastWarm  = 64 << 20
	mostWarm   = 1 << 30
)

// warmMemory uses and frees as much memory as a run with n rows needs, just before the run. A
// guest of a host that reclaims free memory gets it again page by page at first use, here at 10
// us for 4 KiB against 0.5: that would measure the host, and the process before. Engines take
// memory in small pages and in huge ones, which a system cuts from different stocks: both are used.
func warmMemory(n int) {
	size := min(max(n*warmPerRow, leastWarm), mostWarm)
	warmHuge(size)
	b := make([]byte, size)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	b = nil
	debug.FreeOSMemory()
}
