package ttl

import (
	"slices"
	"sync"

	"github.com/ebbkv/ebb/internal/keyorder"
	"github.com/ebbkv/ebb/internal/offheap"
	"github.com/ebbkv/ebb/txn"
)

// IndexBuffer buffers index changes of rows that were put or deleted, until many rows have been
// applied. Then their log record can be encoded before they are applied, and the rows of the expiry
// index are sorted: those of a batch, which are adjacent as a rule, are put one after the other. The
// zero value is empty.
type IndexBuffer struct {
	rows  []Change // of the family, if no row has an expiry; the caller's
	keys  []Change // of the key index, in the order of the rows
	due   []Change // of the expiry index, in the order of the rows
	slab  []byte   // keys of due rows
	bytes int      // of keys and values

	order   keyorder.Run // of due
	places  offheap.List[uint32]
	ordered []Change // due, in the order of its keys; nil: not sorted yet

	was  []txn.Info // memory for the rows before a change
	runs []txn.Run  // memory for Runs
}

// Len is the number of changes of indexes.
func (e *IndexBuffer) Len() int { return len(e.keys) + len(e.due) }

// logBytes is an upper bound of their log bytes.
func (e *IndexBuffer) logBytes() int { return e.bytes + e.Len()*opOverhead }

// Reset empties the buffer, and keeps its memory.
func (e *IndexBuffer) Reset() {
	e.rows = nil
	clear(e.keys)
	clear(e.runs)
	clear(e.due)
	clear(e.ordered)
	e.keys, e.due, e.slab = e.keys[:0], e.due[:0], e.slab[:0]
	e.places.All, e.ordered, e.bytes = e.places.All[:0], e.ordered[:0], 0
	e.order.Reset()
}

// add adds the index changes of rows: was are the rows before. Keys of changes must stay unchanged
// until Reset.
func (e *IndexBuffer) add(changes []Change, was []txn.Info) {
	for i := range changes {
		key, old, expiry := changes[i].Key, was[i].Tag, changes[i].Tag
		if old == expiry {
			continue
		}
		if old != 0 {
			e.addRow(old, key, true)
		}
		if expiry == 0 {
			e.keys = append(e.keys, Change{Key: key, Delete: true})
			e.bytes += len(key)
			continue
		}
		due := e.addRow(expiry, key, false)
		e.keys = append(e.keys, Change{Key: key, Value: due[:expirySize:expirySize]})
		e.bytes += len(due)
	}
}

// addRow adds a put or a delete of a row of the expiry index.
func (e *IndexBuffer) addRow(expiry int64, key []byte, remove bool) []byte {
	from := len(e.slab)
	e.slab = appendDue(e.slab, expiry, key)
	due := e.slab[from:len(e.slab):len(e.slab)]
	e.order.Add(due, uint32(len(e.due)))
	e.due = append(e.due, Change{Key: due, Delete: remove})
	e.bytes += len(due)
	return due
}

func (e *IndexBuffer) dueInOrder() []Change {
	if len(e.ordered) == 0 {
		e.order.Places(&e.places, func(place uint32) []byte { return e.due[place].Key })
		for _, i := range e.places.All {
			e.ordered = append(e.ordered, e.due[i])
		}
	}
	return e.ordered
}

// infos returns memory for n rows, valid until the next call.
func (e *IndexBuffer) infos(n int) []txn.Info {
	e.was = slices.Grow(e.was[:0], n)[:n]
	return e.was
}

var bufferPool = sync.Pool{New: func() any { return new(IndexBuffer) }}

// NewIndexBuffer returns an empty buffer from a pool; Release returns it.
func NewIndexBuffer() *IndexBuffer { return bufferPool.Get().(*IndexBuffer) }

// Release returns the buffer to the pool. The caller must not use it afterwards.
func (e *IndexBuffer) Release() {
	e.Reset()
	bufferPool.Put(e)
}
