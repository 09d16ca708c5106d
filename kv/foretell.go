package kv

import (
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/ttl"
)

// Of many writes it is known what they will change before they are carried out: of rows in a family where no key has an expiry, or
// gets one. The log has them written meanwhile. See txn.Tx.LogAhead.

// foretell has the log written while the batch is carried out, if it is known what that will change. An error is what carrying it out would
// have come to.
func (b *batchOps) foretell(tx *Tx, families []*verbs) (err error) {
	if b.odd || !tx.mayLogAhead(len(families), b.n, len(b.buf), b.longestValue) {
		return nil
	}
	for i := range families {
		b.verbs(tx, families, i)
	}
	defer tx.leave(tx.enter(), &err)
	for i, v := range families {
		if b.used[i] && !v.plain() {
			return nil
		}
	}
	var c ttl.Change
	var usual usualExpiry // none: the families are plain
	for rest := b.buf; len(rest) > 0; {
		v := families[numberOf(rest)]
		if rest, err = v.decode(rest, &c, &usual); err != nil {
			return err
		}
		tx.inner.Foretell(v.fam.Data(), &c)
	}
	return fromBelow(tx.inner.LogAhead())
}

// foretell is that of a batch for one-shot writes that share the transaction, and are all of the leader's family.
func (tx *Tx) foretell(group []*shot) (err error) {
	bytes, longest := 0, 0
	for _, one := range group {
		if one.call != nil || odd(one.row.kind) || one.family != tx.verbs.name {
			return nil
		}
		bytes += len(one.row.first) + len(one.row.second)
		longest = max(longest, len(one.row.second))
	}
	if bytes > sharedBytes || !tx.mayLogAhead(1, len(group), bytes, longest) {
		return nil
	}
	v := &tx.verbs
	defer tx.leave(tx.enter(), &err)
	if !v.plain() {
		return nil
	}
	var c ttl.Change
	for _, one := range group {
		if v.change(&one.row, &c) != nil {
			return nil // It is told by itself.
		}
	}
	for _, one := range group {
		_ = v.change(&one.row, &c)
		tx.inner.Foretell(v.rows().Family.Data(), &c)
	}
	return fromBelow(tx.inner.LogAhead())
}

// odd says that an operation of that kind does not tell what it will change, or gives its key an expiry.
func odd(kind byte) bool { return kind != opPut && kind != opDelete }

// plain says that the family is there, and that no key of it has an expiry, nor gets one from a plain put. The caller has entered.
func (v *verbs) plain() bool {
	return v.ready(true) == nil && !v.fam.Hollow() && v.fam.Options.DefaultTTLMs == 0 && !v.rows().Timed()
}

func (tx *Tx) mayLogAhead(trees, changes, bytes, longest int) bool {
	tx.lock()
	defer tx.unlock()
	return tx.inner != nil && tx.inner.MayLogAhead(trees, changes, bytes, longest)
}

// expect says that so many changes are going to come.
func (tx *Tx) expect(changes int) {
	tx.lock()
	defer tx.unlock()
	if tx.inner != nil {
		tx.inner.Expect(changes)
	}
}

// undone ends the transaction of a call that has come to err, and says what became of it: a record that was written ahead, and could
// not be taken back, may be found by the next Open.
func (tx *Tx) undone(err error) error {
	if err == nil {
		return nil
	}
	tx.finish(ErrTxnDone)
	if errors.Is(tx.ended, ErrCommitUnknown) && !errors.Is(err, ErrCommitUnknown) {
		return fmt.Errorf("%w, after: %w", tx.ended, err)
	}
	return err
}
