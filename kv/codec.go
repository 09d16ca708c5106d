package kv

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Codec encodes values of type T as bytes, for the keys or values of a Table. A codec for keys keeps
// the order: the encodings of two values compare as the values do. A Codec is safe for concurrent
// use.
type Codec[T any] interface {
	// Append appends the encoding of v to dst and returns the extended slice.
	Append(dst []byte, v T) ([]byte, error)
	// Decode returns the value that b encodes, all of it. The value does not refer to b.
	Decode(b []byte) (T, error)
}

// Codecs for keys and values. Each keeps the order of its values.
var (
	// String encodes a string as its bytes.
	String Codec[string] = stringCodec{}
	// Bytes encodes a byte slice as itself. Decode copies.
	Bytes Codec[[]byte] = bytesCodec{}
	// Uint64 encodes a number in 8 bytes, big-endian.
	Uint64 Codec[uint64] = uint64Codec{}
	// Int64 encodes a number in 8 bytes, big-endian, with the sign bit flipped. A counter of
	// Increment has another encoding.
	Int64 Codec[int64] = int64Codec{}
	// Time encodes an instant, to the nanosecond, in 12 bytes: Unix seconds as Int64 does, then
	// nanoseconds. The location is not kept: Decode returns UTC.
	Time Codec[time.Time] = timeCodec{}
)

// JSON returns a codec for values, by encoding/json. It does not keep an order.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

// Tuple is the value of a Pair codec.
type Tuple[A, B any] struct {
	First  A
	Second B
}

// PairCodec is what Pair returns.
type PairCodec[A, B any] struct {
	first  Codec[A]
	second Codec[B]
	size   int // bytes of each encoding of first; 0: they differ
}

// Pair returns a codec for compound keys, ordered by the first part, then by the second. The first
// part is stored as it is if its codec is Uint64, Int64 or Time. Else it ends with the bytes 00 01,
// and each byte 00 in it becomes 00 FF, which keeps the order (the method of FoundationDB's tuples).
// Either part may be a Pair.
func Pair[A, B any](first Codec[A], second Codec[B]) PairCodec[A, B] {
	c := PairCodec[A, B]{first: first, second: second}
	if fixed, ok := first.(interface{ size() int }); ok {
		c.size = fixed.size()
	}
	return c
}

// errEncoding is the error of the codecs of this package for bytes that they did not write.
var errEncoding = errors.New("not an encoding of this type")

type stringCodec struct{}

func (stringCodec) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }
func (stringCodec) Decode(b []byte) (string, error)             { return string(b), nil }

type bytesCodec struct{}

func (bytesCodec) Append(dst, v []byte) ([]byte, error) { return append(dst, v...), nil }
func (bytesCodec) Decode(b []byte) ([]byte, error)      { return append([]byte{}, b...), nil }

type uint64Codec struct{}

func (uint64Codec) size() int { return 8 }

func (uint64Codec) Append(dst []byte, v uint64) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, v), nil
}

func (uint64Codec) Decode(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("%w: %d bytes for a number of 8", errEncoding, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// signBit is flipped in signed numbers, so that negative ones come first.
const signBit = 1 << 63

type int64Codec struct{ uint64Codec }

func (c int64Codec) Append(dst []byte, v int64) ([]byte, error) {
	return c.uint64Codec.Append(dst, uint64(v)^signBit)
}

func (c int64Codec) Decode(b []byte) (int64, error) {
	n, err := c.uint64Codec.Decode(b)
	return int64(n ^ signBit), err
}

type timeCodec struct{}

func (timeCodec) size() int { return 12 }

func (timeCodec) Append(dst []byte, v time.Time) ([]byte, error) {
	dst = binary.BigEndian.AppendUint64(dst, uint64(v.Unix())^signBit)
	return binary.BigEndian.AppendUint32(dst, uint32(v.Nanosecond())), nil
}

func (c timeCodec) Decode(b []byte) (time.Time, error) {
	if len(b) != c.size() {
		return time.Time{}, fmt.Errorf("%w: %d bytes for a time of 12", errEncoding, len(b))
	}
	nanos := binary.BigEndian.Uint32(b[8:])
	if nanos >= uint32(time.Second) {
		return time.Time{}, fmt.Errorf("%w: %d nanoseconds of a second", errEncoding, nanos)
	}
	return time.Unix(int64(binary.BigEndian.Uint64(b)^signBit), int64(nanos)).UTC(), nil
}

type jsonCodec[T any] struct{}

func (jsonCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	b, err := json.Marshal(v)
	return append(dst, b...), err
}

func (jsonCodec[T]) Decode(b []byte) (T, error) {
	var v T
	err := json.Unmarshal(b, &v)
	return v, err
}

func (c PairCodec[A, B]) Append(dst []byte, v Tuple[A, B]) ([]byte, error) {
	dst, err := c.appendFirst(dst, v.First)
	if err != nil {
		return dst, err
	}
	return c.second.Append(dst, v.Second)
}

// Prefix returns the prefix that exactly the keys with this first part have, for Table.Prefix.
func (c PairCodec[A, B]) Prefix(first A) ([]byte, error) { return c.appendFirst(nil, first) }

func (c PairCodec[A, B]) appendFirst(dst []byte, v A) ([]byte, error) {
	start := len(dst)
	dst, err := c.first.Append(dst, v)
	if err != nil || c.size != 0 {
		return dst, err
	}
	if zeros := bytes.Count(dst[start:], []byte{0}); zeros > 0 {
		part := bytes.ReplaceAll(dst[start:], []byte{0}, []byte{0, 0xFF})
		dst = append(dst[:start], part...)
	}
	return append(dst, 0, 1), nil
}

func (c PairCodec[A, B]) Decode(b []byte) (v Tuple[A, B], err error) {
	first, rest, err := c.split(b)
	if err != nil {
		return v, err
	}
	if v.First, err = c.first.Decode(first); err != nil {
		return v, err
	}
	v.Second, err = c.second.Decode(rest)
	return v, err
}

// split returns the two parts of an encoding, the first one without its end and its escapes.
func (c PairCodec[A, B]) split(b []byte) (first, rest []byte, err error) {
	if c.size != 0 {
		if len(b) < c.size {
			return nil, nil, fmt.Errorf("%w: %d bytes for a pair", errEncoding, len(b))
		}
		return b[:c.size], b[c.size:], nil
	}
	escaped := false
	for i := 0; i+1 < len(b); i++ {
		if b[i] != 0 {
			continue
		}
		switch b[i+1] {
		case 1:
			if first = b[:i]; escaped {
				first = bytes.ReplaceAll(first, []byte{0, 0xFF}, []byte{0})
			}
			return first, b[i+2:], nil
		case 0xFF:
			escaped = true
			i++
		default:
			return nil, nil, fmt.Errorf("%w: bytes 00 %02X in a pair", errEncoding, b[i+1])
		}
	}
	return nil, nil, fmt.Errorf("%w: a pair whose first part does not end", errEncoding)
}
