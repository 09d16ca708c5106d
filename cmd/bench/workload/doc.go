// Package workload is what the stores are made to do, and the check that they did it. One file is
// one family of workloads; each workload is an entry in a table: what the store holds before, how
// many goroutines work on it, what is timed, and what the same job costs a machine without a store,
// the limit.
//
// All rows, orders and values follow from a seed. Every answer of a store is checked, so that a
// store that answers wrong fails its row: values carry what depends on their key and version, and
// scans are added up in order. What a check costs is the same for all.
//
// Rows of reads take about a second each, so that what is done once after a store was opened (page
// faults, proofs of pages and values) is not what they measure. The rows called first-* do.
//
// A Run belongs to one goroutine, but for what Concurrently hands out. The package knows the
// engines only through their interface, and nothing about processes or reports.
package workload
