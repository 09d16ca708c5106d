// Command crashtest tortures the engine: crashes at every moment of a workload, failed syncs,
// failing calls, killed processes and power cuts of a real file system, each followed by a look at
// what is left. Run it with -h.
//
// Each mode is a thin skin: it reads flags, calls package fuzz or starts processes, and prints one
// report. It judges nothing by itself but what processes leave that were killed or lost their disk,
// and of pages and records it knows only the mark of a meta page, before whose flush powercut cuts.
package main
