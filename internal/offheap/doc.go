// Package offheap gives memory that the garbage collector neither scans nor counts: anonymous maps
// where the operating system has them, with huge pages asked for; plain slabs elsewhere and under
// the race detector, which sees only the heap.
//
// Alloc and Free are safe for concurrent use. The package knows nothing of what is in the memory,
// and no file.
package offheap
