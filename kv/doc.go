// Package kv is the public API of Ebb: an embedded key-value store of ordered byte strings in
// named column families, kept in one file with a write-ahead log beside it.
//
//	db, err := kv.Open("app.ebb", nil)
//	...
//	err = db.Update(func(tx *kv.Tx) error {
//		return tx.Put([]byte("greeting"), []byte("hello"))
//	})
//
// A transaction reads one committed snapshot at one instant. Any number of read transactions run
// concurrently with one write transaction; no transaction waits for a reader. A commit that
// returned nil survives any crash, all of it; Durability has the one relaxed form. Column families
// are separate key spaces that one transaction may span. Prose says "family" and code says CF: the
// two are the same. The family "default" always exists; *DB and *Tx use it when a call names none.
//
// A key may have an expiry. Expired keys are absent for every call at the same instant. The store
// deletes them in transactions of its own: by PurgeExpired, or by eviction after a read found them.
// See docs/ttl.md.
//
// *DB and *Family are safe for concurrent use. A *Tx, and every *CF, iterator and *Cursor of it,
// belongs to one goroutine at a time. Slices that a transaction returns are read-only and valid
// until it ends: afterwards the store may reuse or unmap their memory, and a program that still
// reads them may be killed by a fault. One-shot calls return copies. The methods for keys and ranges
// are documented once, at Tx. CF has the same ones for another family; DB, and the Family of DB.CF,
// have them as one-shot transactions. A nil context means context.Background. A call that needs the
// writer lock waits for the open write transaction until its context ends: see DB.Update.
//
// An idle store has no goroutine, unless Options.AutoPurge asks for one. Checkpoints and the
// preallocation of log segments end by themselves, and so does what gives unused space on the disk
// back, once, half a minute after the last commit. The package knows neither page layout nor record
// layout nor files; it maps the errors of the layers below to those listed in errors.go.
package kv
