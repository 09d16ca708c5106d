package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/ebbkv/ebb/internal/vfs"
)

// Segment file. Its name is the store's path, "-wal-" and the segment's number in at least six
// decimal digits.
//
//	0                 4096              8192                        at most SegmentSize
//	+-----------------+-----------------+------------- ... ---------+
//	| header block    | hint block      | records                   |
//	+-----------------+-----------------+------------- ... ---------+
//
// The header is synced before the segment gets its first record, and again, with another number and
// another salt, before the file is renamed for its next use. The durability hint is
// written without a sync; a torn one is no information. Records end a block (4096 bytes) before the
// file was meant to end, except for the end record, which always has space. The first files of a
// log are shorter than SegmentSize, which positions are counted by all the same; a failed write may
// cut one, so its size proves nothing.
//
// Header block; the bytes behind the checksum are zero. Golden bytes: testdata/segment-header.hex.
//
//	0       8         12      16         32       40     48        56        60         64
//	+-------+---------+-------+----------+--------+------+---------+---------+----------+----------+
//	| magic | version | block | store id | number | salt | size    | follows | reserved | checksum |
//	| 8     | u32     | u32   | 16       | u64    | u64  | u64     | u32     | u32      | u64      |
//	+-------+---------+-------+----------+--------+------+---------+---------+----------+----------+
//
// block is the unit to which synced groups are padded: a write never covers a block that holds
// durable records. salt is random in each use of the file; every record repeats it. follows is the
// checkpoint (epoch) that was durable when the header was written: for readers of dumps. checksum
// is xxhash64 of bytes [0, 64).
//
// Hint block; the rest is zero.
//
//	0      8        16         24
//	+------+--------+----------+
//	| salt | synced | checksum |
//	| u64  | u64    | u64      |
//	+------+--------+----------+
//
// synced is a position up to which everything was durable when the hint was written.
// checksum is xxhash64 of bytes [0, 16).
const (
	segMagic    = "EBBWAL\x00\x01"
	segVersion  = 1
	segOffVer   = 8
	segOffBlock = 12
	segOffStore = 16
	segOffNum   = 32
	segOffSalt  = 40
	segOffSize  = 48
	segOffFol   = 56
	segOffRes   = 60
	segOffSum   = 64
	segHeadLen  = 72

	hintAt     = 4096 // offset of the hint block
	hintSalt   = 0
	hintSynced = 8
	hintSum    = 16
	hintLen    = 24

	firstRecord = 8192 // offset of the first record

	// pageUnit is what the operating system writes at once through its cache, so the unit to pad to
	// wherever cached and direct writes meet. It is a multiple of every block size.
	pageUnit = 4096
)

// Bounds of Options.SegmentSize. The largest keeps offsets in an int everywhere and a mapped
// reader's memory sane.
const (
	DefaultSegmentSize = 4 << 20
	MinSegmentSize     = 16 << 10
	MaxSegmentSize     = 1 << 30
)

// MaxSegment bounds segment numbers, so that no LSN overflows, and the meta page can name the
// segment behind. A file name with a larger one is not ours, nor is one above maxForeign without a
// header of the store: the log goes on above all files that it finds, and must have numbers left.
const (
	MaxSegment = 1<<33 - 2
	maxForeign = 1 << 32
)

// Options tell where a log is and how it looks. All but the first three may be left zero.
type Options struct {
	FS      vfs.FS
	Path    string   // of the store; segments are beside it
	StoreID [16]byte // segments of any other store are never read, never removed

	// bytes; a multiple of 4096, fixed for the store's life; 0 means DefaultSegmentSize
	SegmentSize int64
	Rand        func() uint64 // source of salts; nil means the runtime's
	NoDirect    bool          // never write past the page cache
	KeepFree    func() int    // retired segments that Release keeps to be recycled; nil means 4
	// bytes of the first segment's file, MinSegmentSize at least; 0 means 256 KiB, or SegmentSize
	// if that is less
	FirstSegmentBytes int64
	// no goroutine makes the next segment, but the leader itself: runs repeat exactly
	Inline bool

	// CheckIdentity is called before a next segment is made and before old ones are retired: an
	// error says that the names beside Path belong to another store now. It is final. nil: no
	// check.
	CheckIdentity func() error

	// The goroutine that is about to write a group calls SyncRefs if a commit of it was declared by
	// AddExternalRef as syncFirst, and, for other declared commits, before it makes them durable.
	// An error is final, and nothing of the group is written. nil: no commit has external
	// references.
	SyncRefs func() error

	// FreeSpace is called by an Append that finds no disk space for its next segment, SetBound
	// aside. If it returns true it has freed some: Append tries once more. nil: there is none to
	// free.
	FreeSpace func() bool

	// OnGroup is called after each write with the commits that it ended, its bytes, and the time
	// that write and sync took, or, for SubmitWrite, the time until CompleteWrite. The goroutine
	// that wrote calls it, one call at a time; it must not call the log. nil: no calls.
	OnGroup func(commits int, bytes int64, took time.Duration)
}

func (o Options) checked() (Options, error) {
	if o.SegmentSize == 0 {
		o.SegmentSize = DefaultSegmentSize
	}
	if o.KeepFree == nil {
		o.KeepFree = func() int { return defaultKeepFree }
	}
	if o.FirstSegmentBytes == 0 {
		o.FirstSegmentBytes = firstSegmentBytes
	}
	o.FirstSegmentBytes = max(o.FirstSegmentBytes, MinSegmentSize)
	if o.SegmentSize < MinSegmentSize || o.SegmentSize > MaxSegmentSize || o.SegmentSize%pageUnit != 0 {
		return o, fmt.Errorf("wal: segment size %d is no multiple of %d in [%d, %d]",
			o.SegmentSize, pageUnit, MinSegmentSize, MaxSegmentSize)
	}
	if o.Rand == nil {
		o.Rand = rand.Uint64
	}
	return o, nil
}

func (o Options) dir() string { return filepath.Dir(o.Path) }

// name is the file name of a segment.
func (o Options) name(number uint64) string { return fmt.Sprintf("%s-wal-%06d", o.Path, number) }

// number is the inverse of name, for a base name. It accepts only what name would have made.
func (o Options) number(base string) (uint64, bool) {
	digits, ok := strings.CutPrefix(base, filepath.Base(o.Path)+"-wal-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > MaxSegment || filepath.Base(o.name(n)) != base {
		return 0, false
	}
	return n, true
}

// start is the position of the first record of a segment.
func (o Options) start(number uint64) LSN { return LSN(number*uint64(o.SegmentSize) + firstRecord) }

// at splits a position.
func (o Options) at(lsn LSN) (number uint64, off int64) {
	return uint64(lsn) / uint64(o.SegmentSize), int64(uint64(lsn) % uint64(o.SegmentSize))
}

// segmentHeader is a decoded header block.
type segmentHeader struct {
	block   int64
	storeID [16]byte
	number  uint64
	salt    uint64
	size    int64
	follows uint32
	checked bool // decoded with a right checksum: storeID is set, even where the rest is an error
}

// putSegmentHeader encodes h into the header block b, which is zero.
func putSegmentHeader(b []byte, h segmentHeader) {
	copy(b, segMagic)
	binary.LittleEndian.PutUint32(b[segOffVer:], segVersion)
	binary.LittleEndian.PutUint32(b[segOffBlock:], uint32(h.block))
	copy(b[segOffStore:], h.storeID[:])
	binary.LittleEndian.PutUint64(b[segOffNum:], h.number)
	binary.LittleEndian.PutUint64(b[segOffSalt:], h.salt)
	binary.LittleEndian.PutUint64(b[segOffSize:], uint64(h.size))
	binary.LittleEndian.PutUint32(b[segOffFol:], h.follows)
	binary.LittleEndian.PutUint64(b[segOffSum:], xxhash.Sum64(b[:segOffSum]))
}

// decodeSegmentHeader decodes the header block at the start of b. A version that we do not know is
// an error too: what the store as a whole may be read by is the main file's business.
func decodeSegmentHeader(b []byte) (segmentHeader, error) {
	if len(b) < hintAt {
		return segmentHeader{}, fmt.Errorf("segment header needs %d bytes, file has %d", hintAt, len(b))
	}
	if got := string(b[:len(segMagic)]); got != segMagic {
		return segmentHeader{}, fmt.Errorf("segment starts with %q, expected %q", got, segMagic)
	}
	if got, want := binary.LittleEndian.Uint64(b[segOffSum:]), xxhash.Sum64(b[:segOffSum]); got != want {
		return segmentHeader{}, fmt.Errorf("segment header has checksum %#x, its bytes give %#x", got, want)
	}
	h := segmentHeader{checked: true}
	copy(h.storeID[:], b[segOffStore:])
	if got := binary.LittleEndian.Uint32(b[segOffVer:]); got != segVersion {
		return h, fmt.Errorf("segment has version %d, expected %d", got, segVersion)
	}
	h.block = int64(binary.LittleEndian.Uint32(b[segOffBlock:]))
	h.number = binary.LittleEndian.Uint64(b[segOffNum:])
	h.salt = binary.LittleEndian.Uint64(b[segOffSalt:])
	h.follows = binary.LittleEndian.Uint32(b[segOffFol:])
	size := binary.LittleEndian.Uint64(b[segOffSize:])
	switch {
	case h.block != 512 && h.block != 1024 && h.block != 2048 && h.block != 4096:
		return h, fmt.Errorf("segment has block size %d", h.block)
	case size < MinSegmentSize || size > MaxSegmentSize || size%pageUnit != 0:
		return h, fmt.Errorf("segment has size %d", size)
	case h.number > MaxSegment:
		return h, fmt.Errorf("segment has number %d", h.number)
	case binary.LittleEndian.Uint32(b[segOffRes:]) != 0:
		return h, errors.New("segment header has reserved bytes that are not zero")
	}
	h.size = int64(size)
	for i, c := range b[segHeadLen:hintAt] {
		if c != 0 {
			return h, fmt.Errorf("segment header has byte %#x at offset %d, expected zero", c,
				segHeadLen+i)
		}
	}
	return h, nil
}

// putHint encodes a durability hint at the start of b.
func putHint(b []byte, salt uint64, synced LSN) {
	binary.LittleEndian.PutUint64(b[hintSalt:], salt)
	binary.LittleEndian.PutUint64(b[hintSynced:], uint64(synced))
	binary.LittleEndian.PutUint64(b[hintSum:], xxhash.Sum64(b[:hintSum]))
}

// decodeHint gives the position in the durability hint at the start of b. A hint with a wrong
// checksum, or of the file's previous use, is no information.
func decodeHint(b []byte, salt uint64) (synced LSN, ok bool) {
	if len(b) < hintLen ||
		binary.LittleEndian.Uint64(b[hintSalt:]) != salt ||
		binary.LittleEndian.Uint64(b[hintSum:]) != xxhash.Sum64(b[:hintSum]) {
		return 0, false
	}
	return LSN(binary.LittleEndian.Uint64(b[hintSynced:])), true
}

// alignUp gives the first multiple of unit, a power of two, that is not below x.
func alignUp[T ~int64 | ~uint64 | ~int](x T, unit int64) T { return (x + T(unit) - 1) &^ (T(unit) - 1) }
