package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// Backup stream: a header, pages in ascending order of their numbers, an end. Integers are
// little-endian.
//
//	0 magic [8]byte      8 version u32       12 page size u32
//	16 base epoch u32    20 own epoch u32    24 base id u64 (0: a full backup)   32 own id u64
//	40 pages u64 (that follow)               48 made at i64 (milliseconds since 1970)
//	56 checksum u64 of all other bytes of the header
//	64 meta page of the checkpoint
//
// Then frames:
//
//	0 first pgid u64     8 pages u32 (0: the end)     12 zeros u32     16 checksum u64     24 pages
//
// The end has the number of all pages in place of the first pgid. A checksum is xxhash64 of the
// checksum before it, the 16 bytes before it, and the pages: so each frame proves all that comes
// before it. Golden bytes: testdata/backup.hex.
const (
	backupVersion = 1
	backupHeader  = 64
	offBackupSum  = 56
	frameHeader   = 24
	offFrameSum   = 16
	maxFrameBytes = 1 << 20
)

var backupMagic = [8]byte{'E', 'B', 'B', 'B', 'A', 'K', 0, 1}

// BackupID identifies the state that a backup took.
type BackupID = pager.BackupID

// ParseBackupID reads what BackupID.String returns.
func ParseBackupID(s string) (id BackupID, ok bool) { return pager.ParseBackupID(s) }

// Backup describes a backup stream.
type Backup struct {
	StoreID    [16]byte
	ID         pager.BackupID
	Base       pager.BackupID // zero: a full backup
	Seq        uint64         // number of the last commit in it
	PageSize   int
	Pages      uint64 // in the stream
	StorePages uint64 // page count of the store
	Bytes      int64  // of the stream; 0 if only the header was read
	MadeAt     time.Time
	meta       *pager.Meta
}

// backupWriter encodes a backup stream.
type backupWriter struct {
	w     io.Writer
	sum   uint64 // of the last frame
	pages uint64
	bytes int64
	hash  *xxhash.Digest
}

func (e *backupWriter) write(b []byte) error {
	n, err := e.w.Write(b)
	e.bytes += int64(n)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

func (e *backupWriter) begin(b *Backup) error {
	p := make([]byte, backupHeader, backupHeader+b.PageSize)
	le := binary.LittleEndian
	copy(p, backupMagic[:])
	le.PutUint32(p[8:], backupVersion)
	le.PutUint32(p[12:], uint32(b.PageSize))
	le.PutUint32(p[16:], uint32(b.Base.Epoch))
	le.PutUint32(p[20:], uint32(b.ID.Epoch))
	le.PutUint64(p[24:], b.Base.ID)
	le.PutUint64(p[32:], b.ID.ID)
	le.PutUint64(p[40:], b.Pages)
	le.PutUint64(p[48:], uint64(b.MadeAt.UnixMilli()))
	p = append(p, pager.EncodeMeta(*b.meta)...)
	e.sum, e.hash = backupHeaderSum(p), xxhash.New()
	le.PutUint64(p[offBackupSum:], e.sum)
	return e.write(p)
}

func backupHeaderSum(p []byte) uint64 {
	h := xxhash.New()
	_, _ = h.Write(p[:offBackupSum])
	_, _ = h.Write(p[backupHeader:])
	return h.Sum64()
}

// frame writes the pages in b behind its first frameHeader bytes, which frame fills.
func (e *backupWriter) frame(first pager.Pgid, n uint64, b []byte) error {
	le := binary.LittleEndian
	le.PutUint64(b, uint64(first))
	le.PutUint32(b[8:], uint32(n))
	le.PutUint32(b[12:], 0)
	e.sum = frameSum(e.hash, e.sum, b)
	le.PutUint64(b[offFrameSum:], e.sum)
	e.pages += n
	return e.write(b)
}

func (e *backupWriter) end() error {
	return e.frame(pager.Pgid(e.pages), 0, make([]byte, frameHeader))
}

func frameSum(h *xxhash.Digest, before uint64, b []byte) uint64 {
	h.Reset()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, before))
	_, _ = h.Write(b[:offFrameSum])
	_, _ = h.Write(b[frameHeader:])
	return h.Sum64()
}

// backupReader decodes a backup stream. All errors of the bytes are ErrCorrupt, those of a stream
// that is cut too.
type backupReader struct {
	Backup
	r    io.Reader
	name string
	off  int64
	sum  uint64
	read uint64     // pages so far
	next pager.Pgid // no later page is below
	buf  []byte
	hash *xxhash.Digest
}

// openBackup reads the header of a backup.
func openBackup(r io.Reader) (*backupReader, error) {
	d := &backupReader{r: r, name: "backup", hash: xxhash.New()}
	if named, ok := r.(interface{ Name() string }); ok {
		d.name = named.Name()
	}
	h := make([]byte, backupHeader, backupHeader+pager.MinPageSize)
	if err := d.fill(h); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	size := int(le.Uint32(h[12:]))
	switch {
	case [8]byte(h) != backupMagic:
		return nil, d.corrupt(0, "not a backup of an Ebb store")
	case size < pager.MinPageSize || size > pager.MaxPageSize || size&(size-1) != 0:
		return nil, d.corrupt(12, "page size %d", size)
	}
	h = append(h, make([]byte, size)...)
	if err := d.fill(h[backupHeader:]); err != nil {
		return nil, err
	}
	if d.sum = backupHeaderSum(h); d.sum != le.Uint64(h[offBackupSum:]) {
		return nil, d.corrupt(0, "the header has a wrong checksum")
	}
	if v := le.Uint32(h[8:]); v != backupVersion {
		return nil, fmt.Errorf("%w: %s has version %d of the format of backups, this code reads %d",
			ErrVersion, d.name, v, backupVersion)
	}
	m, err := pager.DecodeMeta(h[backupHeader:])
	if errors.Is(err, ErrVersion) {
		return nil, fmt.Errorf("%s: %w", d.name, err)
	} else if err != nil {
		return nil, d.corrupt(backupHeader, "meta page: %v", err)
	}
	d.Backup = Backup{
		StoreID: m.StoreID, Seq: m.Seq, PageSize: size, StorePages: m.Pages, meta: m,
		Base:   pager.BackupID{Epoch: pager.Epoch(le.Uint32(h[16:])), ID: le.Uint64(h[24:])},
		ID:     pager.BackupID{Epoch: pager.Epoch(le.Uint32(h[20:])), ID: le.Uint64(h[32:])},
		Pages:  le.Uint64(h[40:]),
		MadeAt: time.UnixMilli(int64(le.Uint64(h[48:]))),
	}
	if n := len(m.Backups); n == 0 || m.Backups[n-1] != d.ID || d.Base.ID == 0 && d.Base.Epoch != 0 {
		return nil, d.corrupt(backupHeader, "backup %v on %v, the meta page has others", d.ID, d.Base)
	}
	if d.Pages > m.Pages {
		return nil, d.corrupt(40, "%d pages of a store of %d", d.Pages, m.Pages)
	}
	d.next = 2
	return d, nil
}

func (d *backupReader) corrupt(off int64, format string, args ...any) error {
	return badfile.At(d.name, off, format, args...)
}

// fill reads len(b) bytes.
func (d *backupReader) fill(b []byte) error {
	n, err := io.ReadFull(d.r, b)
	d.off += int64(n)
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return d.corrupt(d.off, "the backup ends too early: it was cut, or never finished")
	case err != nil:
		return fmt.Errorf("read %s: %w", d.name, err)
	}
	return nil
}

// pages returns the next pages, valid until the next call; io.EOF behind the end of the stream.
func (d *backupReader) pages() (first pager.Pgid, b []byte, err error) {
	most := maxFrameBytes / d.PageSize
	at := d.off
	if d.buf == nil {
		d.buf = make([]byte, frameHeader+d.PageSize)
	}
	h := d.buf[:frameHeader]
	if err := d.fill(h); err != nil {
		return 0, nil, err
	}
	first = pager.Pgid(binary.LittleEndian.Uint64(h))
	n := int(binary.LittleEndian.Uint32(h[8:]))
	if n > most {
		return 0, nil, d.corrupt(at, "a frame of %d pages, the limit is %d", n, most)
	}
	if need := frameHeader + n*d.PageSize; need > len(d.buf) {
		d.buf = append(make([]byte, 0, need), h...)[:need]
	}
	f := d.buf[:frameHeader+n*d.PageSize]
	if err := d.fill(f[frameHeader:]); err != nil {
		return 0, nil, err
	}
	if d.sum = frameSum(d.hash, d.sum, f); d.sum != binary.LittleEndian.Uint64(f[offFrameSum:]) {
		return 0, nil, d.corrupt(at, "wrong checksum")
	}
	switch {
	case binary.LittleEndian.Uint32(f[12:]) != 0:
		return 0, nil, d.corrupt(at, "bytes that belong to no field are not zero")
	case n == 0:
		return 0, nil, d.finish(at, uint64(first))
	case first < d.next || uint64(first) >= d.StorePages || d.StorePages-uint64(first) < uint64(n):
		return 0, nil, d.corrupt(at, "pages %d to %d of a store of %d, behind page %d",
			first, uint64(first)+uint64(n)-1, d.StorePages, d.next)
	}
	d.next, d.read = first+pager.Pgid(n), d.read+uint64(n)
	return first, f[frameHeader:], nil
}

// finish verifies the end of the stream, and that it is the end: io.EOF.
func (d *backupReader) finish(at int64, pages uint64) error {
	if pages != d.read || d.read != d.Pages {
		return d.corrupt(at, "the stream has %d pages, its end says %d and its header %d", d.read,
			pages, d.Pages)
	}
	var more [1]byte
	n, err := io.ReadFull(d.r, more[:])
	switch {
	case n > 0:
		return d.corrupt(d.off, "bytes behind the end of the backup")
	case err != io.EOF:
		return fmt.Errorf("read %s: %w", d.name, err)
	}
	d.Bytes = d.off
	return io.EOF
}
