package txn

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/pager"
)

// A LogOp is one operation of a commit in the log.
type LogOp struct{ redo redo }

// Tree is the tree that the operation changes. For the number of a tree to come it is that.
func (o LogOp) Tree() TreeID { return o.redo.id }

// Row is the row that a put writes, nil for other operations.
func (o LogOp) Row() (key, value []byte) {
	if o.redo.op == opPut || o.redo.op == opPutTag {
		return o.redo.key, o.redo.value
	}
	return nil, nil
}

// Extent is the place of a value that is not in the log, its size, and the checksum of the extent.
func (o LogOp) Extent() (ref pager.Ref, size int, sum uint64, ok bool) {
	return o.redo.ref, o.redo.size, o.redo.sum, o.redo.op == opPutNamed
}

// Leaves calls fn for each leaf that the operation names instead of its rows.
func (o LogOp) Leaves(fn func(ref pager.Ref, sum uint64) error) error {
	for i := range o.redo.leaves {
		ref := pager.Ref{Pgid: o.redo.ref.Pgid + pager.Pgid(i), Epoch: o.redo.ref.Epoch}
		if err := fn(ref, binary.LittleEndian.Uint64(o.redo.sums[sumSize*i:])); err != nil {
			return err
		}
	}
	return nil
}

// Apply changes the rows of tree id as the operation did. value is that of the extent, if there is
// one. It does nothing for leaves, nor where the tree is missing.
func (o LogOp) Apply(tx *Tx, id TreeID, value []byte) (err error) {
	r := &o.redo
	switch {
	case r.op == opNextTree || r.op == opLeaves:
	case r.op == opCreate && !tx.Exists(id):
		err = tx.Create(id)
	case !tx.Exists(id):
	case r.op == opPut || r.op == opPutTag:
		_, err = tx.Put(id, r.key, r.value, r.tag)
	case r.op == opPutNamed:
		_, err = tx.Put(id, r.key, value, r.tag)
	case r.op == opDelete:
		_, err = tx.Delete(id, r.key)
	case r.op == opRange:
		_, err = tx.DeleteRange(id, r.key, r.value)
	case r.op == opSetTag:
		var was Info
		if was, err = tx.Info(id, r.key); err == nil && was.Found {
			_, err = tx.SetTag(id, r.key, r.tag)
		}
	case r.op == opDrop:
		err = tx.Drop(id)
	case r.op == opClear:
		err = tx.Clear(id)
	}
	return err
}

// A LogOpReader decodes the payloads of commits, part by part. It holds one operation.
type LogOpReader struct {
	Mark int64 // of the last commit: see Tx.SetMark
	redoReader
}

// Take decodes a part, the first one of a commit if first is set, and calls fn for each operation
// that ends in it. Slices of an operation are valid until fn returns.
func (r *LogOpReader) Take(part []byte, first, last bool, fn func(LogOp) error) error {
	if first {
		r.begin()
	}
	rest, err := r.take(part, func(op redo, _ []byte) error { return fn(LogOp{op}) })
	if err != nil {
		return err
	}
	r.keep(rest)
	r.Mark = r.mark
	if last {
		return r.end()
	}
	return nil
}

// A redoReader decodes the redo of commits, part by part.
type redoReader struct {
	seq    uint64 // of the current commit
	mark   int64  // of the current commit
	headed bool   // they were read
	carry  []byte // incomplete operation, or incomplete head of the redo
}

// begin starts a commit.
func (d *redoReader) begin() { d.carry, d.headed = d.carry[:0], false }

// take decodes the next part of a commit and calls fn for each operation that ends in it, which raw
// encodes; slices of both are valid until fn returns. The rest is an incomplete operation or head:
// unless the caller reads the operation itself, it calls keep.
func (d *redoReader) take(part []byte, fn func(r redo, raw []byte) error) (rest []byte, err error) {
	b := part
	if len(d.carry) > 0 {
		d.carry = append(d.carry, part...)
		b = d.carry
	}
	if !d.headed {
		if len(b) < redoHead {
			return b, nil
		}
		d.seq, d.mark = binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:]))
		d.headed, b = true, b[redoHead:]
	}
	for len(b) > 0 {
		r, rest, err := decodeRedo(b)
		if errors.Is(err, errShortRedo) {
			return b, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBadRedo, err)
		}
		if err := fn(r, b[:len(b)-len(rest)]); err != nil {
			return nil, err
		}
		b = rest
	}
	return nil, nil
}

// keep keeps the rest of a part for the next one. That of an operation which goes on is not copied
// for each of its parts.
func (d *redoReader) keep(rest []byte) {
	if len(rest) > 0 && len(rest) == len(d.carry) && &rest[0] == &d.carry[0] {
		return
	}
	d.carry = append(d.carry[:0], rest...)
}

// end says that the commit has no more parts.
func (d *redoReader) end() error {
	if !d.headed || len(d.carry) > 0 {
		return d.short()
	}
	return nil
}

// short is the error of a commit that ends within an operation.
func (d *redoReader) short() error { return fmt.Errorf("%w: %w", errBadRedo, errShortRedo) }
