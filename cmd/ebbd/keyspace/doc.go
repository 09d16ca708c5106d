// Package keyspace stores the keys of Redis in an Ebb store: strings, hashes, lists, sets and
// sorted sets of numbered databases.
//
// Database n has two families. "m<n>" has one master row for each key: the prefix byte 'k' and the
// user's key -> the type byte and, of a string, its bytes, else the id of the collection and its
// counts. The expiry of a key is Ebb's expiry of this row. "e<n>" has the element rows of
// collections, under their id:
//
//	id                                        -> the user's key (header row, one for each collection)
//	id 'f' field                              -> value, with the expiry of the field (hash)
//	id 'l' position, sign bit flipped         -> element (list)
//	id 'm' member                             -> empty (set), score (sorted set)
//	id 's' score in order-preserving form, member -> empty (sorted set)
//	8 zero bytes, id                          -> empty: rows of this id are to be reclaimed
//
// Numbers are big-endian, 8 bytes. Ids rise and are never used twice: a collection whose master row
// is gone or names another id is dead, whatever rows it has left, and no command reads them.
// Deletion, renaming and expiry of a collection touch its master row and at most two more; Reclaim
// deletes the dead rows in bounded steps. A master row that expires retires its collection in the
// transaction that deletes it, see OnExpireTx. Sweep finds what a purge by another program has left.
//
// A Space belongs to one transaction, and with it to one goroutine. Store is safe for concurrent
// use.
//
// The package knows no protocol, no commands and no connections.
package keyspace
