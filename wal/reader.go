package wal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

// SegmentInfo tells of one segment file with a valid header.
type SegmentInfo struct {
	Number  uint64
	File    string // name as the file system takes it
	Salt    uint64
	Follows uint32 // checkpoint that was durable when the header was written
}

// Found is what Scan found beside a store: its segments and leftovers. It keeps no file open.
type Found struct {
	opts      Options
	segments  []foundSegment // by rising number
	strangers []string       // files whose name is of this log and whose header is not
	next      uint64
}

type foundSegment struct {
	segmentHeader
	file string
}

// Scan reads the headers of all segment files of o.Path. It changes nothing.
func Scan(o Options) (*Found, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	bases, err := o.FS.List(o.dir())
	if err != nil {
		return nil, fmt.Errorf("list log segments: %w", err)
	}
	f := &Found{opts: o}
	for _, base := range bases {
		number, ok := o.number(base)
		if !ok {
			continue
		}
		f.next = max(f.next, number+1)
		name := o.name(number)
		h, err := scanHeader(o, name, number)
		var bad *badfile.Error
		switch {
		case err == nil:
			f.segments = append(f.segments, foundSegment{h, name})
		case errors.As(err, &bad), errors.Is(err, vfs.ErrNotRegular):
			f.strangers = append(f.strangers, name)
		case errors.Is(err, fs.ErrNotExist): // gone since List
		default:
			return nil, err
		}
	}
	slices.SortFunc(f.segments, func(a, b foundSegment) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	return f, nil
}

// scanHeader reads one header. A *badfile.Error means that the file is none of the store's segments.
func scanHeader(o Options, name string, number uint64) (h segmentHeader, err error) {
	file, err := o.FS.Open(name, 0)
	if err != nil {
		return h, fmt.Errorf("open log segment: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	b := make([]byte, noteAt)
	n, err := readUpTo(file, b, 0)
	if err != nil {
		return h, fmt.Errorf("read header of log segment %s: %w", name, err)
	}
	h, err = decodeSegmentHeader(b[:n])
	switch {
	case err != nil:
		return h, badfile.At(name, 0, "%v", err)
	case h.storeID != o.StoreID:
		return h, badfile.At(name, segOffStore, "segment is of store %x, expected %x", h.storeID, o.StoreID)
	case h.number != number:
		return h, badfile.At(name, segOffNum, "segment has number %d, its name says %d", h.number, number)
	case h.size != o.SegmentSize:
		return h, badfile.At(name, segOffSize, "segment has size %d, expected %d", h.size, o.SegmentSize)
	}
	return h, nil
}

// readUpTo fills b from off as far as the file goes. Only the end of the file is no error.
func readUpTo(file vfs.File, b []byte, off int64) (n int, err error) {
	for n < len(b) {
		k, err := file.ReadAt(b[n:], off+int64(n))
		n += k
		switch {
		case n == len(b):
			return n, nil
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		case k == 0:
			return n, io.ErrNoProgress
		}
	}
	return n, nil
}

// Segments gives the segments with a valid header, by rising number.
func (f *Found) Segments() []SegmentInfo {
	infos := make([]SegmentInfo, len(f.segments))
	for i, s := range f.segments {
		infos[i] = SegmentInfo{Number: s.number, File: s.file, Salt: s.salt, Follows: s.follows}
	}
	return infos
}

// Strangers gives the files that are named like segments of this store and are none: half made, retired, of another
// store, or damaged.
func (f *Found) Strangers() []string { return slices.Clone(f.strangers) }

// Next gives the first segment number above those of all files found, strangers included.
func (f *Found) Next() uint64 { return f.next }

// index finds a segment by number; -1 if it is not there.
func (f *Found) index(number uint64) int {
	i, ok := slices.BinarySearchFunc(f.segments, number, func(s foundSegment, n uint64) int {
		switch {
		case s.number < n:
			return -1
		case s.number > n:
			return 1
		}
		return 0
	})
	if !ok {
		return -1
	}
	return i
}

// first checks that a replay could start at start, and gives the index of its segment.
func (f *Found) first(start LSN) (int, error) {
	number, off := f.opts.at(start)
	i := f.index(number)
	switch {
	case i < 0:
		return 0, badfile.At(f.opts.name(number), -1, "log has to start at LSN %d, its segment %d is missing or damaged", start, number)
	case off < firstRecord:
		return 0, badfile.At(f.segments[i].file, off, "log has to start at LSN %d, in front of the first record of segment %d", start, number)
	}
	return i, nil
}

// Chain says whether the segments from start's to the last one with a record are all there, each following the one
// before it. It looks at the first records only: what else may be wrong inside, Replay finds. An empty segment after
// the end is a prepared spare and no fault. Its errors are *badfile.Error, or of the machine.
func (f *Found) Chain(start LSN) error {
	first, err := f.first(start)
	if err != nil {
		return err
	}
	// From the end backwards: the last segment with a record is the last that matters.
	last := len(f.segments) - 1
	for ; last > first; last-- {
		img, err := f.load(last)
		if err != nil {
			return err
		}
		if _, ok := img.anyRecord(firstRecord); ok {
			break
		}
	}
	for i := last; i > first; i-- {
		s := f.segments[i]
		if f.segments[i-1].number != s.number-1 {
			return badfile.At(f.opts.name(s.number-1), -1, "segment %d holds records, segment %d before it is missing or damaged", s.number, s.number-1)
		}
		head, err := f.loadFirst(i)
		if err != nil {
			return err
		}
		r, err := head.record(firstRecord)
		if err != nil {
			continue // Replay tells whether that matters and where.
		}
		if prev, _ := f.opts.at(r.prev); r.prev == 0 || prev != s.number-1 {
			return badfile.At(s.file, firstRecord, "segment %d begins a log of its own, its first record follows LSN %d and not segment %d", s.number, r.prev, s.number-1)
		}
	}
	return nil
}

// Tail tells how a log ended.
type Tail struct {
	End     LSN   // end of the last complete commit, or, if no part of one comes after, the start of a later segment
	Dropped int64 // bytes behind End that look like records of this log: torn, or parts of a commit that has no end
	Commits int
}

// Replay calls fn once for each complete commit from start on, in order, with the payload of all its parts joined and
// the position of its first record. payload is valid until fn returns; an error of fn ends the replay and is returned
// unchanged.
//
// Where the records end, at a position X behind the last valid one, the question is whether they were torn off there
// by a crash or are damaged. It is damage, a *badfile.Error, if anything says that more had been durable:
//
//   - a later segment holds a valid record: it got its first one only after this segment was durable;
//   - a later record of this segment says that everything up to Y > X is durable;
//   - a note, of this segment or a later one, says so;
//   - durable, the highest position that the caller has on record as durable, is past X.
//
// A sealed segment whose successor is missing is damage too: the successor is made durable before the seal is written.
// Otherwise the end is a torn tail or the clean end. A read that fails is neither; its error is returned.
func (f *Found) Replay(start, durable LSN, fn func(payload []byte, lsn LSN) error) (Tail, error) {
	i, err := f.first(start)
	if err != nil {
		return Tail{}, err
	}
	p := replay{fn: fn, start: start, tail: Tail{End: start}}
	for at := start; ; i++ {
		img, err := f.load(i)
		if err != nil {
			return p.tail, err
		}
		end, sealed, why, err := p.segment(img, at)
		switch {
		case err != nil:
			return p.tail, err
		case !sealed:
			if err := f.judge(i, img, end, durable, why); err != nil {
				return p.tail, err
			}
			p.tail.Dropped = img.claimed(end, p.tail.End)
			return p.tail, nil
		case i+1 == len(f.segments) || f.segments[i+1].number != img.number+1:
			return p.tail, badfile.At(f.opts.name(img.number+1), -1, "segment %d is sealed, segment %d is missing or damaged", img.number, img.number+1)
		}
		at = f.opts.start(img.number + 1)
		if !p.open {
			p.tail.End = at
		}
	}
}

// replay is the state of one Replay: what was read so far.
type replay struct {
	fn    func(payload []byte, lsn LSN) error
	start LSN
	tail  Tail
	prev  LSN  // last record; meaningful once any is set
	any   bool // a record was read
	parts []byte
	open  bool // a first part was read, its last part not yet
	first LSN  // position of that first part
}

// segment goes through the records of one segment from at on. It returns the end of the last valid one, and either
// sealed or what was wrong with the bytes behind it.
func (p *replay) segment(img *image, at LSN) (end LSN, sealed bool, why error, err error) {
	end = at
	off := int64(at - img.base)
	for {
		pos, found := img.skip(off)
		if !found {
			return end, false, errors.New("no record"), nil
		}
		r, err := img.record(pos)
		if err != nil {
			return end, false, err, nil
		}
		if err := p.follows(img, r, pos); err != nil {
			return end, false, err, nil
		}
		p.prev, p.any = r.lsn, true
		if r.kind == typeSeal {
			return end, true, nil, nil
		}
		off = pos + r.size()
		end = img.base + LSN(off)
		if err := p.data(img, r, pos, end); err != nil {
			return end, false, nil, err
		}
	}
}

// follows says whether r, a valid record at pos, is the next one.
func (p *replay) follows(img *image, r record, pos int64) error {
	if p.any {
		if r.prev != p.prev {
			return fmt.Errorf("record follows LSN %d, the last one is at %d", r.prev, p.prev)
		}
		return nil
	}
	// The record before the first one is gone or was never there. Still its position says that nothing is missing
	// between start and here, and it has to be in the right segment.
	if r.prev >= p.start {
		return fmt.Errorf("record follows LSN %d, which is missing", r.prev)
	}
	if pos == firstRecord && r.prev != 0 && uint64(r.prev)/uint64(img.size) != img.number-1 {
		return fmt.Errorf("record follows LSN %d, which is not in segment %d", r.prev, img.number-1)
	}
	return nil
}

// data takes a data record: a part of a commit.
func (p *replay) data(img *image, r record, pos int64, end LSN) error {
	if r.flags&partFirst != 0 {
		p.parts, p.open, p.first = nil, true, r.lsn
	} else if !p.open {
		return badfile.At(img.file, pos, "record at LSN %d goes on with a commit that has no beginning", r.lsn)
	}
	if r.flags&partLast == 0 {
		p.parts = append(p.parts, r.payload...)
		return nil
	}
	payload := r.payload
	if r.flags&partFirst == 0 {
		payload = append(p.parts, r.payload...)
	}
	p.parts, p.open = nil, false
	if err := p.fn(payload, p.first); err != nil {
		return err
	}
	p.tail.End = end
	p.tail.Commits++
	return nil
}

// judge decides about the end of the records at end, in segment i. nil: it is a torn tail or the clean end.
func (f *Found) judge(i int, img *image, end, durable LSN, why error) error {
	bad := func(format string, args ...any) error {
		off := int64(end - img.base)
		return badfile.At(img.file, off, "log ends at LSN %d (%v), but %s", end, why, fmt.Sprintf(format, args...))
	}
	if durable > end {
		return bad("the store was durable up to LSN %d", durable)
	}
	if synced, ok := img.note(); ok && synced > end {
		return bad("the segment's note says that LSN %d is durable", synced)
	}
	if r, ok := img.witness(int64(end-img.base), end); ok {
		return bad("the record at LSN %d says that LSN %d is durable", r.lsn, r.synced)
	}
	for j := i + 1; j < len(f.segments); j++ {
		later, err := f.load(j)
		if err != nil {
			return err
		}
		if r, ok := later.anyRecord(firstRecord); ok {
			return bad("segment %d holds a record at LSN %d", later.number, r.lsn)
		}
		if synced, ok := later.note(); ok && synced > end {
			return bad("the note of segment %d says that LSN %d is durable", later.number, synced)
		}
	}
	return nil
}

// image is a segment file in memory, as far as it is there.
type image struct {
	foundSegment
	base LSN    // position of the file's first byte
	b    []byte // at most size bytes
}

// load reads segment i.
func (f *Found) load(i int) (*image, error) {
	s := f.segments[i]
	return f.read(s, s.size)
}

// loadFirst reads segment i as far as its first record goes.
func (f *Found) loadFirst(i int) (*image, error) {
	s := f.segments[i]
	img, err := f.read(s, firstRecord+pageUnit)
	if err != nil || len(img.b) < firstRecord+pageUnit {
		return img, err
	}
	if _, err := img.record(firstRecord); err == nil {
		return img, nil
	}
	return f.read(s, s.size)
}

// read reads up to limit bytes of a segment. It allocates no more than the file has.
func (f *Found) read(s foundSegment, limit int64) (img *image, err error) {
	file, err := f.opts.FS.Open(s.file, 0)
	if err != nil {
		return nil, fmt.Errorf("open log segment: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := file.Size()
	if err != nil {
		return nil, fmt.Errorf("size of log segment %s: %w", s.file, err)
	}
	b := make([]byte, max(0, min(size, limit)))
	n, err := readUpTo(file, b, 0)
	if err != nil {
		return nil, fmt.Errorf("read log segment %s: %w", s.file, err)
	}
	return &image{foundSegment: s, base: LSN(s.number * uint64(s.size)), b: b[:n]}, nil
}

// record decodes the record at off.
func (m *image) record(off int64) (record, error) {
	if off > int64(len(m.b)) {
		return record{}, errors.New("file ends before the record")
	}
	return decodeRecord(m.b[off:], m.salt, m.base+LSN(off))
}

// skip finds where the next record begins if the last one ended at off: there, or, where the header is zero or does
// not fit, at the next block, or at the next page unit, to which the writer pads when it changes between cached and
// direct writes. Zeros there too, or the end of the file, are the end.
func (m *image) skip(off int64) (int64, bool) {
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

// note gives what the note block says.
func (m *image) note() (LSN, bool) {
	if len(m.b) < noteAt {
		return 0, false
	}
	return decodeNote(m.b[noteAt:], m.salt)
}

// records calls fn for each valid record from off on, wherever one can begin after a gap: at each block, and behind
// another record. It ends when fn says so.
func (m *image) records(off int64, fn func(record) (stop bool)) {
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
func (m *image) anyRecord(off int64) (found record, ok bool) {
	m.records(off, func(r record) bool {
		found, ok = r, true
		return true
	})
	return found, ok
}

// witness finds a valid record from off on which says that more than end was durable.
func (m *image) witness(off int64, end LSN) (found record, ok bool) {
	m.records(off, func(r record) bool {
		if r.synced > end {
			found, ok = r, true
		}
		return ok
	})
	return found, ok
}

// claimed counts the bytes from keep to the last one that a header of this segment's life lays claim to, whether the
// record is whole or not. end is where the valid records end; keep is not behind it.
func (m *image) claimed(end, keep LSN) int64 {
	last := int64(end - m.base)
	claim := func(off int64) {
		if off+recHeader > int64(len(m.b)) || !ownHeader(m.b[off:], m.salt, m.base+LSN(off)) {
			return
		}
		length := int64(uint32(m.b[off+recLength]) | uint32(m.b[off+recLength+1])<<8 |
			uint32(m.b[off+recLength+2])<<16 | uint32(m.b[off+recLength+3])<<24)
		last = max(last, min(off+recHeader+length, int64(len(m.b))))
	}
	off := last
	if pos, ok := m.skip(off); ok {
		claim(pos)
	}
	for at := alignUp(off, m.block); at < int64(len(m.b)); at += m.block {
		claim(at)
	}
	return max(0, int64(m.base+LSN(last)-keep))
}

// Remove deletes the segments that are wholly before the given position, and all strangers. Remove of the position of a running log
// leaves the log's own segments alone, a spare included.
func (f *Found) Remove(before LSN) error {
	number, _ := f.opts.at(before)
	var names []string
	for _, s := range f.segments {
		if s.number < number {
			names = append(names, s.file)
		}
	}
	return removeFiles(f.opts, append(names, f.strangers...))
}

// Remove deletes every file that is named like a segment of o.Path.
func Remove(o Options) error {
	bases, err := o.FS.List(o.dir())
	if err != nil {
		return fmt.Errorf("list log segments: %w", err)
	}
	var numbers []uint64
	for _, base := range bases {
		if number, ok := o.number(base); ok {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	var names []string
	for _, number := range numbers {
		names = append(names, o.name(number))
	}
	return removeFiles(o, names)
}

// removeFiles deletes the files in the given order, lowest segment first: while it runs, no chain that begins at a
// deleted segment is complete. The removal is not made durable: a segment that comes back is told by its number, and
// a chain of them that comes back whole leads to the same state as the meta page that made them superfluous.
func removeFiles(o Options, names []string) error {
	for _, name := range names {
		if err := o.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove log segment %s: %w", filepath.Base(name), err)
		}
	}
	return nil
}
