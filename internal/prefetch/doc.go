// Package prefetch asks the processor to fetch memory that is needed soon. It is a hint: nothing is
// read, an address that cannot be read is no fault, and on processors that it does not know nothing
// happens.
//
// A lookup or a scan in pages that lie anywhere costs little but waiting for memory, 100 ns and
// more for each page. Lines that are asked for while there is other work cost next to nothing. Copy
// does both: it copies, and asks for what it will copy next.
package prefetch
