// Package vfs is the only door to files and directories: the operating system (OS), a file system
// in memory (NewMemory), and, because everything goes through these two interfaces, the seam where
// tests put faults.
//
// An FS and a File are safe for concurrent use; reads and writes of one File at different offsets
// do not wait for each other, except in memory. A Direct file takes aligned reads only, as it does
// writes. The package knows no page, no record and no lock order of its callers. It never retries a
// failed sync.
package vfs
