// Package kv is the public face of Ebb: an embedded key-value store of ordered byte strings in
// named families, kept in one file with a log beside it.
//
//	db, err := kv.Open("app.ebb", nil)
//	...
//	err = db.Update(func(tx *kv.Tx) error {
//		return tx.Put([]byte("greeting"), []byte("hello"))
//	})
//
// A transaction sees one committed state and one instant for its whole life. Any number of read
// transactions run beside one write transaction, and nobody waits for a reader. A commit that
// returned nil is there after any crash, whole; see Durability for the one relaxed form. Families
// are separate key spaces that one transaction may span; the family "default" always exists and is
// what *DB and *Tx mean when no family is named.
//
// Every key may carry an expiry. Expired keys are absent for every call at the same instant; they
// are deleted in transactions of the store's own, by PurgeExpired, or in passing by calls that met
// them. docs/ttl.md tells more.
//
// *DB and *Family are safe for concurrent use. A *Tx, and every *CF, iterator and *Cursor got from it, belongs to one
// goroutine at a time. Slices got from a transaction are read-only and end with it; one-shot calls
// return copies.
//
// No goroutine runs at rest, unless Options.AutoPurge asks for one: what a commit leaves behind, a
// checkpoint or the making of the next log segment, ends by itself. The package knows neither page
// layout nor record layout nor files; it maps what can go wrong below to the errors listed in
// errors.go.
package kv
