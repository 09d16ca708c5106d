package crashfs

// holes are the blocks of a file that have no room on the disk, by number. They read as zeros.
type holes []bool

// wholeBlocks gives the blocks [lo, hi) that lie in [off, off+n).
func wholeBlocks(off, n int64) (lo, hi int) {
	return int((off + blockSize - 1) / blockSize), int((off + n) / blockSize)
}

func (h *holes) punch(off, n int64) {
	lo, hi := wholeBlocks(off, n)
	if len(*h) < hi {
		*h = append(*h, make([]bool, hi-len(*h))...)
	}
	for i := lo; i < hi; i++ {
		(*h)[i] = true
	}
}

// fill ends the holes that [off, off+n) touches.
func (h holes) fill(off, n int64) {
	lo, hi := off/blockSize, (off+n+blockSize-1)/blockSize
	for i := lo; i < min(hi, int64(len(h))); i++ {
		h[i] = false
	}
}

// cut ends the holes from size on.
func (h *holes) cut(size int64) {
	if n := blocksOf(size); n < len(*h) {
		*h = (*h)[:n]
	}
	h.fill(size, 1)
}

// within is the number of bytes of the holes that [off, off+n) touches.
func (h holes) within(off, n int64) (bytes int64) {
	lo, hi := off/blockSize, (off+n+blockSize-1)/blockSize
	for i := lo; i < min(hi, int64(len(h))); i++ {
		if h[i] {
			bytes += blockSize
		}
	}
	return bytes
}

// allocated is the room of the file on the disk.
func (ino *inode) allocated() int64 {
	return ino.size - ino.holes.within(0, int64(len(ino.holes))*blockSize)
}

// punch gives the whole blocks in [off, off+n) back.
func (ino *inode) punch(off, n int64) {
	n = min(n, ino.size-off)
	lo, hi := wholeBlocks(off, n)
	for i := lo; i < min(hi, len(ino.blocks)); i++ {
		ino.blocks[i], ino.owned[i] = nil, false
	}
	ino.holes.punch(off, n)
}

// punch is a unit of each block, which then is zeros.
func (w *walker) punch(op *Op, seq int) {
	f := w.inode(op.Ino)
	lo, hi := wholeBlocks(op.Off, min(op.Size, f.line.size-op.Off))
	for i := lo; i < hi; i++ {
		f.line.set(i, nil)
		w.pend(unit{kind: unitData, seq: seq, ino: op.Ino, i: i})
		if f.hasCache {
			f.cache.set(i, nil)
		}
	}
	f.holes.punch(op.Off, min(op.Size, f.line.size-op.Off))
}

// holesIn are the blocks of an image's file that are holes: those that are for programs, unless
// data persists there.
func (f *winode) holesIn(c *content) holes {
	var in holes
	for i, hole := range f.holes {
		if hole && c.block(i) == nil && i < blocksOf(c.size) {
			in.punch(int64(i)*blockSize, blockSize)
		}
	}
	return in
}

// HasRoom reports whether no hole of a file touches [off, off+n), within it.
func (d *Disk) HasRoom(name string, off, n int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	ino := d.names[name]
	return ino != nil && off+n <= ino.size && ino.holes.within(off, n) == 0
}
