// Bench compares Ebb with other embedded stores for Go, and with what the machine can do without a
// store.
//
// Every measurement is a process of its own on a directory of its own: the program starts itself
// again, for one engine and one workload, and that child answers with one JSON object. The engines
// take turns within each round of a workload, so that what else happens on the machine meets all of
// them. What a store has to hold before a workload is built once for each engine, in a process of
// its own too, and copied.
//
// docs/performance.md says how to read the figures. Nothing in here runs at the same time as
// anything else, but for the goroutines of the workload that is being measured.
//
// The package knows processes, files and flags. The stores are in package engine, what they are
// made to do in package workload, tables and pages in package report.
package main
