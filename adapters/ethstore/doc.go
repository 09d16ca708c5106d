// Package ethstore is a go-ethereum ethdb.KeyValueStore in a family of an Ebb store.
package ethstore
