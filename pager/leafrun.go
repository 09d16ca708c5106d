package pager

import (
	"encoding/binary"
	"io"

	"github.com/ebbkv/ebb/internal/vfs"
)

// A leaf run is a sequence of complete leaf pages that is written in one piece when it is
// allocated. A log record may refer to it.

// WriteLeafRun allocates consecutive numbers for the pages in b, sets their numbers, epoch and
// checksums, and writes them to the file, into free space. They belong to the transaction with this
// serial, have no frame, and are durable with the next checkpoint or after SyncExtents. A log record
// will refer to them: WriteLeafRun also reserves space for the copies that replay makes. Writer
// lock.
func (p *Pager) WriteLeafRun(epoch Epoch, owner uint64, b []byte, how AllocPolicy) (Ref, error) {
	n := uint64(len(b) / p.pageSize)
	if err := p.Alloc.ReserveReplay(n, how.Purpose); err != nil {
		return Ref{}, err
	}
	id, err := p.Alloc.allocateExtent(n, how)
	if err != nil {
		p.Alloc.ReleaseReplay(n)
		return Ref{}, err
	}
	for i := range n {
		id := id + Pgid(i)
		SetRef(b[i*uint64(p.pageSize):], Ref{id, epoch})
		p.Reader.drop(id)
		p.Pool.SetOwner(id, owner)
	}
	return Ref{id, epoch}, p.writeRun(id, b)
}

// Checksum returns the checksum field of a page.
func Checksum(b []byte) uint64 { return binary.LittleEndian.Uint64(b[offChecksum:]) }

// VerifyLeafRun reports whether the file of m's store holds the pages from ref on that WriteLeafRun
// wrote with these checksums, 8 bytes each: a crash may have lost some. It may precede Start.
func (f *mainFile) VerifyLeafRun(m *Meta, ref Ref, sums []byte) (bool, error) {
	salt, b := Salt(m.StoreID), make([]byte, min(len(sums)/8*m.PageSize, stagingBytes))
	for first := ref.Pgid; len(sums) > 0; {
		n := min(len(sums)/8, len(b)/m.PageSize)
		b := b[:n*m.PageSize]
		if uint64(first) >= maxPages {
			return false, nil
		}
		switch err := vfs.ReadFull(f.file, b, int64(first)*int64(m.PageSize)); {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return false, nil
		case err != nil:
			return false, f.readError(first, err)
		}
		for i := range n {
			page := b[i*m.PageSize:][:m.PageSize]
			h := ReadHeader(page)
			if Checksum(page) != binary.LittleEndian.Uint64(sums[8*i:]) || h.Pgid != first+Pgid(i) ||
				h.Epoch != ref.Epoch || !ChecksumMatches(page, salt) {
				return false, nil
			}
		}
		first, sums = first+Pgid(n), sums[8*n:]
	}
	return true, nil
}
