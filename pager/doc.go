// Package pager reads, writes, allocates and frees the checksummed pages of one file, and keeps its
// two meta pages.
//
// Pages that the file holds come from a map of it, or from a bounded cache where it cannot be
// mapped; pages that it does not hold yet lie in frames outside the Go heap. A page is proved when
// it is first read: checksum, own number, the epoch of the reference that led to it, and whatever
// Options.CheckPage asks. Space is counted in groups of pages with one free map page each, of which
// a checkpoint writes those that changed.
//
// A leaf may have a patch instead of a frame: what has changed in it since a page that the file
// holds.
//
// A frame is changed where it is only by the transaction that its page was born in, or with an
// Undo.
//
// Concurrency: Page, Snapshot, Extent and Verify may be called by anyone at any time between Start
// and Close. What allocates, frees or captures belongs to the holder of the caller's writer lock,
// as an Undo does but for the two calls of readers; Write and WriteMeta run beside it, one at a
// time. Who may still look at a freed page is the caller's knowledge: Release says that nobody
// does.
//
// The package knows no key, no cell, no tree and no transaction; of the log it keeps two positions
// and a segment size in the meta pages, without knowing what they mean.
package pager
