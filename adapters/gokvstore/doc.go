// Package gokvstore is a store of github.com/philippgille/gokv in a family of an Ebb store. Its values
// are JSON, or what another codec of gokv makes of them.
package gokvstore
