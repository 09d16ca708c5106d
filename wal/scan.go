package wal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

// SegmentInfo describes one segment file with a valid header.
type SegmentInfo struct {
	Number  uint64
	File    string // name as the file system takes it
	Salt    uint64
	Follows uint32 // checkpoint that was durable when the header was written
}

// ScanResult is the result of Scan: a store's segments and foreign files. It keeps no file open.
type ScanResult struct {
	opts      Options
	segments  []foundSegment // by rising number
	foreign   []string       // files whose name is of this log and whose header is not
	others    []OtherSegment
	next      uint64
	fileBytes int64         // of the files of segments
	emptyTail int           // segments at the end that are known to hold no record
	links     map[int]error // what Chain has found at the beginning of a segment
}

// OtherSegment is a segment of another store, under a name that would be one of this log.
type OtherSegment struct {
	File    string // name as the file system takes it
	StoreID [16]byte
}

type foundSegment struct {
	segmentHeader
	file string
}

// Scan reads the headers of all segment files of o.Path. It changes nothing.
func Scan(o Options) (*ScanResult, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	numbers, err := o.list()
	if err != nil {
		return nil, err
	}
	f := &ScanResult{opts: o, links: map[int]error{}}
	for _, number := range numbers {
		name := o.name(number)
		h, bytes, err := scanHeader(o, name, number)
		var bad *badfile.Error
		switch {
		case err == nil:
			f.segments = append(f.segments, foundSegment{h, name})
			f.fileBytes += bytes
		case errors.Is(err, errOtherStore):
			f.others = append(f.others, OtherSegment{File: name, StoreID: h.storeID})
			if number > maxForeign {
				continue
			}
		case errors.As(err, &bad), errors.Is(err, vfs.ErrNotRegular):
			if number > maxForeign {
				continue
			}
			f.foreign = append(f.foreign, name)
		case errors.Is(err, fs.ErrNotExist): // removed since List
			continue
		default:
			return nil, err
		}
		f.next = max(f.next, number+1)
	}
	return f, nil
}

// errOtherStore says that a header is valid and names another store.
var errOtherStore = errors.New("segment is of another store")

// scanHeader reads one header, and the size of its file. A *badfile.Error means that the file is
// none of the store's segments, errOtherStore that it is one of another store, whatever else is
// unknown about it.
func scanHeader(o Options, name string, number uint64) (h segmentHeader, size int64, err error) {
	file, err := o.FS.Open(name, 0)
	if err != nil {
		return h, 0, fmt.Errorf("open log segment: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	b := make([]byte, hintAt)
	n, err := readUpTo(file, b)
	if err != nil {
		return h, 0, fmt.Errorf("read header of log segment %s: %w", name, err)
	}
	h, err = decodeSegmentHeader(b[:n])
	switch {
	case h.checked && h.storeID != o.StoreID:
		return h, 0, errOtherStore
	case err != nil:
		return h, 0, badfile.At(name, 0, "%v", err)
	case h.number != number:
		return h, 0, badfile.At(name, segOffNum, "segment has number %d, its name says %d", h.number, number)
	case h.size != o.SegmentSize:
		return h, 0, badfile.At(name, segOffSize, "segment has size %d, expected %d", h.size, o.SegmentSize)
	}
	if size, err = file.Size(); err != nil {
		return h, 0, fmt.Errorf("size of log segment %s: %w", name, err)
	}
	return h, size, nil
}

// readUpTo fills b from the beginning of the file as far as it goes.
func readUpTo(file vfs.File, b []byte) (n int, err error) {
	for k := 0; n < len(b); n += k {
		if k, err = file.ReadAt(b[n:], int64(n)); k == 0 && err == nil {
			err = io.ErrNoProgress
		}
		switch {
		case n+k == len(b) || err == io.EOF:
			return n + k, nil
		case err != nil:
			return n + k, err
		}
	}
	return n, nil
}

// Segments gives the segments with a valid header, by rising number.
func (f *ScanResult) Segments() []SegmentInfo {
	infos := make([]SegmentInfo, len(f.segments))
	for i, s := range f.segments {
		infos[i] = SegmentInfo{Number: s.number, File: s.file, Salt: s.salt, Follows: s.follows}
	}
	return infos
}

// MaxBytes is the capacity of the segments from start's on: the log after start is not longer.
func (f *ScanResult) MaxBytes(start LSN) (n int64) {
	number, _ := f.opts.at(start)
	for _, s := range f.segments {
		if s.number >= number {
			n += s.size
		}
	}
	return n
}

// FileBytes is the size of the files of all segments.
func (f *ScanResult) FileBytes() int64 { return f.fileBytes }

// Foreign gives the files that are named like segments of this store and are none: half made,
// retired, or damaged.
func (f *ScanResult) Foreign() []string { return slices.Clone(f.foreign) }

// OfOtherStores gives the segments of other stores: no part of this log, and not for this store to
// remove.
func (f *ScanResult) OfOtherStores() []OtherSegment { return slices.Clone(f.others) }

// Absent says that no file, whatever it holds, has the name of the segment that start is in.
func (f *ScanResult) Absent(start LSN) bool {
	number, _ := f.opts.at(start)
	return f.index(number) < 0 && !slices.Contains(f.foreign, f.opts.name(number))
}

// NextNumber gives the first segment number above those of all files found, whatever they hold.
func (f *ScanResult) NextNumber() uint64 { return f.next }

// SyncedHint is the highest position that a durability hint of the segments names. The log may be
// growing meanwhile; a hint proves by its checksum, and 0 means that none does.
func (f *ScanResult) SyncedHint() (synced LSN) {
	b := make([]byte, hintLen)
	for _, s := range f.segments {
		file, err := f.opts.FS.Open(s.file, 0)
		if err != nil {
			continue // removed since
		}
		if err := vfs.ReadFull(file, b, hintAt); err == nil {
			if at, ok := decodeHint(b, s.salt); ok {
				synced = max(synced, at)
			}
		}
		_ = file.Close() // opened for reading
	}
	return synced
}

func (f *ScanResult) index(number uint64) int {
	i, ok := slices.BinarySearchFunc(f.segments, number, func(s foundSegment, n uint64) int {
		return cmp.Compare(s.number, n)
	})
	if !ok {
		return -1
	}
	return i
}

// startIndex checks that a replay could start at start, and gives the index of its segment.
func (f *ScanResult) startIndex(start LSN) (int, error) {
	number, off := f.opts.at(start)
	i := f.index(number)
	switch {
	case i < 0:
		return 0, badfile.At(f.opts.name(number), -1,
			"log has to start at LSN %d, its segment %d is missing or damaged", start, number)
	case off < firstRecord:
		return 0, badfile.At(f.segments[i].file, off,
			"log has to start at LSN %d, in front of the first record of segment %d", start, number)
	}
	return i, nil
}

// Chain says whether the segments from start's to the last one with a record are all there, each
// following the one before it. It looks at the first records only: what else may be wrong inside,
// Replay finds. An empty segment after the end is a prepared spare and no fault. Its errors are
// *badfile.Error, or of the machine.
func (f *ScanResult) Chain(start LSN) error {
	first, err := f.startIndex(start)
	if err != nil {
		return err
	}
	m := newImageBuffer()
	defer m.Free()
	last, err := f.lastUsed(first, m)
	if err != nil {
		return err
	}
	for i := last; i > first; i-- {
		bad, known := f.links[i]
		if !known {
			if bad, err = f.segmentLink(i, m); err != nil {
				return err
			}
			f.links[i] = bad
		}
		if bad != nil {
			return bad
		}
	}
	return nil
}

// segmentLink says what is wrong between segment i, which holds a record or comes before one that
// does, and the one before it. The second error is the machine's.
func (f *ScanResult) segmentLink(i int, m *imageBuffer) (bad, err error) {
	s := f.segments[i]
	if f.segments[i-1].number != s.number-1 {
		return badfile.At(f.opts.name(s.number-1), -1,
			"segment %d holds records, segment %d before it is missing or damaged", s.number,
			s.number-1), nil
	}
	head, err := f.read(s, firstRecord+recHeader+maxPart, m) // as far as its first record can go
	if err != nil {
		return nil, err
	}
	r, err := head.record(firstRecord)
	if err != nil {
		return nil, nil // Replay tells whether that matters and where.
	}
	if prev, _ := f.opts.at(r.prev); r.prev == 0 || prev != s.number-1 {
		return badfile.At(s.file, firstRecord,
			"segment %d begins a log of its own, its first record follows LSN %d and not segment %d",
			s.number, r.prev, s.number-1), nil
	}
	return nil, nil
}

// lastUsed is the index of the last segment with a record, the last that matters, or first if none
// comes after that one. It looks from the end backwards, and reads each segment without a record
// once.
func (f *ScanResult) lastUsed(first int, m *imageBuffer) (int, error) {
	for ; len(f.segments)-1-f.emptyTail > first; f.emptyTail++ {
		i := len(f.segments) - 1 - f.emptyTail
		img, err := f.load(i, m)
		if err != nil {
			return 0, err
		}
		if _, ok := img.anyRecord(firstRecord); ok {
			return i, nil
		}
	}
	return first, nil
}

// Obsolete gives the files of the segments that are wholly before the given position, and all
// foreign files, in the order for Remove; those of other stores are not among them. With the
// position of a running log it excludes the log's own segments, a spare included.
func (f *ScanResult) Obsolete(before LSN) []string {
	number, _ := f.opts.at(before)
	var names []string
	for _, s := range f.segments {
		if s.number < number {
			names = append(names, s.file)
		}
	}
	return append(names, f.foreign...)
}

// Remove deletes files in the given order. A missing one is no error.
func (f *ScanResult) Remove(names []string) error { return removeFiles(f.opts, names) }

// Remove deletes every file that is named like a segment of o.Path.
func Remove(o Options) error {
	names, err := Files(o.FS, o.Path)
	if err != nil {
		return err
	}
	return removeFiles(o, names)
}

// removeFiles deletes the files in the given order, lowest segment first: while it runs, no chain
// that begins at a deleted segment is complete. It does not sync the directory. A segment that
// reappears is recognised by its number, and a complete chain that reappears replays to the same
// state as the meta page that made it obsolete.
func removeFiles(o Options, names []string) error {
	for _, name := range names {
		if err := o.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove log segment %s: %w", filepath.Base(name), err)
		}
	}
	return nil
}
