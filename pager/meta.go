package pager

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

// Errors of files that are not damaged stores.
var (
	ErrNotStore = errors.New("pager: not a store")
	ErrVersion  = errors.New("pager: format version or required feature not known")
)

// FormatVersion is the version this code writes, and the only one it reads.
const FormatVersion = 4

// magic is at offset 24 of both meta pages.
var magic = [8]byte{'E', 'b', 'b', ' ', 'k', 'v', '\r', '\n'}

// Meta page, behind the page header. Pages 0 and 1 are meta pages; checkpoints write them in turn.
//
//	24 magic [8]byte        32 version u32          36 flags u32 (1: closed cleanly, no log needed)
//	40 required u64         48 optional u64         feature bits; an unknown required one is ErrVersion
//	   required bit 0: the log may refer to leaf runs; set unless closed cleanly
//	56 store id [16]byte    72 page size u32        76 segment size u32 (of the log)
//	80 pages u64            88 log start u64        96 log durable u64
//	104 root pgid u64       112 root epoch u32      116 root depth u32      120 root rows u64 (tree table)
//	128 free pgid u64       136 free epoch u32      140 reserved u32        (root of the free directory)
//	144 next tree u64       152 seq u64             160 clock mark i64      168 next trash u64
//	176 backups [32]{epoch u32, zeros u32, id u64}
//	688 zeros to the end of the page
//
// The first zero id ends the backups; optional bit 1 says that there are some.
// The header's epoch is the number of the checkpoint. log start is the LSN at which replay begins.
// The log before log durable was synced when the page was written. Golden bytes: testdata/meta.hex.
const (
	offMagic      = 24
	offVersion    = 32
	offFlags      = 36
	offRequired   = 40
	offOptional   = 48
	offStoreID    = 56
	offPageSize   = 72
	offSegSize    = 76
	offPages      = 80
	offLogStart   = 88
	offLogDurable = 96
	offRootPgid   = 104
	offRootEpoch  = 112
	offRootDepth  = 116
	offRootRows   = 120
	offFreePgid   = 128
	offFreeEpoch  = 136
	offNextTree   = 144
	offSeq        = 152
	offClockMark  = 160
	offNextTrash  = 168
	offBackups    = 176
	backupSize    = 16
	metaEnd       = offBackups + MostBackups*backupSize

	flagClean    = 1
	maxTreeDepth = 64
)

// Required features are those of the log, which a cleanly closed store does not need.
const (
	featureLeaves    uint64 = 1 << 0 // the log may refer to leaf runs
	featureValueSums uint64 = 1 << 1 // references to large values have a checksum

	knownRequired = featureLeaves | featureValueSums
)

// Optional features: a program that does not know one keeps its bit and loses what it stands for.
const featureBackups uint64 = 1 << 1 // the page remembers backups

// MostBackups is the number of backups that a meta page remembers.
const MostBackups = 32

// A BackupID identifies the state that a backup took. ID is random and not 0: the copy of a store
// file that was used since reaches the same epochs with other pages.
type BackupID struct {
	Epoch Epoch
	ID    uint64
}

// String is how users see it: see ParseBackupID.
func (id BackupID) String() string { return fmt.Sprintf(backupIDFormat, id.Epoch, id.ID) }

const backupIDFormat = "%d-%016x"

// ParseBackupID reads what String returns.
func ParseBackupID(s string) (id BackupID, ok bool) {
	_, err := fmt.Sscanf(s, backupIDFormat, &id.Epoch, &id.ID)
	return id, err == nil && id.String() == s
}

// Meta is one decoded meta page: a durable state of the store and its position in the log.
type Meta struct {
	Slot        int // number of the page, 0 or 1
	Epoch       Epoch
	Clean       bool
	Optional    uint64
	StoreID     [16]byte
	PageSize    int
	SegmentSize int64
	Pages       uint64
	LogStart    uint64
	LogDurable  uint64
	Root        Ref
	RootDepth   uint8
	RootRows    uint64
	FreeDir     Ref
	NextTree    uint64
	NextTrash   uint64
	Seq         uint64
	ClockMark   int64
	Backups     []BackupID // the last ones, the newest last; not to be changed in place
}

func appendMeta(b []byte, m *Meta) []byte {
	p := make([]byte, m.PageSize)
	WriteHeader(p, Header{Pgid: Pgid(m.Slot), Epoch: m.Epoch, Kind: KindMeta})
	le := binary.LittleEndian
	copy(p[offMagic:], magic[:])
	le.PutUint32(p[offVersion:], FormatVersion)
	if m.Clean {
		le.PutUint32(p[offFlags:], flagClean)
	} else {
		le.PutUint64(p[offRequired:], knownRequired)
	}
	le.PutUint64(p[offOptional:], m.Optional&^featureBackups)
	if len(m.Backups) > 0 {
		le.PutUint64(p[offOptional:], m.Optional|featureBackups)
	}
	for i, b := range m.Backups {
		le.PutUint32(p[offBackups+i*backupSize:], uint32(b.Epoch))
		le.PutUint64(p[offBackups+i*backupSize+8:], b.ID)
	}
	copy(p[offStoreID:], m.StoreID[:])
	le.PutUint32(p[offPageSize:], uint32(m.PageSize))
	le.PutUint32(p[offSegSize:], uint32(m.SegmentSize))
	le.PutUint64(p[offPages:], m.Pages)
	le.PutUint64(p[offLogStart:], m.LogStart)
	le.PutUint64(p[offLogDurable:], m.LogDurable)
	le.PutUint64(p[offRootPgid:], uint64(m.Root.Pgid))
	le.PutUint32(p[offRootEpoch:], uint32(m.Root.Epoch))
	le.PutUint32(p[offRootDepth:], uint32(m.RootDepth))
	le.PutUint64(p[offRootRows:], m.RootRows)
	le.PutUint64(p[offFreePgid:], uint64(m.FreeDir.Pgid))
	le.PutUint32(p[offFreeEpoch:], uint32(m.FreeDir.Epoch))
	le.PutUint64(p[offNextTree:], m.NextTree)
	le.PutUint64(p[offSeq:], m.Seq)
	le.PutUint64(p[offClockMark:], uint64(m.ClockMark))
	le.PutUint64(p[offNextTrash:], m.NextTrash)
	SetChecksum(p, Salt(m.StoreID))
	return append(b, p...)
}

// decodeMeta decodes and verifies every field of a meta page that was read from slot. p is one page
// long.
func decodeMeta(p []byte, slot int) (*Meta, error) {
	le := binary.LittleEndian
	if !bytes.Equal(p[offMagic:offMagic+8], magic[:]) {
		return nil, ErrNotStore
	}
	m := &Meta{Slot: slot}
	copy(m.StoreID[:], p[offStoreID:])
	if !ChecksumMatches(p, Salt(m.StoreID)) {
		return nil, errors.New("wrong checksum")
	}
	if v := le.Uint32(p[offVersion:]); v != FormatVersion {
		return nil, fmt.Errorf("%w: file has version %d, this code reads %d", ErrVersion, v, FormatVersion)
	}
	if r := le.Uint64(p[offRequired:]); r&^knownRequired != 0 {
		return nil, fmt.Errorf("%w: file requires features %#x, this code knows %#x", ErrVersion, r,
			knownRequired)
	}
	h := ReadHeader(p)
	m.Epoch = h.Epoch
	m.Clean = le.Uint32(p[offFlags:])&flagClean != 0
	m.Optional = le.Uint64(p[offOptional:])
	m.PageSize = int(le.Uint32(p[offPageSize:]))
	m.SegmentSize = int64(le.Uint32(p[offSegSize:]))
	m.Pages = le.Uint64(p[offPages:])
	m.LogStart = le.Uint64(p[offLogStart:])
	m.LogDurable = le.Uint64(p[offLogDurable:])
	m.Root = Ref{Pgid(le.Uint64(p[offRootPgid:])), Epoch(le.Uint32(p[offRootEpoch:]))}
	depth := le.Uint32(p[offRootDepth:])
	m.RootDepth = uint8(depth)
	m.RootRows = le.Uint64(p[offRootRows:])
	m.FreeDir = Ref{Pgid(le.Uint64(p[offFreePgid:])), Epoch(le.Uint32(p[offFreeEpoch:]))}
	m.NextTree = le.Uint64(p[offNextTree:])
	m.NextTrash = le.Uint64(p[offNextTrash:])
	m.Seq = le.Uint64(p[offSeq:])
	m.ClockMark = int64(le.Uint64(p[offClockMark:]))
	switch {
	case h.Kind != KindMeta || h.Pgid != Pgid(slot):
		return nil, fmt.Errorf("%v page with number %d where meta page %d belongs", h.Kind, h.Pgid, slot)
	case h.Level != 0 || h.Count != 0:
		return nil, fmt.Errorf("level %d and count %d in a meta page", h.Level, h.Count)
	case le.Uint32(p[offFlags:])&^flagClean != 0:
		return nil, fmt.Errorf("flags %#x", le.Uint32(p[offFlags:]))
	case m.PageSize != len(p):
		return nil, fmt.Errorf("page size %d in a page of %d bytes", m.PageSize, len(p))
	case m.Epoch == 0 || m.Epoch >= MaxEpoch:
		return nil, fmt.Errorf("epoch %d out of range", m.Epoch)
	case m.SegmentSize < minSegment || m.SegmentSize > maxSegment || m.SegmentSize%4096 != 0:
		return nil, fmt.Errorf("segment size %d", m.SegmentSize)
	case max(m.LogStart, m.LogDurable)/uint64(m.SegmentSize) >= maxSegments:
		return nil, fmt.Errorf("log from LSN %d, durable up to %d, out of range", m.LogStart, m.LogDurable)
	case m.NextTree >= maxNumber || m.NextTrash >= maxNumber:
		return nil, fmt.Errorf("next tree %d or next trash %d out of range", m.NextTree, m.NextTrash)
	case m.Pages < 2 || m.Pages > maxPages:
		return nil, fmt.Errorf("page count %d out of range", m.Pages)
	case uint64(m.Root.Pgid) >= m.Pages || uint64(m.FreeDir.Pgid) >= m.Pages:
		return nil, fmt.Errorf("root %v or free directory %v past the last page %d", m.Root,
			m.FreeDir, m.Pages-1)
	case m.Root.Pgid == 1 || m.FreeDir.Pgid == 1:
		return nil, fmt.Errorf("root %v or free directory %v is a meta page", m.Root, m.FreeDir)
	case m.Root.Epoch > m.Epoch || m.FreeDir.Epoch > m.Epoch:
		return nil, fmt.Errorf("root %v or free directory %v newer than the meta page's epoch %d",
			m.Root, m.FreeDir, m.Epoch)
	case depth > maxTreeDepth || (depth == 0) != m.Root.IsZero():
		return nil, fmt.Errorf("root %v with depth %d", m.Root, depth)
	case !allZero(p[offFreeEpoch+4:offNextTree]) || !allZero(p[metaEnd:]):
		return nil, errors.New("bytes that belong to no field are not zero")
	}
	if err := m.decodeBackups(p[offBackups:metaEnd]); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Meta) decodeBackups(b []byte) error {
	for ; len(b) > 0; b = b[backupSize:] {
		id := BackupID{Epoch(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint64(b[8:])}
		switch {
		case id.ID == 0 && !allZero(b):
			return errors.New("bytes that belong to no field are not zero")
		case id.ID == 0:
			return m.checkBackups()
		case id.Epoch == 0 || id.Epoch > m.Epoch || binary.LittleEndian.Uint32(b[4:]) != 0:
			return fmt.Errorf("backup of epoch %d in a meta page of epoch %d", id.Epoch, m.Epoch)
		}
		m.Backups = append(m.Backups, id)
	}
	return m.checkBackups()
}

func (m *Meta) checkBackups() error {
	if has := m.Optional&featureBackups != 0; has != (len(m.Backups) > 0) {
		return fmt.Errorf("%d backups, optional features %#x", len(m.Backups), m.Optional)
	}
	return nil
}

// EncodeMeta encodes m as meta page 0.
func EncodeMeta(m Meta) []byte {
	m.Slot = 0
	return appendMeta(nil, &m)
}

// DecodeMeta decodes and verifies meta page 0, of any valid page size.
func DecodeMeta(b []byte) (*Meta, error) {
	if n := len(b); n < MinPageSize || n > MaxPageSize || n&(n-1) != 0 {
		return nil, fmt.Errorf("meta page of %d bytes", n)
	}
	return decodeMeta(b, 0)
}

// MaxEpoch bounds the number of checkpoints in the life of a store: 136 years at one a second.
const MaxEpoch = Epoch(1<<32 - 16)

// maxPages bounds the page count far below where offsets overflow.
const maxPages = 1 << 44

// Bounds of the fields for the packages above: segment sizes that a log can have, and numbers far
// below where sums with them overflow.
const (
	minSegment  = 16 << 10
	maxSegment  = 1 << 30
	maxSegments = 1 << 33
	maxNumber   = 1 << 62
)

// readMetas reads both meta pages. A damaged or absent one is nil. With an error both are nil:
// neither is valid, or one is of another version or cannot be read.
func readMetas(f vfs.File, name string) (metas [2]*Meta, err error) {
	size, err := f.Size()
	if err != nil {
		return metas, err
	}
	why := [2]error{}
	notStore := 0
	var buf []byte
	for slot := range metas {
		for _, ps := range pageSizesToTry(metas[0]) {
			if int64(slot+1)*int64(ps) > size {
				continue
			}
			if len(buf) < ps {
				buf = make([]byte, ps) // one for both: fresh memory costs more than the read
			}
			p := buf[:ps]
			if err := vfs.ReadFull(f, p, int64(slot)*int64(ps)); err != nil {
				if err == io.EOF || err == io.ErrUnexpectedEOF {
					continue
				}
				return [2]*Meta{}, fmt.Errorf("read meta page %d: %w", slot, err)
			}
			m, err := decodeMeta(p, slot)
			if err == nil {
				metas[slot] = m
				break
			}
			if errors.Is(err, ErrVersion) {
				return [2]*Meta{}, err // even if page 0 is valid: a newer version has written the other one
			}
			if !errors.Is(err, ErrNotStore) {
				why[slot] = err
			} else if slot == 0 && !allZero(p) {
				notStore++
			}
		}
	}
	switch {
	case metas[0] != nil || metas[1] != nil:
		return metas, nil
	case why[0] != nil || why[1] != nil:
		return metas, badfile.Page(name, 0, 0, "no valid meta page: page 0: %v; page 1: %v",
			cmp.Or(why[0], errAbsent), cmp.Or(why[1], errAbsent))
	case notStore > 0:
		return metas, ErrNotStore
	case size > 0:
		// The file is short or all zeros. A short file with foreign bytes belongs to another
		// program and is not a damaged store.
		head := make([]byte, min(size, MinPageSize))
		if err := vfs.ReadFull(f, head, 0); err != nil {
			return metas, err
		}
		if !allZero(head) && (len(head) < offMagic+8 || !bytes.Equal(head[offMagic:offMagic+8], magic[:])) &&
			!looksShort(head) {
			return metas, ErrNotStore
		}
		return metas, badfile.Page(name, 0, 0,
			"no meta page: the file of %d bytes is cut short or zeroed", size)
	}
	return metas, badfile.Page(name, 0, 0, "file is empty")
}

// looksShort reports whether a file shorter than a page may be the beginning of a store: the kind
// in its header is that of a meta page.
func looksShort(b []byte) bool {
	return len(b) < offMagic+8 && (len(b) <= offKind || b[offKind] == byte(KindMeta))
}

var errAbsent = errors.New("absent")

// pageSizesToTry is the page size of meta page 0 if that is valid, else all sizes.
func pageSizesToTry(m *Meta) []int {
	if m != nil {
		return []int{m.PageSize}
	}
	return []int{4096, 8192, 16384, 32768, 65536}
}

func allZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }
