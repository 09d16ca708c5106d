// Package invariant holds the one switch and the one function for checks of promises that our own
// code makes to itself, and pauses for those that goroutines make to each other. Bytes from a file
// or a caller never come here: those end in an error.
//
// The switch is a constant set by the build tag "invariant", so a check behind it costs nothing
// without the tag. The tag adds checks and pauses; it never changes the path taken. The package
// keeps no state and is safe everywhere.
package invariant
