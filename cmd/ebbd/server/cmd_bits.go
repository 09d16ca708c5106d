package server

import (
	"bytes"
	"math/bits"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
)

const (
	errBitOffset = replyError("ERR bit offset is not an integer or out of range")
	errBit       = replyError("ERR bit is not an integer or out of range")
)

// bitOffset parses the position of a bit within the longest string.
func bitOffset(r *request, i int) (int64, error) {
	n, ok := parseInt(r.args[i])
	if !ok || n < 0 || n>>3 >= int64(r.s.o.MaxBulk) {
		return 0, errBitOffset
	}
	return n, nil
}

// bitAt returns a bit; bit 0 is the highest one of the first byte. Behind the end all are 0.
func bitAt(value []byte, offset int64) int64 {
	if offset>>3 >= int64(len(value)) {
		return 0
	}
	return int64(value[offset>>3] >> (7 - offset&7) & 1)
}

func setBit(value []byte, offset, bit int64) {
	mask := byte(1) << (7 - offset&7)
	value[offset>>3] &^= mask
	if bit != 0 {
		value[offset>>3] |= mask
	}
}

// grown returns a copy of a string that has a number of bits, at least.
func grown(value []byte, size int64) []byte {
	b := make([]byte, max(int64(len(value)), (size+7)>>3))
	copy(b, value)
	return b
}

func setbitCommand(r *request) error {
	offset, err := bitOffset(r, 2)
	if err != nil {
		return err
	}
	bit, ok := parseInt(r.args[3])
	if !ok || bit != 0 && bit != 1 {
		return errBit
	}
	row, err := r.loadString(1)
	if err != nil {
		return err
	}
	value := grown(row.Value, offset+1)
	r.w.Int(bitAt(value, offset))
	setBit(value, offset, bit)
	return r.set(r.args[1], value, &row, keyspace.KeepExpiry)
}

func getbitCommand(r *request) error {
	offset, err := bitOffset(r, 2)
	if err != nil {
		return err
	}
	row, err := r.loadString(1)
	r.w.Int(bitAt(row.Value, offset))
	return err
}

// bitRange parses start, end and BYTE or BIT from argument i on, and returns the range of bits
// [lo, hi) that they mean.
func bitRange(r *request, i int, size int64) (lo, hi int64, err error) {
	start, end, unit := int64(0), int64(-1), int64(8)
	if len(r.args) > i {
		if start, err = r.int(i); err != nil {
			return 0, 0, err
		}
	}
	if len(r.args) > i+1 {
		if end, err = r.int(i + 1); err != nil {
			return 0, 0, err
		}
	}
	if len(r.args) > i+2 {
		switch {
		case r.is(i+2, "bit"):
			unit = 1
		case !r.is(i+2, "byte"):
			return 0, 0, errSyntax
		}
	}
	n := 8 * size / unit
	if start < 0 && end < 0 && start > end {
		return 0, 0, nil
	}
	if end < 0 {
		end = max(end+n, 0)
	}
	lo, hi = span(start, end, n)
	if lo >= hi {
		return 0, 0, nil
	}
	return lo * unit, hi * unit, nil
}

func bitcountCommand(r *request) error {
	if len(r.args) == 3 || len(r.args) > 5 {
		return errSyntax
	}
	row, err := r.loadString(1)
	if err != nil {
		return err
	}
	lo, hi, err := bitRange(r, 2, int64(len(row.Value)))
	if err != nil {
		return err
	}
	r.w.Int(countBits(row.Value, lo, hi))
	return nil
}

func countBits(value []byte, lo, hi int64) (n int64) {
	for ; lo < hi && lo&7 != 0; lo++ {
		n += bitAt(value, lo)
	}
	for ; hi > lo && hi&7 != 0; hi-- {
		n += bitAt(value, hi-1)
	}
	for _, b := range value[lo>>3 : max(hi>>3, lo>>3)] {
		n += int64(bits.OnesCount8(b))
	}
	return n
}

func bitposCommand(r *request) error {
	bit, ok := parseInt(r.args[2])
	switch {
	case !ok:
		return errNotInt
	case bit != 0 && bit != 1:
		return replyError("ERR The bit argument must be 1 or 0.")
	case len(r.args) > 6:
		return errSyntax
	}
	row, err := r.loadString(1)
	if err != nil {
		return err
	}
	lo, hi, err := bitRange(r, 3, int64(len(row.Value)))
	if err != nil {
		return err
	}
	found := int64(-1)
	switch at := findBit(row.Value, lo, hi, bit); {
	case row.Type == 0 && bit == 0:
		found = 0
	case at >= 0:
		found = at
	case bit == 0 && len(r.args) < 5 && hi > lo: // the bits behind the string are 0
		found = int64(len(row.Value)) * 8
	}
	r.w.Int(found)
	return nil
}

// findBit returns the position of the first bit of a value in [lo, hi); -1: there is none.
func findBit(value []byte, lo, hi, bit int64) int64 {
	none := byte(0xff * (1 - bit))
	for lo < hi {
		if lo&7 == 0 && hi-lo >= 8 && value[lo>>3] == none {
			lo += 8
			continue
		}
		if bitAt(value, lo) == bit {
			return lo
		}
		lo++
	}
	return -1
}

func bitopCommand(r *request) error {
	op := r.word(1)
	switch op {
	case "AND", "OR", "XOR", "NOT":
	default:
		return errSyntax
	}
	if op == "NOT" && len(r.args) != 4 {
		return replyError("ERR BITOP NOT must be called with a single source key.")
	}
	var result []byte
	for i := 3; i < len(r.args); i++ {
		row, err := r.loadString(i)
		if err != nil {
			return err
		}
		result = combineBits(op, result, row.Value, i == 3)
	}
	target := r.args[2]
	old, err := r.sp.Load(target)
	if err != nil {
		return err
	}
	r.w.Int(int64(len(result)))
	if len(result) > 0 {
		return r.set(target, result, &old, keyspace.NoExpiry)
	}
	if old.Type == 0 {
		return nil
	}
	r.touchAs(target, notifyGeneric, "del")
	return r.sp.Delete(target, &old)
}

// combineBits returns the result so far combined with one more string. The shorter one counts as
// filled with zeros.
func combineBits(op string, result, value []byte, first bool) []byte {
	if first {
		result = bytes.Clone(value)
		for i := range result {
			if op == "NOT" {
				result[i] = ^result[i]
			}
		}
		return result
	}
	result = grown(result, int64(len(value))*8)
	for i := range result {
		b := byte(0)
		if i < len(value) {
			b = value[i]
		}
		switch op {
		case "AND":
			result[i] &= b
		case "OR":
			result[i] |= b
		case "XOR":
			result[i] ^= b
		}
	}
	return result
}
