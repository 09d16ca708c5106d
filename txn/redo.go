package txn

import (
	"encoding/binary"
	"errors"
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// Redo: the payload of one commit's log record. Integers are unsigned varints unless told.
//
//	seq u64 little-endian, mark i64 little-endian, then operations until the end:
//	  1 put          tree, key length, key, value length, value
//	  2 put, tag     tree, tag i64 little-endian, key length, key, value length, value
//	  3 delete       tree, key length, key
//	  4 delete range tree, bounds (bit 0: lo given, bit 1: hi given), for each given: length, bytes
//	  5 create       tree
//	  6 drop         tree
//	  7 clear        tree
//	  8 set tag      tree, tag i64 little-endian, 0 for none, key length, key
//	  9 next tree    first tree number never used
//	 11 leaves       tree, pgid, epoch, number of leaves, for each: checksum u64 little-endian
//	 12 put, named   tree, tag i64 little-endian, 0 for none, key length, key, value length, pgid,
//	                 epoch, checksum u64 little-endian
//
// A named value is in the overflow extent at pgid and epoch, which is durable before the record is
// written, and stays unchanged until a checkpoint makes the record obsolete. The checksum is the one
// in the extent's header: an extent that was given up before may have had the same place. Leaves are
// that many pages from pgid on, which become the last leaves of the tree, in their order. They stay
// unchanged too, but are durable only together with the log: a record without its leaves is one that
// did not reach the disk.
//
// Replay ends in the state that applying the operations in order would give; it uses no clock.
// Golden bytes: testdata/redo.hex.
const (
	opPut      = 1
	opPutTag   = 2
	opDelete   = 3
	opRange    = 4
	opCreate   = 5
	opDrop     = 6
	opClear    = 7
	opSetTag   = 8
	opNextTree = 9
	opLeaves   = 11
	opPutNamed = 12

	redoHead = 16

	rangeLo = 1
	rangeHi = 2
)

func appendBytes(b, x []byte) []byte { return append(binary.AppendUvarint(b, uint64(len(x))), x...) }

func appendLength(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)) }

func appendOp(b []byte, op byte, id TreeID) []byte {
	return binary.AppendUvarint(append(b, op), uint64(id))
}

func appendTag(b []byte, tag int64) []byte { return binary.LittleEndian.AppendUint64(b, uint64(tag)) }

// appendPut appends a put without its value.
func appendPut(b []byte, id TreeID, key []byte, tag int64) []byte {
	if tag == 0 {
		b = appendOp(b, opPut, id)
	} else {
		b = appendTag(appendOp(b, opPutTag, id), tag)
	}
	return appendBytes(b, key)
}

func appendDelete(b []byte, id TreeID, key []byte) []byte {
	return appendBytes(appendOp(b, opDelete, id), key)
}

func appendLogRef(b []byte, id TreeID, tag int64, key []byte, at extentPlace) []byte {
	b = appendBytes(appendTag(appendOp(b, opPutNamed, id), tag), key)
	b = appendLength(b, at.size)
	b = binary.AppendUvarint(b, uint64(at.ref.Pgid))
	b = binary.AppendUvarint(b, uint64(at.ref.Epoch))
	return binary.LittleEndian.AppendUint64(b, at.sum)
}

func appendLeaves(b []byte, id TreeID, ref pager.Ref, sums []byte) []byte {
	b = binary.AppendUvarint(appendOp(b, opLeaves, id), uint64(ref.Pgid))
	b = binary.AppendUvarint(b, uint64(ref.Epoch))
	return append(appendLength(b, len(sums)/sumSize), sums...)
}

func appendRange(b []byte, id TreeID, lo, hi []byte) []byte {
	b = appendOp(b, opRange, id)
	bounds := byte(0)
	if lo != nil {
		bounds |= rangeLo
	}
	if hi != nil {
		bounds |= rangeHi
	}
	b = append(b, bounds)
	if lo != nil {
		b = appendBytes(b, lo)
	}
	if hi != nil {
		b = appendBytes(b, hi)
	}
	return b
}

// redo is one decoded operation. Slices point into the payload.
type redo struct {
	op         byte
	id         TreeID
	key, value []byte // of a range: lo and hi, nil if unbounded
	tag        int64

	extentPlace        // of a named value, or of leaves
	sums        []byte // of leaves: their checksums, 8 bytes each
}

// extentPlace is the place of pages that the log references: an extent at ref with this checksum, of
// a value of size bytes, or leaves pages from ref on.
type extentPlace struct {
	ref    pager.Ref
	size   int
	sum    uint64
	leaves uint64
}

func (p extentPlace) pages(pageSize int) uint64 {
	if p.leaves > 0 {
		return p.leaves
	}
	return pager.ExtentPages(p.size, pageSize)
}

// sumSize is the size of a leaf's checksum in bytes.
const sumSize = 8

// isLogRef says that the operation references pages instead of holding the bytes.
func (r *redo) isLogRef() bool { return r.op == opPutNamed || r.op == opLeaves }

// isKeyOp says that the operation changes the row of one key.
func (r *redo) isKeyOp() bool {
	return r.op == opPut || r.op == opPutTag || r.op == opDelete || r.op == opSetTag || r.op == opPutNamed
}

var errShortRedo = errors.New("operation is cut short")

// decodeRedo reads the operation at the start of b and returns what follows it.
func decodeRedo(b []byte) (r redo, rest []byte, err error) {
	d := redoDecoder{b: b}
	r.op = d.byte()
	r.id = TreeID(d.uvarint())
	switch r.op {
	case opPut:
		r.key, r.value = d.key(), d.value()
	case opPutTag:
		r.tag, r.key, r.value = d.int64(), d.key(), d.value()
		if r.tag == 0 && !d.short {
			return r, nil, errors.New("put with the tag 0")
		}
	case opDelete:
		r.key = d.key()
	case opRange:
		bounds := d.byte()
		if bounds&rangeLo != 0 {
			r.key = d.key()
		}
		if bounds&rangeHi != 0 {
			r.value = d.key()
		}
		if bounds > rangeLo|rangeHi {
			return r, nil, fmt.Errorf("delete range with bounds %#x", bounds)
		}
	case opCreate, opDrop, opClear, opNextTree:
	case opSetTag:
		r.tag, r.key = d.int64(), d.key()
	case opPutNamed:
		r.tag, r.key = d.int64(), d.key()
		size, id, epoch, sum := d.uvarint(), d.uvarint(), d.uvarint(), uint64(d.int64())
		if size > tree.MaxValue || epoch > uint64(pager.MaxEpoch) {
			return r, nil, fmt.Errorf("named value of %d bytes in epoch %d", size, epoch)
		}
		r.size, r.sum = int(size), sum
		r.ref = pager.Ref{Pgid: pager.Pgid(id), Epoch: pager.Epoch(epoch)}
	case opLeaves:
		id, epoch := d.uvarint(), d.uvarint()
		r.leaves, r.sums = d.sums()
		if !d.short && (epoch > uint64(pager.MaxEpoch) || r.leaves == 0) {
			return r, nil, fmt.Errorf("%d leaves of epoch %d", r.leaves, epoch)
		}
		r.ref = pager.Ref{Pgid: pager.Pgid(id), Epoch: pager.Epoch(epoch)}
	default:
		if !d.short {
			return r, nil, fmt.Errorf("operation %d is not known", r.op)
		}
	}
	switch {
	case d.long:
		return r, nil, errors.New("a length is impossible")
	case d.short:
		return r, nil, errShortRedo
	}
	return r, d.b, nil
}

// decodePutHead decodes a put as far as the length of its value, and returns the bytes behind that.
// The size is 0 if b begins with no put, or is shorter.
func decodePutHead(b []byte) (r redo, size uint64, value []byte) {
	d := redoDecoder{b: b}
	r.op = d.byte()
	r.id = TreeID(d.uvarint())
	switch r.op {
	case opPut:
	case opPutTag:
		r.tag = d.int64()
	default:
		return redo{}, 0, nil
	}
	r.key, size = d.key(), d.uvarint()
	if d.short {
		return redo{}, 0, nil
	}
	return r, size, d.b
}

type redoDecoder struct {
	b     []byte
	short bool
	long  bool // a length is impossible: more bytes do not help
}

func (d *redoDecoder) byte() byte {
	if len(d.b) == 0 {
		d.short = true
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *redoDecoder) int64() int64 {
	if len(d.b) < 8 {
		d.short = true
		return 0
	}
	v := int64(binary.LittleEndian.Uint64(d.b))
	d.b = d.b[8:]
	return v
}

func (d *redoDecoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.long = d.long || !d.short && n < 0
		d.short = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// sums returns the checksums of leaves, and how many there are.
func (d *redoDecoder) sums() (n uint64, sums []byte) {
	n = d.uvarint()
	d.long = d.long || !d.short && n > leafRunMax
	if d.short || n > uint64(len(d.b)/sumSize) {
		d.short = true
		return 0, nil
	}
	sums, d.b = d.b[:n*sumSize:n*sumSize], d.b[n*sumSize:]
	return n, sums
}

// key returns a key, or a bound of a range, which may be a byte longer: see shortBound.
func (d *redoDecoder) key() []byte { return d.bytes(uint64(tree.MaxKey(pager.MaxPageSize)) + 1) }

func (d *redoDecoder) value() []byte { return d.bytes(tree.MaxValue) }

// bytes returns a slice of at most so many bytes that is never nil unless the payload is cut short.
func (d *redoDecoder) bytes(most uint64) []byte {
	n := d.uvarint()
	if d.short || n > uint64(len(d.b)) || n > most {
		d.long = d.long || !d.short && n > most
		d.short = true
		return nil
	}
	x := d.b[:n:n]
	d.b = d.b[n:]
	return x
}
