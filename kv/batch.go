package kv

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/ttl"
)

// Batch collects writes that Apply applies in order, as one transaction, and at its instant: each is
// that of Tx. Keys and values are copied. Its own methods use the family "default". The zero Batch is
// empty and ready to use. A Batch is not safe for concurrent use, but several goroutines may apply it
// at once while none adds to it, and it may be applied again.
type Batch struct{ batchVerbs }

// BatchCF adds to a batch in one family: it has the methods Delete, DeleteRange, Put, PutExpireAt and
// PutTTL of Batch.
type BatchCF struct{ batchMethods }

// batchVerbs are the methods of *Batch and *BatchCF. They return no errors: Apply does.
type batchVerbs struct {
	ops    *batchOps // nil: none yet
	family int
}

type batchOps struct {
	maxKey     int      // limit of keys in bytes
	families   []string // by number; 0 is "default"
	n          int
	longestKey int   // bytes
	err        error // first invalid argument: Apply returns it

	// buf is rows of: kind u8, number of the family u32, length of a u32, length of b u32, when i64,
	// a, b. when is a ttl in nanoseconds, an expiry in milliseconds, or 0.
	buf []byte
}

const batchHead = 21 // bytes of a row before a and b

// NewBatch returns an empty batch for any store whose MaxKeySize is at least this one's.
func (db *DB) NewBatch() *Batch {
	b := new(Batch)
	b.init().maxKey = db.maxKey
	return b
}

// contents returns the operations for reading.
func (v *batchVerbs) contents() *batchOps {
	if v.ops == nil {
		return &batchOps{}
	}
	return v.ops
}

// init returns the operations for appending.
func (v *batchVerbs) init() *batchOps {
	if v.ops == nil {
		// Apply checks the lengths of keys for a batch that was not made for a store.
		v.ops = &batchOps{maxKey: math.MaxInt, families: []string{cf.Default}}
	}
	return v.ops
}

// CF returns the methods of another family for this batch. If it is absent, Apply fails.
func (b *Batch) CF(name string) *BatchCF {
	ops := b.init()
	for i, have := range ops.families {
		if have == name {
			return &BatchCF{batchVerbs{ops, i}}
		}
	}
	ops.families = append(ops.families, name)
	return &BatchCF{batchVerbs{ops, len(ops.families) - 1}}
}

// Len returns the number of operations.
func (b *Batch) Len() int { return b.contents().n }

// Reset empties the batch and keeps its memory. A BatchCF stays valid.
func (b *Batch) Reset() {
	ops := b.contents()
	ops.n, ops.longestKey, ops.err, ops.buf = 0, 0, nil, ops.buf[:0]
}

func (v *batchVerbs) Put(key, value []byte) { v.add(opPut, key, value, 0) }

func (v *batchVerbs) PutTTL(key, value []byte, ttl time.Duration) {
	v.add(opPutTTL, key, value, int64(ttl))
}

func (v *batchVerbs) PutExpireAt(key, value []byte, at time.Time) {
	ms, ok := ttl.CeilMs(at)
	if !ok { // Out of range: invalid at every instant, as one too far in the past is.
		ms = math.MinInt64
	}
	v.add(opPutExpireAt, key, value, ms)
}

func (v *batchVerbs) Delete(key []byte) { v.add(opDelete, key, nil, 0) }

func (v *batchVerbs) DeleteRange(lo, hi []byte) { v.add(opDeleteRange, lo, hi, 0) }

func (v *batchVerbs) add(kind byte, first, second []byte, when int64) {
	b := v.init()
	b.n++
	if b.err != nil {
		return
	}
	if kind != opDeleteRange {
		if b.err = b.check(kind, first, second, when); b.err != nil {
			return
		}
		b.longestKey = max(b.longestKey, len(first))
	}
	at, size := len(b.buf), batchHead+len(first)+len(second)
	if cap(b.buf)-at < size {
		b.buf = slices.Grow(b.buf, size)
	}
	b.buf = b.buf[:at+size]
	head := (*[batchHead]byte)(b.buf[at:])
	head[0] = kind
	binary.LittleEndian.PutUint32(head[1:], uint32(v.family))
	binary.LittleEndian.PutUint32(head[5:], uint32(len(first)))
	binary.LittleEndian.PutUint32(head[9:], uint32(len(second)))
	binary.LittleEndian.PutUint64(head[13:], uint64(when))
	at += batchHead
	copy(b.buf[at:], first)
	copy(b.buf[at+len(first):], second)
}

// check returns why an operation on a row is invalid, or nil.
func (b *batchOps) check(kind byte, key, value []byte, when int64) error {
	if err := checkKey(key, b.maxKey); err != nil {
		return err
	}
	if err := checkValue(value); err != nil {
		return err
	}
	if kind == opPutTTL && when <= 0 || kind == opPutExpireAt && when == math.MinInt64 {
		return fmt.Errorf("%w: not positive, or too far away", ErrInvalidTTL)
	}
	return nil
}
