package crashfs

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ebbkv/ebb/internal/vfs"
)

// Options say what kind of disk it is. The zero value is unbounded, writable and traced, without
// Direct files.
type Options struct {
	Direct    bool  // offer Direct files
	BlockSize int   // what files return as their BlockSize; 0 is 512
	Capacity  int64 // bytes that all files together may have; 0 is no limit
	ReadOnly  bool
	// Landing, unless nil, is called without a lock by each write to a Direct file when it is
	// written and not durable yet, so that the operations of others may come in between.
	Landing func()
	// Untraced records nothing: for disks that are only judged, not crashed again. Faults that move
	// entries of the trace do nothing then.
	Untraced bool
}

// Disk is a simulated disk. It implements vfs.FS; every directory exists.
type Disk struct {
	opts Options
	dev  uint64
	base []imageFile // what was durable at the start; inode i+1 is base[i]
	dead []content   // files deleted before the start, oldest first

	// mu guards the fields below and every inode.
	mu         sync.Mutex
	names      map[string]*inode
	lastIno    int
	used       int64 // sum of the sizes of all files that have a name, without their holes
	trace      []Op
	marks      Marks
	phase      string
	faults     []*Injection
	siteFaults bool // some fault asks for a site
	ops        int
	counts     [19]int // by bit of Kind
}

// inode is the file as programs see it now. blocks[i] may be changed in place only where owned[i];
// nil is zeros.
type inode struct {
	ino     int
	linked  bool
	mode    fs.FileMode // what it was created with; an image does not keep it
	size    int64
	blocks  []*rawBlock
	owned   []bool
	holes   holes
	holders map[*file]bool // files that hold the lock; true: exclusively, and then alone
}

var devs atomic.Uint64

// New gives an empty disk.
func New(opts Options) *Disk { return newDisk(opts, nil, nil) }

func newDisk(opts Options, base []imageFile, dead []content) *Disk {
	if opts.BlockSize == 0 {
		opts.BlockSize = sectorSize
	}
	d := &Disk{
		opts: opts, dev: 1<<32 + devs.Add(1), base: base, dead: dead,
		names: make(map[string]*inode, len(base)+1), lastIno: len(base),
	}
	for i := range base {
		f := &base[i]
		ino := &inode{
			ino: i + 1, linked: true, mode: vfs.DefaultMode, size: f.size,
			blocks: make([]*rawBlock, len(f.blocks)), owned: make([]bool, len(f.blocks)),
			holes: slices.Clone(f.holes),
		}
		for j, b := range f.blocks {
			if b != nil {
				ino.blocks[j] = b.data
			}
		}
		d.names[f.name] = ino
		d.used += ino.allocated()
	}
	return d
}

// SetCapacity changes Options.Capacity.
func (d *Disk) SetCapacity(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opts.Capacity = n
}

// SetReadOnly changes Options.ReadOnly, also for files that are open.
func (d *Disk) SetReadOnly(readOnly bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opts.ReadOnly = readOnly
}

// Used is the room that all files have: the sum of their sizes without their holes.
func (d *Disk) Used() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

// Files gives what programs see now.
func (d *Disk) Files() map[string][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	files := make(map[string][]byte, len(d.names))
	for name, ino := range d.names {
		b := make([]byte, ino.size)
		ino.read(b, 0)
		files[name] = b
	}
	return files
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

func clean(name string) (string, error) {
	if name == "" || strings.IndexByte(name, 0) >= 0 {
		return "", vfs.ErrInvalidPath
	}
	return filepath.Clean(name), nil
}

// caller gives the calling site where someone wants to know it. Called with d.mu held, by a method
// of vfs.FS or vfs.File.
func (d *Disk) caller() *site {
	if d.opts.Untraced && !d.siteFaults {
		return nil
	}
	return callingSite()
}

// begin counts an operation that changes nothing, and gives the error of a fault that hits it.
func (d *Disk) begin(kinds Kind) error {
	if in := d.began(kinds, d.readCaller()); in != nil {
		return in.err()
	}
	return nil
}

// readCaller is caller for operations that are not recorded.
func (d *Disk) readCaller() *site {
	if !d.siteFaults {
		return nil
	}
	return callingSite()
}

// Open implements vfs.FS.
func (d *Disk) Open(name string, flag vfs.Flag) (vfs.File, error) {
	path, err := clean(name)
	if err != nil {
		return nil, err
	}
	known := vfs.Write | vfs.Create | vfs.Excl | vfs.Direct
	if flag&vfs.Create != 0 {
		known |= vfs.Perm(fs.ModePerm)
	}
	if flag&^known != 0 || flag&(vfs.Create|vfs.Direct) != 0 && flag&vfs.Write == 0 ||
		flag&vfs.Excl != 0 && flag&vfs.Create == 0 {
		return nil, pathError("open", name, fs.ErrInvalid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	ino := d.names[path]
	kinds := KindOpen
	if ino == nil && flag&vfs.Create != 0 {
		kinds |= KindCreate
	}
	s := d.caller()
	if in := d.began(kinds, s); in != nil {
		return nil, pathError("open", name, in.err())
	}
	switch {
	case ino == nil && d.isDir(path):
		err = vfs.ErrNotRegular
	case flag&vfs.Direct != 0 && !d.opts.Direct:
		err = vfs.ErrNoDirect
	case ino == nil && flag&vfs.Create == 0:
		err = fs.ErrNotExist
	case flag&vfs.Write != 0 && d.opts.ReadOnly:
		err = ErrReadOnly
	case ino != nil && flag&vfs.Excl != 0:
		err = fs.ErrExist
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	if ino == nil {
		d.lastIno++
		ino = &inode{ino: d.lastIno, linked: true, mode: flag.Mode()}
		d.names[path] = ino
		d.record(Op{Kind: KindCreate, Ino: ino.ino, Name: path, site: s})
	}
	return &file{d: d, ino: ino, name: path, flag: flag}, nil
}

// isDir reports whether path is a directory that can be seen. Called with d.mu held.
func (d *Disk) isDir(path string) bool {
	if filepath.Dir(path) == path {
		return true
	}
	below := path + string(filepath.Separator)
	for name := range d.names {
		if strings.HasPrefix(name, below) {
			return true
		}
	}
	return false
}

// Remove implements vfs.FS.
func (d *Disk) Remove(name string) error {
	path, err := clean(name)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.caller()
	in := d.began(KindRemove, s)
	if in != nil && in.fault.Do == Fail {
		return pathError("remove", name, in.err())
	}
	ino := d.names[path]
	switch {
	case ino == nil:
		err = fs.ErrNotExist
	case d.opts.ReadOnly:
		err = ErrReadOnly
	}
	if err != nil {
		if in != nil { // EarlyUnlink waits for a removal that removes something.
			in.fired--
			in.seen--
		}
		return pathError("remove", name, err)
	}
	d.unlink(path, ino)
	op := Op{Kind: KindRemove, Ino: ino.ino, Name: path, site: s}
	if in != nil {
		if at := d.lastSync(); at >= 0 {
			d.recordBefore(at, op)
			return nil
		}
		in.fired--
	}
	d.record(op)
	return nil
}

// lastSync is the index in the trace of the last request for durability, or of the entry before it
// if that is of a direct write; -1 if there is none.
func (d *Disk) lastSync() int {
	for i := len(d.trace) - 1; i >= 0; i-- {
		switch {
		case d.trace[i].Kind == KindDirect && i > 0:
			return i - 1
		case d.trace[i].Kind&KindSyncs != 0:
			return i
		}
	}
	return -1
}

func (d *Disk) unlink(path string, ino *inode) {
	delete(d.names, path)
	ino.linked = false
	d.used -= ino.allocated()
}

// Rename implements vfs.FS.
func (d *Disk) Rename(oldName, newName string) error {
	from, err := clean(oldName)
	if err != nil {
		return err
	}
	to, err := clean(newName)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.caller()
	if in := d.began(KindRename, s); in != nil {
		return pathError("rename", oldName, in.err())
	}
	ino := d.names[from]
	switch {
	case ino == nil:
		err = fs.ErrNotExist
	case d.names[to] == nil && d.isDir(to):
		err = fs.ErrExist
	case d.opts.ReadOnly:
		err = ErrReadOnly
	}
	if err != nil {
		return pathError("rename", oldName, err)
	}
	if from == to {
		return nil
	}
	if old := d.names[to]; old != nil {
		d.unlink(to, old)
	}
	delete(d.names, from)
	d.names[to] = ino
	d.record(Op{Kind: KindRename, Ino: ino.ino, Name: from, NewName: to, site: s})
	return nil
}

// List implements vfs.FS.
func (d *Disk) List(dir string) ([]string, error) {
	path, err := clean(dir)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(KindList); err != nil {
		return nil, pathError("list", dir, err)
	}
	if d.names[path] != nil {
		return nil, pathError("list", dir, vfs.ErrNotRegular)
	}
	var list []string
	for name := range d.names {
		// Climb from the file until its ancestor is in dir: below it may be directories.
		for parent := filepath.Dir(name); parent != name; name, parent = parent, filepath.Dir(parent) {
			if parent == path {
				list = append(list, filepath.Base(name))
				break
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// Stat implements vfs.FS.
func (d *Disk) Stat(name string) (vfs.FileInfo, error) {
	path, err := clean(name)
	if err != nil {
		return vfs.FileInfo{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(KindStat); err != nil {
		return vfs.FileInfo{}, pathError("stat", name, err)
	}
	if ino := d.names[path]; ino != nil {
		return vfs.FileInfo{Size: ino.size, Mode: ino.mode, ID: d.id(ino)}, nil
	}
	if d.isDir(path) {
		return vfs.FileInfo{Mode: fs.ModeDir | 0o755, ID: vfs.FileID{Dev: d.dev}}, nil
	}
	return vfs.FileInfo{}, pathError("stat", name, fs.ErrNotExist)
}

func (d *Disk) id(ino *inode) vfs.FileID { return vfs.FileID{Dev: d.dev, Ino: uint64(ino.ino)} }

// SyncDir implements vfs.FS.
func (d *Disk) SyncDir(dir string) error {
	path, err := clean(dir)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.caller()
	return d.sync(Op{Kind: KindSyncDir, Name: path, site: s}, d.began(KindSyncDir, s))
}

// sync records a request for durability, as far as the fault lets it.
func (d *Disk) sync(op Op, in *Injection) error {
	if in == nil {
		d.record(op)
		return nil
	}
	switch in.fault.Do {
	case Early:
		if at := d.runBefore(&op); at < len(d.trace) {
			d.recordBefore(at, op)
			return nil
		}
		in.fired-- // It follows no change; its place is as good as any.
	case Gate, Swallow:
		op.Outcome = Dropped
	case Ignore:
		op.Outcome = Ignored
	default:
		op.Outcome = Failed
	}
	d.record(op)
	if op.Outcome == Failed || in.fault.Do == Gate {
		return pathError(op.Kind.String(), op.Name, in.err())
	}
	return nil
}

// runBefore is the index in the trace of the first change that sync is about, after the last sync
// of the same thing; the length of the trace if there is none.
func (d *Disk) runBefore(sync *Op) int {
	at := len(d.trace)
	for i := len(d.trace) - 1; i >= 0; i-- {
		op := &d.trace[i]
		var about, same bool
		if sync.Kind == KindSyncDir {
			about = op.Kind&(KindCreate|KindRemove|KindRename) != 0 && op.dir() == sync.Name
			same = op.Kind == KindSyncDir && op.Name == sync.Name
		} else {
			about = op.Kind&(KindWrite|KindTruncate|KindPunch) != 0 && op.Ino == sync.Ino
			same = op.Kind&(KindSync|KindSyncData) != 0 && op.Ino == sync.Ino
		}
		if same {
			break
		}
		if about {
			at = i
		}
	}
	return at
}

// dir is the directory whose sync makes an entry change durable. A rename between directories
// becomes durable as one thing, with the directory it goes to.
func (o *Op) dir() string {
	if o.Kind == KindRename {
		return filepath.Dir(o.NewName)
	}
	return filepath.Dir(o.Name)
}
