package wal

import "github.com/ebbkv/ebb/internal/vfs"

// A small group that nobody wants synced is copied into a window of its segment instead of being
// written by a call, which would take longer than all else that such a commit does. Every page is
// written by a call first, up to its end, and copied to afterwards: so nothing is read from the
// disk for it, and behind the last record there are zeros as always.
//
//	crash ...                      the segment holds             recovery
//	process, while it is copied    any bytes of the group        ends before the first record of it that is torn: nobody was told anything
//	process, after that            the group                     finds it, as after a write
//	power                          any sectors since the sync    as after a write
//
// What is wrong with the disk or the file is a fault in the copy. Then the group is written by a
// call, which tells of it or does not fail, and the log copies no more.

// mmapBytes is how much of a segment is a window at a time. A look at one of its pages is a fault,
// whatever its size: a larger one would not save much, and is resident memory.
const mmapBytes = 256 << 10

// mmapWriter is the part of a segment that the leader copies into.
type mmapWriter struct {
	mapping  vfs.Window // nil: none
	start    LSN        // of its first byte
	end      LSN
	disabled bool // there is none here, or one had a fault
}

// copyGroup says whether a group could be put into the file by a copy. Only the leader is here,
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

// mapRange moves the window to where a run lies that ends at end, in the page in which it begins,
// and says whether there is one.
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
		w.disabled = true // A call will do.
		return false
	}
	w.mapping, w.start = over, r.start-LSN(r.offset()-off)
	w.end = w.start + LSN(n)
	return true
}

// close ends the window: what was copied stays. An error, of a map that cannot be given back, would
// cost memory and no data.
func (w *mmapWriter) close() {
	if w.mapping != nil {
		_ = w.mapping.Close()
		w.mapping = nil
	}
}
