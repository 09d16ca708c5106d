package vfs

import (
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// memChunk is the unit in which files in memory grow: no file is copied as a whole, except a small
// one within its first chunk.
const memChunk = 256 << 10

// memHole is the unit of holes in files in memory.
const memHole = 4096

// memBlockSize is the BlockSize of files in memory.
const memBlockSize = 512

// memDevs gives every Memory its own device number, so that FileIDs of two of them differ.
var memDevs atomic.Uint64

// memory is a file system in memory. Every directory exists; it is there to be seen as soon as a
// file is below it. Removed files live on until their last handle is closed, as on POSIX. Nothing
// outlives the value.
type memory struct {
	dev uint64

	// mu guards names and lastIno. Taken before a memInode's lock, never after.
	mu      sync.Mutex
	names   map[string]*memInode // by cleaned path
	lastIno uint64
}

// memInode is the file behind a name and behind its handles.
type memInode struct {
	id   FileID
	mode fs.FileMode // what it was created with; nothing is refused for it

	// mu guards size, chunks and holes. Bytes past size in a chunk are zero.
	mu     sync.RWMutex
	size   int64
	chunks [][]byte           // of memChunk bytes each; the last one may be shorter
	holes  map[int64]struct{} // blocks of memHole bytes that count as not allocated

	// lockMu guards the holder of the advisory lock.
	lockMu  sync.Mutex
	holders map[*memFile]bool // true: exclusively, and then alone
}

type memFile struct {
	ino    *memInode
	name   string
	write  bool
	closed atomic.Bool
}

// NewMemory gives a new, empty file system in memory. Its files cannot be mapped or opened with
// Direct.
func NewMemory() FS {
	return &memory{dev: memDevs.Add(1), names: map[string]*memInode{}}
}

func (m *memory) Open(name string, flag Flag) (File, error) {
	if err := checkPath(name); err != nil {
		return nil, err
	}
	if err := checkFlag(flag); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	clean := filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	ino := m.names[clean]
	switch {
	case ino == nil && m.isDir(clean):
		return nil, &fs.PathError{Op: "open", Path: name, Err: ErrNotRegular}
	case flag&Direct != 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: ErrNoDirect}
	case ino == nil && flag&Create == 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case ino != nil && flag&Excl != 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case ino == nil:
		m.lastIno++
		ino = &memInode{mode: flag.Mode(), id: FileID{Dev: m.dev, Ino: m.lastIno},
			holders: map[*memFile]bool{}}
		m.names[clean] = ino
	}
	return &memFile{ino: ino, name: name, write: flag&Write != 0}, nil
}

// isDir reports whether clean is a directory that can be seen. Called with m.mu held.
func (m *memory) isDir(clean string) bool {
	if clean == "." || clean == string(filepath.Separator) || filepath.Dir(clean) == clean {
		return true
	}
	below := clean + string(filepath.Separator)
	for name := range m.names {
		if strings.HasPrefix(name, below) {
			return true
		}
	}
	return false
}

func (m *memory) Remove(name string) error {
	if err := checkPath(name); err != nil {
		return err
	}
	clean := filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[clean] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(m.names, clean)
	return nil
}

func (m *memory) Rename(oldName, newName string) error {
	for _, name := range []string{oldName, newName} {
		if err := checkPath(name); err != nil {
			return err
		}
	}
	from, to := filepath.Clean(oldName), filepath.Clean(newName)
	m.mu.Lock()
	defer m.mu.Unlock()
	ino := m.names[from]
	if ino == nil {
		return &fs.PathError{Op: "rename", Path: oldName, Err: fs.ErrNotExist}
	}
	if m.names[to] == nil && m.isDir(to) {
		return &fs.PathError{Op: "rename", Path: newName, Err: fs.ErrExist}
	}
	delete(m.names, from)
	m.names[to] = ino
	return nil
}

func (m *memory) List(dir string) ([]string, error) {
	if err := checkPath(dir); err != nil {
		return nil, err
	}
	clean := filepath.Clean(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names[clean] != nil {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: ErrNotRegular}
	}
	var list []string
	for name := range m.names {
		// Climb from the file until its ancestor is in dir: below it may be directories.
		for parent := filepath.Dir(name); parent != name; name, parent = parent, filepath.Dir(parent) {
			if parent == clean {
				list = append(list, filepath.Base(name))
				break
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

func (m *memory) SyncDir(dir string) error { return checkPath(dir) }

func (m *memory) Stat(name string) (FileInfo, error) {
	if err := checkPath(name); err != nil {
		return FileInfo{}, err
	}
	clean := filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if ino := m.names[clean]; ino != nil {
		ino.mu.RLock()
		defer ino.mu.RUnlock()
		return FileInfo{Size: ino.size, Mode: ino.mode, ID: ino.id}, nil
	}
	if m.isDir(clean) {
		return FileInfo{Mode: fs.ModeDir | 0o755, ID: FileID{Dev: m.dev}}, nil
	}
	return FileInfo{}, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
}

// check reports why the operation cannot be done at all, if it cannot.
func (f *memFile) check(op string, write bool, off int64) error {
	var err error
	switch {
	case f.closed.Load():
		err = fs.ErrClosed
	case write && !f.write:
		err = fs.ErrPermission
	case off < 0:
		err = fs.ErrInvalid
	default:
		return nil
	}
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check("read", false, off); err != nil {
		return 0, err
	}
	f.ino.mu.RLock()
	defer f.ino.mu.RUnlock()
	if off >= f.ino.size {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	var err error
	if int64(len(p)) > f.ino.size-off {
		p, err = p[:f.ino.size-off], io.EOF
	}
	n := 0
	for n < len(p) {
		at := off + int64(n)
		n += copy(p[n:], f.ino.chunks[at/memChunk][at%memChunk:])
	}
	return n, err
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.check("write", true, off); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	end := off + int64(len(p))
	if end < off {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: fs.ErrInvalid}
	}
	f.ino.mu.Lock()
	defer f.ino.mu.Unlock()
	f.ino.grow(end)
	f.ino.fill(off, end)
	n := 0
	for n < len(p) {
		at := off + int64(n)
		n += copy(f.ino.chunks[at/memChunk][at%memChunk:], p[n:])
	}
	return n, nil
}

func (f *memFile) StartWriteAt(p []byte, off int64) Pending { return WriteNow(f, p, off) }

// grow makes the file at least size bytes long. Called with mu held.
func (ino *memInode) grow(size int64) {
	if size <= ino.size {
		return
	}
	ino.size = size
	n := int((size + memChunk - 1) / memChunk)
	for len(ino.chunks) < n {
		if last := len(ino.chunks) - 1; last >= 0 && len(ino.chunks[last]) < memChunk {
			ino.chunks[last] = resized(ino.chunks[last], memChunk)
		}
		if len(ino.chunks) == 0 && n == 1 {
			ino.chunks = append(ino.chunks, nil) // A small file: sized below.
			break
		}
		ino.chunks = append(ino.chunks, make([]byte, memChunk))
	}
	if have := len(ino.chunks[0]); n == 1 && int64(have) < size {
		ino.chunks[0] = resized(ino.chunks[0], min(max(int(size), 2*have, 4096), memChunk))
	}
}

func resized(b []byte, n int) []byte {
	grown := make([]byte, n)
	copy(grown, b)
	return grown
}

func (f *memFile) Size() (int64, error) {
	if err := f.check("size", false, 0); err != nil {
		return 0, err
	}
	f.ino.mu.RLock()
	defer f.ino.mu.RUnlock()
	return f.ino.size, nil
}

func (f *memFile) WriteBack(off, n int64) error { return f.check("write back", true, off) }

func (f *memFile) StartWriteBack(off, n int64) error { return f.WriteBack(off, n) }

func (f *memFile) DropCache(int64, int64) {}

func (f *memFile) Grow(size int64) error {
	if err := f.check("grow", true, size); err != nil {
		return err
	}
	f.ino.mu.Lock()
	defer f.ino.mu.Unlock()
	if size > f.ino.size {
		f.ino.grow(size)
	}
	return nil
}

// PunchHole gives no memory back: it is for tests of its users.
func (f *memFile) PunchHole(off, n int64) error {
	if err := f.check("punch hole", true, off); err != nil {
		return err
	}
	ino := f.ino
	ino.mu.Lock()
	defer ino.mu.Unlock()
	for at := off; at < min(off+n, ino.size); {
		chunk := ino.chunks[at/memChunk]
		part := chunk[at%memChunk : min(int64(len(chunk)), at%memChunk+min(off+n, ino.size)-at)]
		clear(part)
		at += int64(len(part))
	}
	if ino.holes == nil {
		ino.holes = map[int64]struct{}{}
	}
	for i := (off + memHole - 1) / memHole; (i+1)*memHole <= off+n; i++ {
		ino.holes[i] = struct{}{}
	}
	return nil
}

func (f *memFile) Reserve(off, n int64) error {
	if err := f.check("reserve", true, off); err != nil {
		return err
	}
	f.ino.mu.Lock()
	defer f.ino.mu.Unlock()
	f.ino.fill(off, off+n)
	return nil
}

func (f *memFile) Allocated() (int64, error) {
	if err := f.check("size", false, 0); err != nil {
		return 0, err
	}
	f.ino.mu.RLock()
	defer f.ino.mu.RUnlock()
	return f.ino.size - int64(len(f.ino.holes))*memHole, nil
}

// fill ends the holes in [off, end). Called with mu held.
func (ino *memInode) fill(off, end int64) {
	for i := off / memHole; len(ino.holes) > 0 && i*memHole < end; i++ {
		delete(ino.holes, i)
	}
}

func (f *memFile) WriteMapped(p []byte, off int64) error { return WriteFull(f, p, off) }

func (f *memFile) Truncate(size int64) error {
	if err := f.check("truncate", true, size); err != nil {
		return err
	}
	ino := f.ino
	ino.mu.Lock()
	defer ino.mu.Unlock()
	if size >= ino.size {
		ino.grow(size)
		return nil
	}
	ino.fill(size, ino.size)
	n := int((size + memChunk - 1) / memChunk)
	clear(ino.chunks[n:])
	ino.chunks = ino.chunks[:n]
	if n > 0 {
		// Growth must read as zeros later.
		if at := size - int64(n-1)*memChunk; at < int64(len(ino.chunks[n-1])) {
			clear(ino.chunks[n-1][at:])
		}
	}
	ino.size = size
	return nil
}

func (f *memFile) Sync() error     { return f.check("sync", false, 0) }
func (f *memFile) SyncData() error { return f.check("sync", false, 0) }

func (f *memFile) Map(int64, int64) ([]byte, error) { return nil, ErrNoMap }
func (f *memFile) Unmap([]byte) error               { return fs.ErrInvalid }
func (f *memFile) DontNeed([]byte)                  {}
func (f *memFile) ReadAhead([]byte)                 {}
func (f *memFile) Resident([]byte, int) uint64      { return 0 }

func (f *memFile) Lock(exclusive bool) error {
	if err := f.check("lock", false, 0); err != nil {
		return err
	}
	f.ino.lockMu.Lock()
	defer f.ino.lockMu.Unlock()
	for holder, alone := range f.ino.holders {
		if holder != f && (exclusive || alone) {
			return &fs.PathError{Op: "lock", Path: f.name, Err: ErrLocked}
		}
	}
	f.ino.holders[f] = exclusive
	return nil
}

func (f *memFile) ID() (FileID, error) {
	if err := f.check("stat", false, 0); err != nil {
		return FileID{}, err
	}
	return f.ino.id, nil
}

func (f *memFile) BlockSize() int { return memBlockSize }

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.ino.lockMu.Lock()
	defer f.ino.lockMu.Unlock()
	delete(f.ino.holders, f)
	return nil
}
