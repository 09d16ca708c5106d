//go:build cgosqlite

package engine

import _ "github.com/mattn/go-sqlite3" // the driver "sqlite3": SQLite in C behind cgo

func init() {
	register(Engine{Name: "sqlite-cgo", Module: "github.com/mattn/go-sqlite3", Checkpoints: true,
		Copies: true,
		Open:   openSQLite("sqlite3", false)})
	register(
		Engine{
			Name:    "sqlite-cgo-dual",
			Module:  "github.com/mattn/go-sqlite3",
			Expires: true,
			Purges:  true,
			OnlyTTL: true,
			Open:    openSQLite("sqlite3", true),
		},
	)
}
