package kv

import (
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/txn"
)

// CF is a column family in a transaction. It has the methods for keys and ranges that *Tx has for
// "default"; each is documented there. Every call on an absent family returns ErrCFNotFound, on one
// that this transaction dropped ErrCFDropped.
type CF struct{ txMethods }

// Family is a column family outside of transactions. It has the one-shot methods that *DB has for
// the keys of "default"; a method without a comment is that of CF in a transaction of its own. Each
// looks the family up by its name. A Family is safe for concurrent use.
type Family struct{ dbMethods }

// Aliases: documentation lists the methods of an embedded unexported struct with each type that
// embeds it, and those of an alias not at all. So *Tx, *DB and *Batch alone list them.
type (
	txMethods    = verbs
	dbMethods    = oneShot
	batchMethods = batchVerbs
)

// CF returns a handle on a family. It never fails: calls on the handle do. The handle stays bound to
// the family that it found, also when this transaction renames it.
func (tx *Tx) CF(name string) *CF {
	tx.lock()
	defer tx.unlock()
	if h := tx.handles[name]; h != nil && h.current() {
		return h
	}
	h := &CF{verbs{familyView{tx: tx, name: name}}}
	if tx.inner != nil {
		if tx.handles == nil {
			tx.handles = make(map[string]*CF)
		}
		tx.handles[name] = h
	}
	return h
}

// family returns the methods of a family. The transaction's own need no look-up of the handle.
func (tx *Tx) family(name string) *verbs {
	if name == tx.verbs.name {
		return &tx.verbs
	}
	return &tx.CF(name).txMethods
}

// current says whether a handle is still bound to the family of its name. A handle that found none
// looks up again at each call.
func (v *familyView) current() bool {
	if v.at == v.tx.catalog || v.fam == nil || v.tx.inner == nil {
		return !v.dropped && (v.fam == nil || v.fam.Name == v.name) // false after a rename
	}
	var fam *cf.Family
	// CF returns no error: calls on a new handle return it.
	err := v.tx.db.guarded(func() (err error) {
		fam, err = cf.Lookup(v.tx.inner, v.name)
		return err
	})
	return err == nil && fam.Base == v.fam.Base
}

// CF returns the one-shot methods of a family. It never fails: calls on the result do.
func (db *DB) CF(name string) *Family { return &Family{oneShot{db: db, name: name}} }

// Name returns the name that CF was called with.
func (c *CF) Name() string { return c.name }

// Name returns the name that CF was called with.
func (f *Family) Name() string { return f.name }

// resolve finds the family of a handle, again after each change of the catalog by this transaction.
// The caller has entered, and the transaction is open.
func (v *familyView) resolve() error {
	if v.fam != nil && v.at == v.tx.catalog && !v.dropped {
		return nil
	}
	return v.resolveAnew()
}

func (v *familyView) resolveAnew() error {
	fam, err := v.lookup()
	switch {
	case err == nil:
		v.fam = fam
	case v.fam != nil && errors.Is(err, cf.ErrNotFound):
		err = fmt.Errorf("%w: %q", ErrCFDropped, v.name)
	default:
		return fromBelow(err)
	}
	v.at, v.dropped = v.tx.catalog, err != nil
	return err
}

// lookup finds the family by name, or, for a handle that is bound to a family, that family under its
// present name.
func (v *familyView) lookup() (*cf.Family, error) {
	tx := v.tx
	if tx.db.placeholder != nil && v.name == cf.Default {
		return tx.db.placeholder, nil
	}
	if tx.catalog == 0 {
		return tx.db.names.Lookup(tx.inner, v.name)
	}
	fam, err := cf.Lookup(tx.inner, v.name)
	switch {
	case v.fam == nil || (err == nil && fam.Base == v.fam.Base):
		return fam, err
	case err != nil && !errors.Is(err, cf.ErrNotFound):
		return nil, err
	}
	return cf.FindBase(tx.inner, v.fam.Base)
}

// change runs a change of the catalog. old, unless empty, is the name of a family that loses it: a
// handle of that name that was not used yet is bound to the family first.
func (tx *Tx) change(old string, fn func() error) (err error) {
	defer tx.leave(tx.enter(), &err)
	if err := tx.alive(true); err != nil {
		return err
	}
	if tx.expiring.depth > 0 { // A purge is in the middle of a family.
		return invalid("families cannot be changed within OnExpireTx")
	}
	if h := tx.handles[old]; h != nil && old != "" {
		_ = h.resolve() // Calls on h return the error.
	}
	tx.catalog++ // Before fn: a change that fails half-way is a change.
	return fromBelow(fn())
}

// CreateCF creates a family: ErrCFExists if the name is taken, ErrCFName or ErrCFReserved if it is
// not allowed, ErrInvalidTTL for a negative default ttl.
func (tx *Tx) CreateCF(name string, o CFOptions) error {
	return tx.change("", func() error {
		stored, err := o.check()
		if err == nil {
			_, err = cf.Create(tx.inner, name, stored)
		}
		return err
	})
}

// EnsureCF creates a family if it is absent, with the errors of CreateCF but ErrCFExists. An
// existing one keeps its options: AlterCF changes them.
func (tx *Tx) EnsureCF(name string, o CFOptions) error {
	if err := tx.check(true); err != nil {
		return err
	}
	if _, err := o.check(); err != nil {
		return err
	}
	if there, err := tx.hasCF(name); err != nil || there {
		return err
	}
	return tx.CreateCF(name, o)
}

// AlterCF changes the options of a family, for later writes; present keys keep their expiry.
// ErrCFNotFound if it is absent, ErrInvalidTTL for a negative default ttl.
func (tx *Tx) AlterCF(name string, o CFOptions) error {
	return tx.change("", func() error {
		stored, err := o.check()
		if err == nil {
			err = cf.Alter(tx.inner, name, stored)
		}
		return err
	})
}

// CFOptions returns the options of a family in this snapshot, in whole milliseconds. ErrCFNotFound
// if it is absent, ErrCFName or ErrCFReserved if the name is not allowed.
func (tx *Tx) CFOptions(name string) (o CFOptions, err error) {
	defer tx.leave(tx.enter(), &err)
	if err := tx.alive(false); err != nil {
		return CFOptions{}, err
	}
	if tx.db.placeholder != nil && name == tx.db.placeholder.Name {
		return optionsOf(tx.db.placeholder), nil
	}
	f, err := cf.Lookup(tx.inner, name)
	if err != nil {
		return CFOptions{}, fromBelow(err)
	}
	return optionsOf(f), nil
}

// DropCF removes a family and all its rows, in time independent of their number. The name is free at
// once. ErrCFNotFound if it is absent, ErrCFReserved for "default".
func (tx *Tx) DropCF(name string) error {
	return tx.change(name, func() error { return cf.Drop(tx.inner, name) })
}

// RenameCF renames a family. ErrCFExists if the new name is taken, ErrCFName or ErrCFReserved if it
// is not allowed; ErrCFNotFound if the family is absent, ErrCFReserved for "default".
func (tx *Tx) RenameCF(old, new string) error {
	return tx.change(old, func() error { return cf.Rename(tx.inner, old, new) })
}

// ListCFs returns the names of all families, sorted, "default" included.
func (tx *Tx) ListCFs() (names []string, err error) {
	var damage []*Damage
	names, err = tx.listCFs(&damage)
	for _, d := range damage {
		if err == nil {
			err = tx.reportDamage(d)
		}
	}
	return names, err
}

// listCFs is ListCFs for a caller that has entered. With an OnDamage function it appends damage to
// the list and continues behind it.
func (tx *Tx) listCFs(damage *[]*Damage) (names []string, err error) {
	defer tx.leave(tx.enter(), &err)
	if err := tx.alive(false); err != nil {
		return nil, err
	}
	if tx.db.placeholder != nil {
		names = append(names, tx.db.placeholder.Name)
	}
	var lost func(txn.Gap)
	if tx.onDamage != nil {
		lost = func(g txn.Gap) { *damage = append(*damage, damageOf(g)) }
	}
	err = cf.EachOver(tx.inner, lost, func(f *cf.Family) bool {
		names = append(names, f.Name)
		return true
	})
	return names, fromBelow(err)
}

func (db *DB) CreateCF(name string, o CFOptions) error {
	return db.Update(func(tx *Tx) error { return tx.CreateCF(name, o) })
}

// EnsureCF is Tx.EnsureCF in a transaction of its own: a read transaction if the family exists.
func (db *DB) EnsureCF(name string, o CFOptions) error {
	if err := db.state(true); err != nil {
		return err
	}
	if _, err := o.check(); err != nil {
		return err
	}
	there := false
	err := db.View(func(tx *Tx) error {
		var err error
		there, err = tx.hasCF(name)
		return err
	})
	if err != nil || there {
		return err
	}
	return db.Update(func(tx *Tx) error { return tx.EnsureCF(name, o) })
}

// hasCF says whether a family exists.
func (tx *Tx) hasCF(name string) (ok bool, err error) {
	_, err = tx.CF(name).Count()
	if errors.Is(err, ErrCFNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (db *DB) AlterCF(name string, o CFOptions) error {
	return db.Update(func(tx *Tx) error { return tx.AlterCF(name, o) })
}

func (db *DB) CFOptions(name string) (o CFOptions, err error) {
	err = db.View(func(tx *Tx) error {
		o, err = tx.CFOptions(name)
		return err
	})
	return o, err
}

func (db *DB) DropCF(name string) error {
	return db.Update(func(tx *Tx) error { return tx.DropCF(name) })
}

func (db *DB) RenameCF(old, new string) error {
	return db.Update(func(tx *Tx) error { return tx.RenameCF(old, new) })
}

func (db *DB) ListCFs() (names []string, err error) {
	err = db.View(func(tx *Tx) error {
		names, err = tx.ListCFs()
		return err
	})
	return names, err
}
