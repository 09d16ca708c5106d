package wal

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/offheap"
)

// segmentImage is a segment file in memory, as far as it was read.
type segmentImage struct {
	foundSegment
	base LSN    // position of the file's first byte
	b    []byte // at most size bytes
}

// imageBuffer holds one image at a time; the next one replaces it, and Free frees the memory. Fresh
// memory for each image would cost more than reading it. Whole segments use huge pages: with 4 KiB
// pages the first touch of 4 MiB took 20 ms on a slow machine, the read half of that with huge ones
// (docs/performance.md, open-killed).
type imageBuffer = offheap.List[byte]

func newImageBuffer() *imageBuffer { return &imageBuffer{Off: true} }

func (f *ScanResult) load(i int, m *imageBuffer) (*segmentImage, error) {
	s := f.segments[i]
	return f.read(s, s.size, m)
}

// read reads up to limit bytes of a segment. It allocates no more than the file has.
func (f *ScanResult) read(s foundSegment, limit int64, m *imageBuffer) (img *segmentImage, err error) {
	file, err := f.opts.FS.Open(s.file, 0)
	if err != nil {
		return nil, fmt.Errorf("open log segment: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := file.Size()
	if err != nil {
		return nil, fmt.Errorf("size of log segment %s: %w", s.file, err)
	}
	length := int(max(0, min(size, s.size, limit)))
	m.All = m.All[:0]
	m.Room(length)
	b := m.All[:length]
	n, err := readUpTo(file, b)
	if err != nil {
		return nil, fmt.Errorf("read log segment %s: %w", s.file, err)
	}
	return &segmentImage{foundSegment: s, base: LSN(s.number * uint64(s.size)), b: b[:n]}, nil
}

func (m *segmentImage) record(off int64) (record, error) {
	if off > int64(len(m.b)) {
		return record{}, errors.New("file ends before the record")
	}
	return decodeRecord(m.b[off:], m.salt, m.base+LSN(off))
}

// nextRecord finds the record that follows a record which ended at off: there, or, where the header
// is zero or does not fit, at the next block, or at the next page unit, to which the writer pads
// when it changes between cached and direct writes. Zeros there too, or the end of the file, are
// the end.
func (m *segmentImage) nextRecord(off int64) (int64, bool) {
	if alignUp(off, m.block)-off < recHeader && off%m.block != 0 {
		off = alignUp(off, m.block)
	}
	for _, unit := range [...]int64{1, m.block, pageUnit} {
		off = alignUp(off, unit)
		if off+recHeader > int64(len(m.b)) {
			return 0, false
		}
		if !zeroHeader(m.b[off:]) {
			return off, true
		}
	}
	return 0, false
}

// hint gives the position in the durability hint.
func (m *segmentImage) hint() (LSN, bool) {
	if len(m.b) < hintAt {
		return 0, false
	}
	return decodeHint(m.b[hintAt:], m.salt)
}

// records calls fn for each valid record from off on, wherever one can begin after a gap: at each
// block, and behind another record. It ends when fn returns false.
func (m *segmentImage) records(off int64, fn func(record) (stop bool)) {
	for at := max(firstRecord, alignUp(off, m.block)); at+recHeader <= int64(len(m.b)); {
		next := at + m.block
		for pos := at; ownHeader(m.b[min(pos, int64(len(m.b))):], m.salt, m.base+LSN(pos)); {
			r, err := m.record(pos)
			if err != nil {
				break
			}
			if fn(r) {
				return
			}
			pos += r.size()
			next = max(next, alignUp(pos, m.block))
			if m.block-pos%m.block < recHeader {
				break // The next record is at a block, where the outer loop looks.
			}
		}
		at = next
	}
}

// anyRecord finds a valid record from off on.
func (m *segmentImage) anyRecord(off int64) (found record, ok bool) {
	m.records(off, func(r record) bool {
		found, ok = r, true
		return true
	})
	return found, ok
}

// durabilityEvidence finds a valid record from off on which says that more than end was durable.
func (m *segmentImage) durabilityEvidence(off int64, end LSN) (found record, ok bool) {
	m.records(off, func(r record) bool {
		if r.synced > end {
			found, ok = r, true
		}
		return ok
	})
	return found, ok
}

// recordBytes counts the bytes from where the first record should be to the end of the last valid
// one.
func (m *segmentImage) recordBytes() (n int64) {
	m.records(firstRecord, func(r record) bool {
		n = int64(r.lsn-m.base) + r.size() - firstRecord
		return false
	})
	return n
}

// claimedBytes counts the bytes from keep to the end of the last record whose header has this
// segment's salt, valid or not. end is where the valid records end; keep is not behind it.
func (m *segmentImage) claimedBytes(end, keep LSN) int64 {
	last := int64(end - m.base)
	claim := func(off int64) {
		if off+recHeader > int64(len(m.b)) || !similarHeader(m.b[off:], m.salt, m.base+LSN(off)) {
			return
		}
		length := int64(binary.LittleEndian.Uint32(m.b[off+recLength:]))
		last = max(last, min(off+recHeader+length, int64(len(m.b))))
	}
	off := last
	if pos, ok := m.nextRecord(off); ok {
		claim(pos)
	}
	for at := alignUp(off, m.block); at < int64(len(m.b)); at += m.block {
		claim(at)
	}
	return max(0, int64(m.base+LSN(last)-keep))
}
