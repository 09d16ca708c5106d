package keyspace

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Type of a key: the first byte of its master row.
type Type byte

// Types of keys. 0 is an absent key.
const (
	TypeString Type = 's'
	TypeHash   Type = 'h'
	TypeList   Type = 'l'
	TypeSet    Type = 't'
	TypeZSet   Type = 'z'
)

// String returns the name that the TYPE command gives.
func (t Type) String() string {
	switch t {
	case TypeString:
		return "string"
	case TypeHash:
		return "hash"
	case TypeList:
		return "list"
	case TypeSet:
		return "set"
	case TypeZSet:
		return "zset"
	}
	return "none"
}

var (
	// ErrWrongType is returned by operations on a key that holds another type.
	ErrWrongType = errors.New("keyspace: the key holds another type")
	errCorrupt   = errors.New("keyspace: the master row is not one of this server")
)

// Row is a decoded master row.
type Row struct {
	Type  Type
	Value []byte // of a string; valid as long as the transaction, read-only
	ID    uint64 // of a collection
	Count int64  // elements; of a hash: fields without an expiry
	Head  int64  // of a list: position of its first element

	// Of a hash with fields that expire, else 0. While no field is permanent, the expiry of the key
	// is the earlier one of userExpiry and fieldMax, so that the key ends with its last field.
	fieldMax   int64 // ms; no field expires later; the latest one expires then unless inexact
	userExpiry int64 // ms; expiry that the user has set for the key; 0: none
	inexact    bool

	unsaved bool  // the row is not stored yet
	stored  int64 // Count of the stored row
}

// HasFieldTTL says whether fields of a hash may have expiries.
func (r *Row) HasFieldTTL() bool { return r.fieldMax > 0 }

// Layout of a collection's master row:
//
//	0   1  type
//	1   8  id
//	9   8  count
//	17  8  list: head. hash with expiring fields: fieldMax
//	25  8  hash with expiring fields: userExpiry
//	33  1  hash with expiring fields: 1 if fieldMax may be later than the latest expiry
const (
	rowSize      = 17
	listRowSize  = 25
	fieldRowSize = 34
)

func appendRow(b []byte, r *Row) []byte {
	b = append(b, byte(r.Type))
	if r.Type == TypeString {
		return append(b, r.Value...)
	}
	b = binary.BigEndian.AppendUint64(b, r.ID)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Count))
	switch {
	case r.Type == TypeList:
		b = binary.BigEndian.AppendUint64(b, uint64(r.Head))
	case r.Type == TypeHash && r.fieldMax > 0:
		b = binary.BigEndian.AppendUint64(b, uint64(r.fieldMax))
		b = binary.BigEndian.AppendUint64(b, uint64(r.userExpiry))
		inexact := byte(0)
		if r.inexact {
			inexact = 1
		}
		b = append(b, inexact)
	}
	return b
}

func decodeRow(b []byte) (Row, error) {
	if len(b) == 0 {
		return Row{}, fmt.Errorf("%w: it is empty", errCorrupt)
	}
	r := Row{Type: Type(b[0])}
	want := rowSize
	switch {
	case r.Type == TypeString:
		r.Value = b[1:]
		return r, nil
	case r.Type == TypeList:
		want = listRowSize
	case r.Type == TypeHash && len(b) == fieldRowSize:
		want = fieldRowSize
	case r.Type != TypeHash && r.Type != TypeSet && r.Type != TypeZSet:
		return Row{}, fmt.Errorf("%w: type byte %#x", errCorrupt, b[0])
	}
	if len(b) != want {
		return Row{}, fmt.Errorf("%w: %s of %d bytes, want %d", errCorrupt, r.Type, len(b), want)
	}
	r.ID = binary.BigEndian.Uint64(b[1:])
	r.Count = int64(binary.BigEndian.Uint64(b[9:]))
	r.stored = r.Count
	switch want {
	case listRowSize:
		r.Head = int64(binary.BigEndian.Uint64(b[17:]))
	case fieldRowSize:
		r.fieldMax = int64(binary.BigEndian.Uint64(b[17:]))
		r.userExpiry = int64(binary.BigEndian.Uint64(b[25:]))
		r.inexact = b[33] != 0
	}
	if r.Count < 0 || r.ID == 0 || r.fieldMax < 0 || r.userExpiry < 0 {
		return Row{}, fmt.Errorf("%w: negative numbers or no id", errCorrupt)
	}
	return r, nil
}
