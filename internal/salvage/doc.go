// Package salvage makes a new store of the rows that can be read of a damaged one. It needs no meta
// page, no free map and no catalog, as long as pages prove by their checksums, and never writes to
// the damaged store. Nothing is saved that was in no committed state: see docs/adr/0052.
//
// A Run belongs to one goroutine. Its memory is bounded: a bit or two for each page of the store,
// the keys at which lost branches begin and end, and one value. It knows the layout of no page: the
// packages below decode them.
package salvage
