package wal

import "github.com/ebbkv/ebb/internal/vfs"

// The leader copies a small group without a sync into a memory map of its segment: a system call
// would take longer than the rest of such a commit. A call writes each page first, up to its end,
// and copies go into it afterwards. So no copy reads from the disk, and zeros follow the last
// record as always.
//
//	crash ...                      the segment holds             recovery
//	process, while it is copied    any bytes of the group        ends before its first torn record: no commit of it is acknowledged
//	process, after that            the group                     finds it, as after a write
//	power                          any sectors since the sync    as after a write
//
// An error of the disk or the file is a fault in the copy. Then a call writes the group and reports
// the error if there still is one, and the log copies no more.

// mmapBytes is the size of the mapped window. The first access to each page is a fault, whatever
// the window's size: a larger window would save little, and is resident memory.
const mmapBytes = 256 << 10

// mmapWriter is the mapped part of a segment that the leader copies into.
type mmapWriter struct {
	mapping  vfs.Window // nil: none
	start    LSN        // of its first byte
	end      LSN
	disabled bool // no maps on this system, or a copy had a fault
}

// copyGroup copies a group into the file and says whether it could. Only the leader calls it,
// without mu.
func (l *Log) copyGroup(g *group) bool {
	r := g.run
	if end := r.start + LSN(len(r.buf)); g.sync || g.direct || r.sealed || end > l.zeroedTo ||
		!l.mmap.mapRange(r, end) {
		return false
	}
	err := l.mmap.mapping.Copy(r.buf, r.offset())
	if err != nil {
		l.mmap.close()
		l.mmap.disabled = true
	}
	return err == nil
}

// mapRange moves the window to the page in which run r begins, and says whether it covers r up to
// end.
func (w *mmapWriter) mapRange(r *writeBuffer, end LSN) bool {
	if w.mapping != nil && w.start <= r.start && end <= w.end {
		return true
	}
	if w.disabled {
		return false
	}
	w.close()
	off := r.offset() / mmapBytes * mmapBytes
	n := min(mmapBytes, r.seg.fileSize-off)
	over, err := r.seg.file.Window(off, n)
	if err != nil {
		w.disabled = true // the leader writes by calls
		return false
	}
	w.mapping, w.start = over, r.start-LSN(r.offset()-off)
	w.end = w.start + LSN(n)
	return true
}

// close unmaps the window; copied bytes stay. An unmap that fails would cost memory and no data.
func (w *mmapWriter) close() {
	if w.mapping != nil {
		_ = w.mapping.Close()
		w.mapping = nil
	}
}
