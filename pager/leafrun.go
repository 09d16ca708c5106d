package pager

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/ebbkv/ebb/internal/vfs"
)

// Laid pages are whole when they are born, and written at once, one behind the other: a record of
// the log may name them.

// leafRunPages counts pages that a record of the log names, or may name: the next open needs as
// many again, since it copies them.
type leafRunPages struct {
	since  uint64 // since the last capture
	before uint64 // before that, as long as its checkpoint is not durable
}

// captured is told of a capture.
func (l *leafRunPages) captured() { l.since, l.before = 0, l.since+l.before }

// WriteLeafRun is for the holder of the writer lock. It gives the pages in b, which are laid out
// but for their number and epoch, numbers that follow each other, seals them, and writes them
// straight to the file, into free space. They belong to the transaction with this serial, have no
// frame, and are durable with the next checkpoint or after SyncExtents.
//
// named says that a record is going to name them: then there has to be room for copies, too.
func (p *Pager) WriteLeafRun(epoch Epoch, owner uint64, b []byte, named bool) (Ref, error) {
	n := uint64(len(b) / p.pageSize)
	before := p.leafRunPages.since
	var id Pgid
	var err error
	if named {
		p.leafRunPages.since += n
		err = p.ensureFileSpace(0)
	}
	if err == nil {
		id, err = p.allocateExtent(n)
	}
	if err != nil {
		p.leafRunPages.since = before
		return Ref{}, err
	}
	ref := Ref{id, epoch}
	for i := range n {
		id, page := id+Pgid(i), b[i*uint64(p.pageSize):][:p.pageSize]
		SetRef(page, Ref{id, epoch})
		SetChecksum(page, p.salt)
		s := p.table.slot(id)
		s.owner = owner
		p.forget(id, s)
		p.freeFrame(s)
	}
	if err := p.writeAt(b, int64(id)*int64(p.pageSize)); err != nil {
		return ref, err
	}
	for i := range n {
		p.markTrusted(id + Pgid(i))
	}
	p.pagesWritten.Add(n)
	return ref, nil
}

// Checksum is that of a page that is sealed.
func Checksum(b []byte) uint64 { return binary.LittleEndian.Uint64(b[offChecksum:]) }

// VerifyLeafRun says whether the file of the store that m is of has the pages from ref on that
// WriteLeafRun has sealed with these checksums, 8 bytes each: a crash may have taken some. It may
// come before Start.
func (p *Pager) VerifyLeafRun(m *Meta, ref Ref, sums []byte) (bool, error) {
	salt, b := Salt(m.StoreID), make([]byte, min(len(sums)/8*m.PageSize, stagingBytes))
	for first := ref.Pgid; len(sums) > 0; {
		n := min(len(sums)/8, len(b)/m.PageSize)
		b := b[:n*m.PageSize]
		if uint64(first) >= maxPages {
			return false, nil
		}
		switch err := vfs.ReadFull(p.file, b, int64(first)*int64(m.PageSize)); {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return false, nil
		case err != nil:
			return false, fmt.Errorf("%w: page %d of %s: %w", ErrRead, first, p.name, err)
		}
		for i := range n {
			page := b[i*m.PageSize:][:m.PageSize]
			h := ReadHeader(page)
			if Checksum(page) != binary.LittleEndian.Uint64(sums[8*i:]) || h.Pgid != first+Pgid(i) ||
				h.Epoch != ref.Epoch ||
				!ChecksumMatches(page, salt) {
				return false, nil
			}
		}
		first, sums = first+Pgid(n), sums[8*n:]
	}
	return true, nil
}

// ReleaseLeafRun says that no record names n of the pages of WriteLeafRun that were to be named:
// their transaction is rolled back.
func (p *Pager) ReleaseLeafRun(n uint64) { p.leafRunPages.since -= n }
