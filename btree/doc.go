// Package btree keeps cells sorted in pages that someone hands it.
//
// A tree is a Tree value: the reference of its root page, its depth and its number of rows.
// Functions that read take a Reader and a Tree; functions that change take a Writer and a pointer
// to the Tree, and set it to the new root. Pages are changed copy-on-write through Writer.Edit, so
// a Tree value that was taken before a change still names the old content. What Writer.Undo allows
// is changed where it is, once it has been kept: then it is the Reader that gives the old content.
// After an error a Tree that was being changed must be thrown away together with the transaction:
// some of its pages are already edited.
//
// A leaf may have a patch instead of a copy: changes beside an older page, which Writer.CanDelta
// allows. Whoever looks for a key asks Reader.Leaf for both and looks into the changes first;
// everyone else gets the page that Merge makes of them, and knows nothing of it.
//
// Concurrency: there is no state and no lock here. Any number of goroutines may read one Tree value
// at the same time, as far as their Reader allows; a Writer and the Tree it changes belong to one
// goroutine. A Cursor and a Builder belong to one goroutine. Parts of one tree may be changed by
// several, each with a Writer of its own.
//
// CheckPage is the border to the outside: it proves every offset, bound and order of a page, and
// the Reader calls it before it hands out a page that was read from a file. Behind it the code
// indexes freely. What one page cannot prove
// (that a page is of the kind and level its place asks for, that its keys lie between the separators above it) ends in
// a *badfile.Error where it is met, or is left to Check.
//
// The package knows nothing of files, the log, clocks, transactions and families, nor of what a
// key, a value or the tag of a cell means.
package btree
