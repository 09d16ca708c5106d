// Package ui serves one local web page on a store, to look at: families, rows,
// expiries, pages, trees and the log. Nothing can be changed through it.
//
// It takes no lock, whether another process has the store open or not (see internal/live), and shows
// the state of one instant until it is asked for a fresh one. What is damaged is shown as damaged:
// rows come from a read-only store, which is missing where it cannot be opened, and pages from the
// raw file, of which each proves by itself.
//
// A request names the server as its host and is a GET; one for bytes of the store has the token of the
// server in a header. Answers are bounded. Requests are served one at a time, except that the walk
// of all trees
// runs beside them.
//
// The package knows no layout of pages, rows or records: the packages pager, btree, cf and wal decode
// them.
package ui
