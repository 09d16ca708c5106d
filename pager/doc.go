// Package pager reads, writes, allocates and frees the checksummed pages of one file, and keeps its
// two meta pages.
//
// Pages that the file holds are read through a map of it, or through a bounded cache if it cannot
// be mapped. Pages that it does not hold yet are in frames outside the Go heap. The first read of a
// page verifies its checksum, its own number, the epoch of the reference to it, and what
// Options.CheckPage checks. Free space is managed in groups of pages with one free map page each; a
// checkpoint writes the free map pages of the changed groups.
//
// A leaf may have a delta instead of a frame: its changes since a page that the file holds.
//
// Only the transaction that allocated a page changes its frame in place, unless it records the
// overwritten bytes in the UndoLog.
//
// The parts of a Pager own their fields and say what guards them:
//
//	mainFile    bytes of the file, its map, its syncs, which pages are verified    any goroutine
//	Reader      pages and values of a snapshot: see View                           any goroutine
//	BufferPool  pages in frames and deltas, and the owner of each page             writer lock
//	Allocator   free map, space in reserve, size of the file                       writer lock
//	flusher     writes pages of the pool, for a checkpoint or early                one at a time
//	UndoLog     bytes overwritten in place, for older snapshots                    its own lock
//
// The writer lock is the caller's. The caller also knows which readers may still use a freed page:
// it calls Release when none does.
//
// The package knows no key, no cell, no tree and no transaction. Of the log it keeps two positions
// and a segment size in the meta pages, without interpreting them.
package pager
