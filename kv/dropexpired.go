package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/txn"
)

// DropExpired drops the due partitions of a time-partitioned family within this transaction, at its
// instant, and returns their number: those whose newest possible row is older than the retention. A
// drop costs the same for any number of rows; the pages are freed later, in bounded steps. OnDrop is
// called first; its error undoes the whole call. ctx is checked before each OnDrop; nil means
// context.Background. PurgeExpired drops due partitions, too. Errors:
// ErrNotPartitioned, ErrClockJump (see PurgeOptions.Force), those of OnDrop and of ctx.
func (c *CF) DropExpired(ctx context.Context) (partitions int, err error) {
	if err := c.readyToDrop(); err != nil {
		return 0, err
	}
	s, err := c.tx.dropDue(background(ctx), []*familyView{&c.familyView})
	return s.partitions, err
}

func (c *CF) readyToDrop() (err error) {
	defer c.tx.leave(c.tx.enter(), &err)
	if err := c.readyTimed(true); err != nil {
		return err
	}
	return c.tx.db.mayDelete(false)
}

// DropExpired is CF.DropExpired in a transaction of its own, with the store's durability. Without a
// due partition it writes nothing and does not wait for other writers.
func (f *Family) DropExpired(ctx context.Context) (partitions int, err error) {
	p, err := f.db.purge(ctx, PurgeOptions{}, func(tx *txn.Tx) ([]*cf.Family, error) {
		fam, err := f.db.names.Lookup(tx, f.name)
		if err == nil && !fam.Partitioned() {
			err = fmt.Errorf("%w: %q", ErrNotPartitioned, f.name)
		}
		return []*cf.Family{fam}, err
	})
	return p.partitions, err
}

// dropped counts partitions that a call dropped, and their rows.
type dropped struct {
	partitions int
	rows       int64
}

// dropDue drops the due partitions of families at the instant of the transaction: all of them, or
// none after an error. The caller has not entered: OnDrop may use the transaction.
func (tx *Tx) dropDue(ctx context.Context, families []*familyView) (total dropped, err error) {
	if (tx.dropping != 0 || tx.expiring.depth > 0) && len(families) > 0 {
		return dropped{}, invalid("partitions cannot be dropped within OnDrop or OnExpireTx")
	}
	var start Savepoint
	if tx.db.onDrop != nil {
		start = tx.Savepoint()
	}
	var steps []purgeStep
	for _, v := range families {
		s, err := v.dropDue(ctx)
		if err != nil {
			if tx.db.onDrop != nil {
				err = errors.Join(err, tx.RollbackTo(start))
			}
			return dropped{}, err
		}
		if s.partitions > 0 {
			steps = append(steps, s)
			total.partitions += s.partitions
			total.rows += s.s.Keys
		}
	}
	if len(steps) > 0 {
		tx.OnCommit(func() { tx.db.purged.add(steps...) })
	}
	return total, nil
}

func (v *familyView) dropDue(ctx context.Context) (s purgeStep, err error) {
	list, err := v.duePartitions()
	if err != nil || len(list) == 0 {
		return purgeStep{}, err
	}
	for _, p := range list {
		if err := ctx.Err(); err != nil {
			return purgeStep{}, err
		}
		if err := v.notifyDrop(p); err != nil {
			return purgeStep{}, err
		}
	}
	return v.drop(list)
}

// duePartitions lists the partitions that are due at the instant of the transaction.
func (v *familyView) duePartitions() (list []cf.Partition, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyTimed(true); err != nil {
		return nil, err
	}
	list, err = v.timed().Due(v.tx.instant())
	if len(list) > 0 {
		v.tx.db.clock.observeExpired(v.tx.instant()) // also if the transaction is rolled back
	}
	return list, v.below(err)
}

// notifyDrop calls OnDrop, a callback, outside of the guard and of the lock.
func (v *familyView) notifyDrop(p cf.Partition) error {
	tx, fn := v.tx, v.tx.db.onDrop
	if fn == nil {
		return nil
	}
	managed := tx.managed
	tx.dropping, tx.managed = p.Tree, true
	defer func() { tx.dropping, tx.managed = 0, managed }()
	from, last := time.UnixMilli(p.Start), time.UnixMilli(p.Last)
	return fn(tx, v.name, from, last.Add(time.Millisecond))
}

// drop drops those of the partitions that OnDrop has left in place.
func (v *familyView) drop(list []cf.Partition) (s purgeStep, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyTimed(true); err != nil {
		return purgeStep{}, err
	}
	due, err := v.timed().Due(v.tx.instant())
	if err != nil {
		return purgeStep{}, v.below(err)
	}
	due = slices.DeleteFunc(due, func(p cf.Partition) bool { return !slices.Contains(list, p) })
	s = purgeStep{base: v.fam.Base, how: inTransaction, partitions: len(due)}
	for _, p := range due {
		bytes, err := v.timed().EstimateBytes(p)
		if err != nil {
			return purgeStep{}, v.below(err)
		}
		s.s.Bytes += bytes
	}
	s.s.Keys = v.timed().Rows(due)
	v.tx.catalog++ // Handles remember partitions.
	return s, v.below(cf.DropPartitions(v.tx.inner, v.fam, due))
}
