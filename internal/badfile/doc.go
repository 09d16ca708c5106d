// Package badfile holds the one error that says that a file's bytes are wrong, and where.
//
// The type is a plain value, safe for concurrent use. The package knows no page layout and no
// record layout: who found the damage says in Detail what was found and what was expected.
package badfile
