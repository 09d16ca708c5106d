package wal

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// LSN is a byte position in the log: number of the segment times SegmentSize, plus the offset in
// the segment's file.
type LSN uint64

// Record. It never crosses the end of its segment; a payload that does not fit is cut into parts.
//
//	0          8        16       24       32       40       44     45      46         48
//	+----------+--------+--------+--------+--------+--------+------+-------+----------+--- ... ---+
//	| checksum | salt   | lsn    | synced | prev   | length | type | flags | reserved | payload   |
//	| u64      | u64    | u64    | u64    | u64    | u32    | u8   | u8    | u16      |           |
//	+----------+--------+--------+--------+--------+--------+------+-------+----------+--- ... ---+
//
// checksum is xxhash64 of bytes [8, 48+length): torn and rotten records. salt repeats the
// segment's: a record of the file's previous use is invalid. lsn repeats the record's own position:
// misplaced bytes. synced is a position up to which everything was durable when the record was
// written: evidence that a bad record before it is damage and no torn end. prev is the position of
// the record before this one, 0 in the first one of a log: replay never steps over a gap. type is 1
// (data), 2 (seal: the end record of its segment) or 3 (void: a compensation record, which cancels
// the commit that ends right before it, end records aside). The last two have no payload and no
// flags. flags of a data record: 1 first part of a commit, 2 last part. A first part cancels
// unfinished parts before it. reserved must be zero. Golden bytes: testdata/records.hex.
//
// A payload of a record has at most maxPart bytes. A header never crosses a block: with fewer than
// 48 bytes left in a block the next record begins at the next one. The bytes that are skipped are
// zero.
const (
	recChecksum = 0
	recSalt     = 8
	recLSN      = 16
	recSynced   = 24
	recPrev     = 32
	recLength   = 40
	recType     = 44
	recFlags    = 45
	recReserved = 46
	recHeader   = 48
)

// maxPart bounds the payload of one record. Small, so that a hostile file in which every block
// claims to begin a record cannot make a reader checksum the same bytes very often; large enough
// for the header to weigh nothing.
const maxPart = 128 << 10

type recordType uint8

const (
	typeData         recordType = 1
	typeSeal         recordType = 2
	typeCompensation recordType = 3
)

type partFlags uint8

const (
	partFirst partFlags = 1
	partLast  partFlags = 2
)

// record is a decoded record. payload is a view of the bytes that it was decoded from.
type record struct {
	lsn     LSN
	synced  LSN
	prev    LSN
	kind    recordType
	flags   partFlags
	payload []byte
}

// size is the number of bytes from the record's first to its last.
func (r record) size() int64 { return recHeader + int64(len(r.payload)) }

// appendRecord encodes r with everything but synced and checksum, which sealRecord adds when the
// record is written.
func appendRecord(b []byte, salt uint64, r record) []byte {
	at := len(b)
	b = append(b, make([]byte, recHeader)...)
	b = append(b, r.payload...)
	h := b[at:]
	binary.LittleEndian.PutUint64(h[recSalt:], salt)
	binary.LittleEndian.PutUint64(h[recLSN:], uint64(r.lsn))
	binary.LittleEndian.PutUint64(h[recPrev:], uint64(r.prev))
	binary.LittleEndian.PutUint32(h[recLength:], uint32(len(r.payload)))
	h[recType] = byte(r.kind)
	h[recFlags] = byte(r.flags)
	return b
}

// sealRecord completes the record at the start of b, which appendRecord made, and returns its size.
func sealRecord(b []byte, synced LSN) int {
	n := recHeader + int(binary.LittleEndian.Uint32(b[recLength:]))
	binary.LittleEndian.PutUint64(b[recSynced:], uint64(synced))
	binary.LittleEndian.PutUint64(b[recChecksum:], xxhash.Sum64(b[recSalt:n]))
	return n
}

// zeroHeader says that no record begins here.
func zeroHeader(b []byte) bool { return [recHeader]byte(b) == [recHeader]byte{} }

// ownHeader says whether the header at the start of b has this salt and this position. It proves
// nothing; it is the cheap check before decodeRecord, and distinguishes torn records from old bytes.
func ownHeader(b []byte, salt uint64, lsn LSN) bool {
	return len(b) >= recHeader &&
		binary.LittleEndian.Uint64(b[recSalt:]) == salt &&
		binary.LittleEndian.Uint64(b[recLSN:]) == uint64(lsn)
}

// similarHeader is ownHeader that lets one of the two be wrong: neither a record of the file's
// previous use nor other bytes have even one of them. It is for reports of dropped bytes.
func similarHeader(b []byte, salt uint64, lsn LSN) bool {
	return len(b) >= recHeader &&
		(binary.LittleEndian.Uint64(b[recSalt:]) == salt ||
			binary.LittleEndian.Uint64(b[recLSN:]) == uint64(lsn))
}

// decodeRecord decodes the record at the start of b, which ends where the record's segment ends.
// All bounds are verified before it returns. The error says what is wrong; the reader
// decides whether that is a torn end or damage.
func decodeRecord(b []byte, salt uint64, lsn LSN) (record, error) {
	if len(b) < recHeader {
		return record{}, fmt.Errorf("record header needs %d bytes, %d are left", recHeader, len(b))
	}
	if got := binary.LittleEndian.Uint64(b[recSalt:]); got != salt {
		return record{}, fmt.Errorf("record has salt %#x, segment has %#x", got, salt)
	}
	if got := binary.LittleEndian.Uint64(b[recLSN:]); got != uint64(lsn) {
		return record{}, fmt.Errorf("record says that it is at LSN %d, expected %d", got, lsn)
	}
	n := binary.LittleEndian.Uint32(b[recLength:])
	if n > maxPart {
		return record{}, fmt.Errorf("record has %d payload bytes, at most %d are possible", n, maxPart)
	}
	if int64(n) > int64(len(b)-recHeader) {
		return record{}, fmt.Errorf("record has %d payload bytes, %d are left", n, len(b)-recHeader)
	}
	end := recHeader + int(n)
	if got, want := binary.LittleEndian.Uint64(b[recChecksum:]), xxhash.Sum64(b[recSalt:end]); got != want {
		return record{}, fmt.Errorf("record has checksum %#x, its bytes give %#x", got, want)
	}
	r := record{
		lsn:     lsn,
		synced:  LSN(binary.LittleEndian.Uint64(b[recSynced:])),
		prev:    LSN(binary.LittleEndian.Uint64(b[recPrev:])),
		kind:    recordType(b[recType]),
		flags:   partFlags(b[recFlags]),
		payload: b[recHeader:end:end],
	}
	switch {
	case r.synced > lsn:
		return record{}, fmt.Errorf("record at LSN %d says that %d is durable", lsn, r.synced)
	case r.prev >= lsn:
		return record{}, fmt.Errorf("record at LSN %d says that %d is before it", lsn, r.prev)
	case binary.LittleEndian.Uint16(b[recReserved:]) != 0:
		return record{}, fmt.Errorf("record has reserved bytes that are not zero")
	case r.kind == typeData && r.flags&^(partFirst|partLast) == 0:
	case (r.kind == typeSeal || r.kind == typeCompensation) && r.flags == 0 && n == 0:
	default:
		return record{}, fmt.Errorf("record of type %d with flags %d and %d payload bytes is unknown",
			r.kind, r.flags, n)
	}
	return r, nil
}
