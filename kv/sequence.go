package kv

import "github.com/ebbkv/ebb/cf"

// NextSequence returns the next number of the family's sequence: 1, then 2, and so on. The number
// belongs to the transaction: a rollback takes it back, and after a crash the sequence is where the
// last surviving commit left it, so no two committed transactions get the same number. Clear and
// RenameCF keep the sequence, DropCF ends it. After the largest uint64 it returns ErrNotCounter.
func (v *verbs) NextSequence() (next uint64, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyAny(true); err != nil {
		return 0, err
	}
	next, err = cf.NextSequence(v.tx.inner, v.fam)
	return next, v.below(err)
}

// Sequence returns the number that NextSequence returned last; 0: none yet.
func (v *verbs) Sequence() (last uint64, err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyAny(false); err != nil {
		return 0, err
	}
	last, err = cf.Sequence(v.tx.inner, v.fam)
	return last, v.below(err)
}

// SetSequence makes last the number that NextSequence returned last, for copies of a store; 0: none
// yet. A number below the present one will be returned again.
func (v *verbs) SetSequence(last uint64) (err error) {
	defer v.tx.leave(v.tx.enter(), &err)
	if err := v.readyAny(true); err != nil {
		return err
	}
	return v.below(cf.SetSequence(v.tx.inner, v.fam, last))
}
