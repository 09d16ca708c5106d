package main

import (
	"github.com/ebbkv/ebb/internal/vfs"
)

// A check reports no progress, but it reads every page in use from the file: the share of the file
// that was read is its progress. readCount is the system's files, and counts what is read of the
// one at path once count is called.
type readCount struct {
	vfs.FS
	path string

	p      *progress // nil: nothing is counted
	left   int64     // of the total: neither read nor shown
	unsaid int64     // read and not yet shown
	seen   []uint64  // a bit for each block that was read: what is read again counts once
}

// countBlock is no larger than a page, so that each page has blocks of its own.
const countBlock = 4096

// countStep is what is read between two lines of --progress=lines.
const countStep = 1 << 20

// count begins to show in p how much is read of a file of that size, up to total.
func (r *readCount) count(p *progress, size, total int64) {
	r.p, r.left, r.seen = p, total, make([]uint64, size/countBlock/64+1)
}

// end ends the display. What is left of a whole check is in no page that it reads from the file:
// the meta pages, which were read before, and what only the log has.
func (r *readCount) end(whole bool) {
	if whole {
		r.unsaid += r.left
	}
	if r.unsaid > 0 {
		r.p.add(r.unsaid)
	}
	r.p.end()
	r.p = nil
}

// Open is that of the system.
func (r *readCount) Open(name string, flag vfs.Flag) (vfs.File, error) {
	f, err := r.FS.Open(name, flag)
	if err != nil || name != r.path {
		return f, err
	}
	return readCountFile{f, r}, nil
}

type readCountFile struct {
	vfs.File
	r *readCount
}

func (f readCountFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	f.r.add(off, int64(n))
	return n, err
}

func (r *readCount) add(off, n int64) {
	if r.p == nil {
		return
	}
	for block := off / countBlock; block*countBlock < off+n && block/64 < int64(len(r.seen)); block++ {
		bit := uint64(1) << (block % 64)
		if r.seen[block/64]&bit == 0 && r.left > 0 {
			r.seen[block/64] |= bit
			part := min(r.left, countBlock)
			r.unsaid, r.left = r.unsaid+part, r.left-part
		}
	}
	if r.unsaid >= countStep {
		r.p.add(r.unsaid)
		r.unsaid = 0
	}
}
