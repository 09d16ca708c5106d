// Package cf is the catalog: it keeps, for each family name, the numbers of the family's trees and
// its settings. The catalog is itself a tree of the store (txn.CatalogTree), so creating, dropping
// and renaming a family commits, rolls back and recovers like any other row.
//
// The functions work on one transaction and are as safe as that transaction: one goroutine at a
// time. Names, the cache of look-ups, is safe for concurrent use and is shared by all transactions
// of a store.
//
// The package knows names and numbers of trees. It does not know the meaning of a row, its expiry,
// the files, or the layout of a tree in pages.
package cf
