package crashfs

import (
	"bytes"
	"io"
	"io/fs"
	"unsafe"

	"github.com/ebbkv/ebb/internal/vfs"
)

// file is one open file. closed is guarded by the disk's lock, like all of the inode.
type file struct {
	d      *Disk
	ino    *inode
	name   string
	flag   vfs.Flag
	closed bool
}

// check reports why an operation cannot be tried at all. Called with the disk's lock held.
func (f *file) check(op string, write bool, off int64) error {
	switch {
	case f.closed:
		return pathError(op, f.name, fs.ErrClosed)
	case write && f.flag&vfs.Write == 0:
		return pathError(op, f.name, fs.ErrPermission)
	case off < 0:
		return pathError(op, f.name, fs.ErrInvalid)
	case write && f.d.opts.ReadOnly:
		return pathError(op, f.name, ErrReadOnly)
	}
	return nil
}

// look begins an operation that changes nothing.
func (f *file) look(kind Kind, off int64) error {
	if err := f.check(kind.String(), false, off); err != nil {
		return err
	}
	if err := f.d.begin(kind); err != nil {
		return pathError(kind.String(), f.name, err)
	}
	return nil
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.look(KindRead, off); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if off >= f.ino.size {
		return 0, io.EOF
	}
	if int64(len(p)) > f.ino.size-off {
		n := int(f.ino.size - off)
		f.ino.read(p[:n], off)
		return n, io.EOF
	}
	f.ino.read(p, off)
	return len(p), nil
}

// read fills p, which is within the file.
func (ino *inode) read(p []byte, off int64) {
	forBlocks(p, off, func(i, at int, part []byte) {
		if i < len(ino.blocks) && ino.blocks[i] != nil {
			copy(part, ino.blocks[i][at:])
		} else {
			clear(part)
		}
	})
}

// write puts p at off. Where frozen is set, p never changes, and whole blocks of it are shared
// instead of copied.
func (ino *inode) write(p []byte, off int64, frozen bool) {
	ino.size = max(ino.size, off+int64(len(p)))
	if n := blocksOf(off + int64(len(p))); n > len(ino.blocks) {
		ino.blocks = append(ino.blocks, make([]*rawBlock, n-len(ino.blocks))...)
		ino.owned = append(ino.owned, make([]bool, n-len(ino.owned))...)
	}
	forBlocks(p, off, func(i, at int, part []byte) {
		if frozen && len(part) == blockSize {
			ino.blocks[i], ino.owned[i] = (*rawBlock)(part), false
			return
		}
		copy(ino.mutable(i)[at:], part)
	})
}

// mutable gives block i to be changed in place.
func (ino *inode) mutable(i int) *rawBlock {
	if !ino.owned[i] {
		own := new(rawBlock)
		if ino.blocks[i] != nil {
			*own = *ino.blocks[i]
		}
		ino.blocks[i], ino.owned[i] = own, true
	}
	return ino.blocks[i]
}

func (ino *inode) truncate(size int64) {
	if n := blocksOf(size); n < len(ino.blocks) {
		clear(ino.blocks[n:])
		ino.blocks, ino.owned = ino.blocks[:n], ino.owned[:n]
	}
	if end, i := int(size%blockSize), int(size/blockSize); size < ino.size && end != 0 &&
		i < len(ino.blocks) &&
		ino.blocks[i] != nil {
		clear(ino.mutable(i)[end:])
	}
	ino.holes.cut(size)
	ino.size = size
}

func (f *file) aligned(p []byte, off int64) bool {
	if f.flag&vfs.Direct == 0 || len(p) == 0 {
		return true
	}
	at := uint64(uintptr(unsafe.Pointer(&p[0])))
	return (uint64(off)|uint64(len(p))|at)%uint64(f.d.opts.BlockSize) == 0
}

func (f *file) WriteAt(p []byte, off int64) (int, error) { return f.StartWriteAt(p, off).Wait() }

// StartWriteAt writes at once, and makes durable what is durable then when it is waited for.
func (f *file) StartWriteAt(p []byte, off int64) vfs.Pending {
	w := &pending{d: f.d}
	w.n, w.err = f.startWrite(p, off, w)
	return w
}

// pending is a write whose sync, if it is one of a Direct file, has not happened yet.
type pending struct {
	d    *Disk
	n    int
	err  error
	sync *Op
}

func (w *pending) Wait() (int, error) {
	if w.sync == nil {
		return w.n, w.err
	}
	if w.d.opts.Landing != nil {
		w.d.opts.Landing()
	}
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	w.d.record(*w.sync)
	return w.n, w.err
}

func (f *file) startWrite(p []byte, off int64, w *pending) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.check("write", true, off); err != nil {
		return 0, err
	}
	if !f.aligned(p, off) {
		return 0, pathError("write", f.name, vfs.ErrMisaligned)
	}
	kinds := KindWrite
	if f.flag&vfs.Direct != 0 {
		kinds |= KindDirect
	}
	s := f.d.caller()
	in := f.d.began(kinds, s)
	if len(p) == 0 {
		return 0, nil
	}
	var err error
	want := len(p)
	if in != nil {
		switch in.fault.Do {
		case Fail:
			return 0, pathError("write", f.name, in.err())
		case Zero:
			return 0, in.fault.Err
		case Drop:
			return want, nil
		case Short:
			// Half, in whole blocks on a Direct file.
			n := want / 2
			if f.flag&vfs.Direct != 0 {
				n -= n % f.d.opts.BlockSize
			}
			p, err = p[:n], in.fault.Err
		}
	}
	if end := off + int64(len(p)); f.ino.linked && f.d.opts.Capacity > 0 {
		free := f.d.opts.Capacity - f.d.used
		filled := f.ino.holes.within(off, int64(len(p)))
		if filled > free { // A write into a hole fails as a whole: the engine must not try.
			return 0, pathError("write", f.name, vfs.ErrNoSpace)
		}
		if free -= filled; end-f.ino.size > free && end > f.ino.size {
			// What fits is written, in whole sectors, as on a real disk.
			fits := max(f.ino.size+free-off, 0)
			p, err = p[:min(fits-fits%sectorSize, int64(len(p)))], pathError("write", f.name, vfs.ErrNoSpace)
		}
	}
	if len(p) > 0 {
		f.write(p, off, s, in, w)
	}
	if in != nil && in.fault.Do == Gate && err == nil {
		err = pathError("write", f.name, in.err())
		return 0, err
	}
	return len(p), err
}

// write changes the file and the trace. On a Direct file w gets the sync to come, unless the fault
// hinders it.
func (f *file) write(p []byte, off int64, s *site, in *Injection, w *pending) {
	d, ino := f.d, f.ino
	before := ino.allocated()
	ino.holes.fill(off, int64(len(p)))
	if d.opts.Untraced {
		ino.write(p, off, false)
	} else {
		p = bytes.Clone(p)
		ino.write(p, off, true)
	}
	if ino.linked {
		d.used += ino.allocated() - before
	}
	direct := f.flag&vfs.Direct != 0
	write := Op{Kind: KindWrite, Ino: ino.ino, Name: f.name, Off: off, Data: p, site: s}
	sync := Op{Kind: KindDirect, Ino: ino.ino, Name: f.name, Off: off, Data: p, site: s}
	if in != nil {
		switch in.fault.Do {
		case Swap:
			if at := d.writeBefore(direct); at >= 0 {
				if direct {
					d.recordBefore(at, sync)
				}
				d.recordBefore(at, write)
				return
			}
			in.fired--
		case Ignore:
			sync.Outcome = Ignored
		case Gate, Swallow:
			sync.Outcome = Dropped
		}
	}
	d.record(write)
	if direct {
		w.sync = &sync
	}
}

// writeBefore is the index in the trace of the write that a write would directly follow, within the
// same commit; -1 if there is none. A direct write may change places with a direct write only.
func (d *Disk) writeBefore(direct bool) int {
	at := len(d.trace) - 1
	if direct && at >= 0 && d.trace[at].Kind == KindDirect {
		at--
	}
	if at < 0 || d.trace[at].Kind != KindWrite || d.trace[at].Marks != d.marks {
		return -1
	}
	return at
}

// WriteMapped is two writes here, the second half first: a process that is killed during the copy
// may have copied any of it.
func (f *file) WriteMapped(p []byte, off int64) error {
	half := len(p) / 2
	if err := vfs.WriteFull(f, p[half:], off+int64(half)); err != nil {
		return err
	}
	return vfs.WriteFull(f, p[:half], off)
}

func (f *file) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.look(KindSize, 0); err != nil {
		return 0, err
	}
	return f.ino.size, nil
}

func (f *file) ID() (vfs.FileID, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.look(KindSize, 0); err != nil {
		return vfs.FileID{}, err
	}
	return f.d.id(f.ino), nil
}

func (f *file) Truncate(size int64) error { return f.resize("truncate", size, true) }

// WriteBack is nothing that a crash image could show: what it writes may be there, or not, as
// before.
func (f *file) WriteBack(off, _ int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.look(KindWriteBack, off)
}

// StartWriteBack is here what WriteBack is.
func (f *file) StartWriteBack(off, n int64) error { return f.WriteBack(off, n) }

// DropCache is a hint, which changes nothing.
func (f *file) DropCache(int64, int64) {}

// Grow is a truncation that makes the file longer: the space counts as used from then on, as always
// here.
func (f *file) Grow(size int64) error { return f.resize("grow", size, false) }

// PunchHole is a change of each block of its own, which may persist or not.
func (f *file) PunchHole(off, n int64) error {
	return f.allocate(Op{Kind: KindPunch, Off: off, Size: n}, func() {
		f.ino.punch(off, n)
	})
}

// Reserve loses nothing in a crash.
func (f *file) Reserve(off, n int64) error {
	return f.allocate(Op{Kind: KindReserve, Off: off, Size: n}, func() {
		f.ino.holes.fill(off, n)
	})
}

func (f *file) Allocated() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.look(KindSize, 0); err != nil {
		return 0, err
	}
	return f.ino.allocated(), nil
}

// allocate records an operation that changes which blocks are holes.
func (f *file) allocate(op Op, change func()) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.check(op.Kind.String(), true, op.Off); err != nil {
		return err
	}
	op.Ino, op.Name, op.site = f.ino.ino, f.name, f.d.caller()
	if in := f.d.began(op.Kind, op.site); in != nil {
		return pathError(op.Kind.String(), f.name, in.err())
	}
	before, limit := f.ino.allocated(), f.d.opts.Capacity
	if op.Kind == KindReserve && f.ino.linked && limit > 0 &&
		f.ino.holes.within(op.Off, op.Size) > max(limit-f.d.used, 0) {
		return pathError(op.Kind.String(), f.name, vfs.ErrNoSpace)
	}
	change()
	if f.ino.linked {
		f.d.used += f.ino.allocated() - before
	}
	f.d.record(op)
	return nil
}

func (f *file) resize(op string, size int64, shorter bool) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.check(op, true, size); err != nil {
		return err
	}
	if !shorter && size <= f.ino.size {
		return nil
	}
	s := f.d.caller()
	if in := f.d.began(KindTruncate, s); in != nil {
		return pathError(op, f.name, in.err())
	}
	if f.ino.linked {
		if limit := f.d.opts.Capacity; limit > 0 && size > f.ino.size && size-f.ino.size > limit-f.d.used {
			return pathError(op, f.name, vfs.ErrNoSpace)
		}
	}
	before := f.ino.allocated()
	f.ino.truncate(size)
	if f.ino.linked {
		f.d.used += f.ino.allocated() - before
	}
	f.d.record(Op{Kind: KindTruncate, Ino: f.ino.ino, Name: f.name, Size: size, site: s})
	return nil
}

func (f *file) Sync() error     { return f.sync(KindSync) }
func (f *file) SyncData() error { return f.sync(KindSyncData) }

func (f *file) sync(kind Kind) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.check(kind.String(), false, 0); err != nil {
		return err
	}
	s := f.d.caller()
	return f.d.sync(Op{Kind: kind, Ino: f.ino.ino, Name: f.name, site: s}, f.d.began(kind, s))
}

func (f *file) Map(int64, int64) ([]byte, error) { return nil, vfs.ErrNoMap }
func (f *file) Unmap([]byte) error               { return fs.ErrInvalid }
func (f *file) DontNeed([]byte)                  {}
func (f *file) ReadAhead([]byte)                 {}
func (f *file) Resident([]byte, int) uint64      { return 0 }

func (f *file) Lock(exclusive bool) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.look(KindLock, 0); err != nil {
		return err
	}
	for holder, alone := range f.ino.holders {
		if holder != f && (exclusive || alone) {
			return pathError("lock", f.name, vfs.ErrLocked)
		}
	}
	if f.ino.holders == nil {
		f.ino.holders = map[*file]bool{}
	}
	f.ino.holders[f] = exclusive
	return nil
}

func (f *file) BlockSize() int { return f.d.opts.BlockSize }

// Close ends the handle also where a fault makes it fail, as close(2) does.
func (f *file) Close() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	err := f.look(KindClose, 0)
	f.closed = true
	delete(f.ino.holders, f)
	return err
}
