package kv

import (
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/ttl"
)

// The changes of many writes are known before they are applied: those of rows in a family where no
// key has or gets an expiry. The log writes their record meanwhile. See txn.Tx.SubmitLog.

// encodeRedo submits the log record of the batch before the apply, if its changes are known. An error
// is the error that the apply would return.
func (b *batchOps) encodeRedo(tx *Tx, families []*verbs) (err error) {
	if b.fullPath || !tx.canSubmitLog(len(families), b.n, len(b.buf), b.longestValue) {
		return nil
	}
	for i := range families {
		b.verbs(tx, families, i)
	}
	defer tx.leave(tx.enter(), &err)
	for i, v := range families {
		if b.used[i] && !v.noExpiries() {
			return nil
		}
	}
	var c ttl.Change
	var usual defaultExpiry // none: noExpiries
	for rest := b.buf; len(rest) > 0; {
		v := families[numberOf(rest)]
		if rest, err = v.decode(rest, &c, &usual); err != nil {
			return err
		}
		tx.inner.EncodeRedo(v.fam.Data(), &c)
	}
	return fromBelow(tx.inner.SubmitLog())
}

// encodeRedo does the same for one-shot writes that share the transaction, if all are of the leader's
// family.
func (tx *Tx) encodeRedo(group []*writeRequest) (err error) {
	bytes, longest := 0, 0
	for _, one := range group {
		if one.call != nil || needsFullPath(one.row.kind) || one.family != tx.verbs.name {
			return nil
		}
		bytes += len(one.row.first) + len(one.row.second)
		longest = max(longest, len(one.row.second))
	}
	if bytes > maxGroupBytes || !tx.canSubmitLog(1, len(group), bytes, longest) {
		return nil
	}
	v := &tx.verbs
	defer tx.leave(tx.enter(), &err)
	if !v.noExpiries() {
		return nil
	}
	var c ttl.Change
	for _, one := range group {
		if v.change(&one.row, &c) != nil {
			return nil // The apply returns the error.
		}
	}
	for _, one := range group {
		_ = v.change(&one.row, &c)
		tx.inner.EncodeRedo(v.rows().Family.Data(), &c)
	}
	return fromBelow(tx.inner.SubmitLog())
}

// needsFullPath says that the changes of an operation of that kind are not known before the apply,
// or that it gives its key an expiry.
func needsFullPath(kind byte) bool { return kind != opPut && kind != opDelete }

// noExpiries says that the family exists, and that no key of it has an expiry, nor gets one from a
// put. The caller has entered.
func (v *verbs) noExpiries() bool {
	return v.ready(true) == nil && !v.fam.NoTrees() && v.fam.Options.DefaultTTLMs == 0 && !v.rows().HasExpiries()
}

func (tx *Tx) canSubmitLog(trees, changes, bytes, longest int) bool {
	tx.lock()
	defer tx.unlock()
	return tx.inner != nil && tx.inner.CanSubmitLog(trees, changes, bytes, longest)
}

// revokeErr ends the transaction of a call that failed with err, and returns its error: the next Open
// may find a record that was submitted and could not be revoked.
func (tx *Tx) revokeErr(err error) error {
	if err == nil {
		return nil
	}
	tx.finish(ErrTxnDone)
	if errors.Is(tx.ended, ErrCommitUnknown) && !errors.Is(err, ErrCommitUnknown) {
		return fmt.Errorf("%w, after: %w", tx.ended, err)
	}
	return err
}
