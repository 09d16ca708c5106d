package cf

import (
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/txn"
)

// Errors of this package. kv maps them to its own.
var (
	ErrExists   = errors.New("cf: family exists")
	ErrNotFound = errors.New("cf: no such family")
	ErrName     = errors.New("cf: family name not allowed")
	ErrReserved = errors.New("cf: family is reserved")
	ErrOptions  = errors.New("cf: family options not allowed")
)

// Lookup reads the entry of a family from tx: ErrNotFound if there is none, ErrName or ErrReserved if
// the name is not allowed.
func Lookup(tx *txn.Tx, name string) (*Family, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	value, _, found, err := tx.Get(txn.CatalogTree, []byte(name))
	if err != nil {
		return nil, fmt.Errorf("read catalog: %w", err)
	}
	if !found {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	f, err := decodeEntry(name, value)
	if err == nil && !tx.Exists(f.Data()) {
		return nil, badfile.At("", -1, "catalog: family %q: data tree %d is missing", name, f.Data())
	}
	return f, err
}

// changeBytes bounds the redo of a change of the catalog beside the names in it. Create, Drop and
// Rename reserve it before they begin: a change refused half-way would leave trees without an entry,
// or an entry without trees, in a transaction that can still commit.
const changeBytes = 160

// Create creates a family with an empty data tree. ErrExists if the name is taken.
func Create(tx *txn.Tx, name string, o Options) (*Family, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := mustBeFree(tx, name); err != nil {
		return nil, err
	}
	if err := tx.EnsureTxnBytes(len(name) + changeBytes); err != nil {
		return nil, err
	}
	base, err := tx.NewTreeIDs(treesPerFamily)
	if err != nil {
		return nil, err
	}
	f := &Family{Name: name, Base: base, Options: o}
	if err := tx.Create(f.Data()); err != nil {
		return nil, err
	}
	return f, put(tx, f)
}

// Alter changes the settings of a family. Present rows keep their expiries; those of a
// time-partitioned family follow its retention. ErrOptions if the family would become
// time-partitioned, or stop to be.
func Alter(tx *txn.Tx, name string, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	f, err := Lookup(tx, name)
	if err != nil {
		return err
	}
	if n := (&Family{Name: f.Name, Base: f.Base, Options: o}); n.Partitioned() == f.Partitioned() {
		return put(tx, n)
	}
	return fmt.Errorf("%w: %q: a family is time-partitioned from its creation on or never", ErrOptions, name)
}

// Adopt creates a family with the settings and the tree numbers of f, which no other family has.
func Adopt(tx *txn.Tx, f *Family) error {
	if err := f.Options.check(); err != nil {
		return err
	}
	return put(tx, f)
}

// Drop removes a family with all its trees, in time independent of its number of rows.
func Drop(tx *txn.Tx, name string) error {
	if name == Default {
		return fmt.Errorf("%w: %q cannot be dropped", ErrReserved, name)
	}
	f, err := Lookup(tx, name)
	if err != nil {
		return err
	}
	list, err := AllPartitions(tx, f)
	if err != nil {
		return err
	}
	if err := tx.EnsureTxnBytes(len(name) + changeBytes + len(list)*dropPartitionBytes); err != nil {
		return err
	}
	if err := DropPartitions(tx, f, list); err != nil {
		return err
	}
	for id := f.Base; id < f.Base+treesPerFamily; id++ {
		if !tx.Exists(id) {
			continue
		}
		if err := tx.Drop(id); err != nil {
			return err
		}
	}
	_, err = tx.Delete(txn.CatalogTree, []byte(name))
	return err
}

// Rename renames a family; the new name must be free. Its trees, rows and settings stay.
func Rename(tx *txn.Tx, from, to string) error {
	if from == Default {
		return fmt.Errorf("%w: %q cannot be renamed", ErrReserved, from)
	}
	if err := CheckName(to); err != nil {
		return err
	}
	f, err := Lookup(tx, from)
	if err != nil {
		return err
	}
	if err := mustBeFree(tx, to); err != nil {
		return err
	}
	if err := tx.EnsureTxnBytes(len(from) + len(to) + changeBytes); err != nil {
		return err
	}
	if _, err := tx.Delete(txn.CatalogTree, []byte(from)); err != nil {
		return err
	}
	return put(tx, &Family{Name: to, Base: f.Base, Options: f.Options})
}

// Each visits all families in the order of their names until visit returns false. visit must not
// change the catalog.
func Each(tx *txn.Tx, visit func(*Family) bool) error { return EachOver(tx, nil, visit) }

// EachOver is Each that continues behind unreadable pages of the catalog, unless lost is nil: it
// calls lost for each.
func EachOver(tx *txn.Tx, lost func(txn.Gap), visit func(*Family) bool) error {
	c := tx.Cursor(txn.CatalogTree)
	if lost != nil {
		c.OverGaps()
	}
	next := func(ok bool) bool {
		for !ok {
			g, gap := c.Gap()
			if !gap {
				break
			}
			lost(g)
			ok = c.Skip(true)
		}
		return ok
	}
	for ok := next(c.First()); ok; ok = next(c.Next()) {
		f, err := decodeEntry(string(c.Key()), c.Value())
		if err != nil {
			return err
		}
		if !visit(f) {
			return nil
		}
	}
	if err := c.Err(); err != nil {
		return fmt.Errorf("read catalog: %w", err)
	}
	return nil
}

// FindBase finds a family by its first tree number: ErrNotFound if it was dropped. It reads the
// whole catalog; only a purge of a renamed family needs it.
func FindBase(tx *txn.Tx, base txn.TreeID) (*Family, error) {
	var found *Family
	err := Each(tx, func(f *Family) bool {
		if f.Base == base {
			found = f
		}
		return found == nil
	})
	if err == nil && found == nil {
		err = fmt.Errorf("%w: tree %d", ErrNotFound, base)
	}
	return found, err
}

// Check verifies the catalog of one transaction: every entry decodes, no two families share a tree
// number, every data tree exists, every tree belongs to a family, and every row of a metadata tree
// decodes. report gets each finding; it returns false to stop. Unreadable pages of metadata trees are
// left to the check of the pages.
func Check(tx *txn.Tx, report func(family string, err error) bool) {
	owner := make(map[txn.TreeID]string)
	known := true // every readable entry names its trees
	var families []*Family
	c := tx.Cursor(txn.CatalogTree)
	for ok := c.First(); ok; ok = c.Next() {
		name := string(c.Key())
		f, err := decodeEntry(name, c.Value())
		switch {
		case err != nil:
			known = false
		case !tx.Exists(f.Data()):
			err = badfile.At("", -1, "catalog: family %q: data tree %d is missing", name, f.Data())
			known = false
		default:
			unreadable := EachTree(tx, f, func(id txn.TreeID) {
				if other, taken := owner[id]; taken && err == nil {
					err = badfile.At("", -1, "catalog: tree %d belongs to families %q and %q", id,
						other, name)
				}
				owner[id] = name
			})
			known = known && unreadable == nil
			families = append(families, f)
		}
		if err != nil && !report(name, err) {
			return
		}
	}
	if err := c.Err(); err != nil {
		report("", fmt.Errorf("read catalog: %w", err))
		return
	}
	for _, id := range tx.Trees() {
		if _, taken := owner[id]; known && !taken && id != txn.CatalogTree &&
			!report("", badfile.At("", -1, "catalog: tree %d belongs to no family", id)) {
			return
		}
	}
	for _, f := range families {
		for _, check := range [...]func(*txn.Tx, *Family) error{checkMetadata, checkPartitions} {
			if err := check(tx, f); err != nil && !report(f.Name, err) {
				return
			}
		}
	}
}

func mustBeFree(tx *txn.Tx, name string) error {
	_, err := Lookup(tx, name)
	switch {
	case err == nil:
		return fmt.Errorf("%w: %q", ErrExists, name)
	case errors.Is(err, ErrNotFound):
		return nil
	}
	return err
}

func put(tx *txn.Tx, f *Family) error {
	_, err := tx.Put(txn.CatalogTree, []byte(f.Name), appendEntry(nil, f), 0)
	return err
}
