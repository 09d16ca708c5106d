//go:build !cgosqlite

package engine

import _ "modernc.org/sqlite" // the driver "sqlite": SQLite translated to Go, where it is not in C

func init() {
	open := openSQLite("sqlite", false)
	register(Engine{Name: "sqlite", Module: "modernc.org/sqlite", Checkpoints: true, Copies: true,
		Open: open})
	register(
		Engine{Name: "sqlite-dual", Module: "modernc.org/sqlite", Expires: true, Purges: true, OnlyTTL: true,
			Open: openSQLite("sqlite", true)},
	)
}
