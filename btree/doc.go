// Package btree keeps cells sorted in pages that its caller provides.
//
// A tree is a Tree value: the reference of its root page, its depth and its number of rows.
// Functions that read take a Reader and a Tree; functions that change take a Writer and a pointer
// to the Tree, and set it to the new root. Writer.Edit copies pages on write, so an older Tree
// value still names the old content. Pages that Writer.Undo allows are changed in place after their
// old bytes are in the undo log; the Reader then returns the old content. After an error the caller
// must drop the Tree and roll back the transaction: some of its pages are already edited.
//
// If Writer.CanDelta allows, a leaf has a delta instead of a copy: changes against an older page. A
// lookup gets both from Reader.Leaf and searches the changes first. All other callers get the page
// that ApplyDelta makes, and do not know of the delta.
//
// Concurrency: the package has no state and no lock. Any number of goroutines may read one Tree
// value at the same time, as far as their Reader allows; a Writer and the Tree it changes belong to
// one goroutine, and so does a Cursor or a Builder. Several goroutines may change the Partitions of
// one tree, each with its own Writer.
//
// CheckPage is the border to the outside: it verifies every offset, bound and order of a page, and
// the Reader calls it before it returns a page that was read from a file. Behind it the code
// indexes freely. Faults that one page cannot show (a page of the wrong kind or level, keys outside
// the separators above them) end in a *badfile.Error at the access, or are left to Check.
//
// The package knows nothing of files, the log, clocks, transactions and families, nor of the
// meaning of a key, a value or the tag of a cell.
package btree
