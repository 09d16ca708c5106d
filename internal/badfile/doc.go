// Package badfile holds the one error that says that a file's bytes are wrong, and where.
//
// The type is a plain value, safe for concurrent use. The package knows no page layout and no
// record layout: the caller that found the damage puts found and expected values in Detail.
package badfile
