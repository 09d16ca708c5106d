package txn

import (
	"encoding/binary"
	"errors"
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
)

var errBadRedo = errors.New("redo does not decode")

// replay applies one commit to the state before it. The clock is not looked at.
func (s *Store) replay(w *writer, payload []byte) error {
	if len(payload) < redoHead {
		return fmt.Errorf("%w: %d bytes", errBadRedo, len(payload))
	}
	seq := binary.LittleEndian.Uint64(payload)
	mark := int64(binary.LittleEndian.Uint64(payload[8:]))
	if seq != s.head.seq+1 {
		return fmt.Errorf("%w: commit %d follows commit %d", errBadRedo, seq, s.head.seq)
	}
	for rest := payload[redoHead:]; len(rest) > 0; {
		if err := w.spill(); err != nil {
			return err
		}
		r, more, err := decodeRedo(rest)
		if err != nil {
			return fmt.Errorf("%w: %w", errBadRedo, err)
		}
		if err := w.apply(r); err != nil {
			return err
		}
		rest = more
	}
	h := *s.head // nobody has seen it yet: the version of a store that is being opened
	h.seq, h.mark = seq, mark
	s.head = &h
	return nil
}

func (w *writer) apply(r redo) error {
	if r.id >= trashBit || r.id == 0 {
		return fmt.Errorf("%w: tree %d", errBadRedo, r.id)
	}
	key := r.op == opPut || r.op == opPutTag || r.op == opDelete || r.op == opSetTag
	if key && (len(r.key) == 0 || len(r.key) > tree.MaxKey(w.PageSize()) || len(r.value) > tree.MaxValue) {
		return fmt.Errorf("%w: key of %d bytes, value of %d", errBadRedo, len(r.key), len(r.value))
	}
	var err error
	switch r.op {
	case opPut, opPutTag:
		_, err = w.put(r.id, r.key, r.value, r.tag)
	case opDelete:
		_, err = w.delete(r.id, r.key)
	case opRange:
		_, err = w.deleteRange(r.id, r.key, r.value)
	case opSetTag:
		_, err = w.setTag(r.id, r.key, r.tag)
	case opNextTree:
		w.nextID = max(w.nextID, r.id)
	default:
		err = w.shape(r.op, r.id)
	}
	return err
}
