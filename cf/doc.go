// Package cf is the catalog: it keeps, for each family name, the numbers of the family's trees and
// its settings. The catalog is itself a tree of the store (txn.CatalogTree), so creating, dropping
// and renaming a family commits, rolls back and recovers like any other row.
//
// The functions work on one transaction and are as safe as that transaction: one goroutine at a
// time. Names, the cache of look-ups, is safe for concurrent use and is shared by all transactions
// of a store.
//
// The package knows names and numbers of trees. It does not know what a row of a family means, when
// a row expires, which files there are, or how a tree is laid out in pages.
package cf
