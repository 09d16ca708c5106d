package crashfs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
)

// toy is the smallest engine that keeps the promises: a list to which each commit adds one value. A
// snapshot file holds the values up to a generation, a log of that generation the later ones. Each
// checkpoint writes a new log and a new snapshot that names it. Its flaws can be switched on, one
// per test.
type toy struct {
	fs     vfs.FS
	flaw   flaw
	direct bool

	gen    uint64
	salt   uint64
	log    vfs.File
	off    int64 // where the next record goes
	values [][]byte
	inLog  int // records in the log
	held   []byte
	failed error
}

type flaw string

const (
	flawless           flaw = ""
	acksBeforeWriting  flaw = "acks before writing"
	forgetsLogSync     flaw = "forgets the sync of the log"
	splitsCommits      flaw = "writes a commit as two"
	trustsOrder        flaw = "trusts that writes persist in order"
	trustsBlocks       flaw = "trusts that a block is not torn"
	trustsLongWrites   flaw = "trusts that a long write is not torn"
	sharesSectors      flaw = "writes into sectors of earlier commits"
	forgetsDirSync     flaw = "forgets the sync of the directory"
	growsWithDataSync  flaw = "syncs growth with SyncData only"
	trustsFreshSpace   flaw = "takes old log records for its own"
	retriesFailedSyncs flaw = "retries a failed sync"
)

const (
	toyDir     = "db"
	toySnap    = "db/snap"
	toyTemp    = "db/snap.new"
	toyLogSize = 16 << 10
	toyHeader  = 4096
	toyRecord  = 20 // bytes before the value: length u32, sequence u64, salt u32, checksum u32
	toyPerLog  = 3  // commits between checkpoints
)

var errToy = errors.New("toy is damaged")

func toyLog(gen uint64) string { return fmt.Sprintf("db/log-%d", gen) }

// toyValue is the value of commit k. Most fit a sector, some need more; none is compressible to
// zeros.
func toyValue(f flaw, k int) []byte {
	n := 100 + 300*(k%3)
	switch f {
	case trustsBlocks, trustsFreshSpace:
		n = 4096 - toyRecord
	case trustsLongWrites:
		n = 2*4096 - toyRecord
	case sharesSectors:
		n = 90
	}
	return bytes.Repeat([]byte{byte(k)}, n)
}

func openToy(fsys vfs.FS, f flaw, direct bool) (*toy, error) {
	t := &toy{fs: fsys, flaw: f, direct: direct}
	fresh, err := t.loadSnapshot()
	if err != nil {
		return nil, err
	}
	if !fresh {
		if err := t.replay(); err != nil {
			return nil, err
		}
	}
	return t, t.checkpoint()
}

func readAll(fsys vfs.FS, name string) (b []byte, err error) {
	f, err := fsys.Open(name, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b = make([]byte, size)
	return b, vfs.ReadFull(f, b, 0)
}

// loadSnapshot tells whether there is none.
func (t *toy) loadSnapshot() (fresh bool, err error) {
	b, err := readAll(t.fs, toySnap)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if len(b) < 4 || crc32.ChecksumIEEE(b[4:]) != binary.LittleEndian.Uint32(b) {
		return false, fmt.Errorf("%w: snapshot", errToy)
	}
	t.gen, t.salt = binary.LittleEndian.Uint64(b[4:]), binary.LittleEndian.Uint64(b[12:])
	for b = b[20:]; len(b) > 0; {
		n := binary.LittleEndian.Uint32(b)
		t.values, b = append(t.values, b[4:4+n]), b[4+n:]
	}
	return false, nil
}

func (t *toy) replay() error {
	b, err := readAll(t.fs, toyLog(t.gen))
	if err != nil {
		return err
	}
	if len(b) < toyHeader || binary.LittleEndian.Uint64(b) != t.gen {
		return fmt.Errorf("%w: log header", errToy)
	}
	for off := toyHeader; off+toyRecord <= len(b); {
		rec := b[off:]
		n := int(binary.LittleEndian.Uint32(rec))
		if n == 0 || n > len(rec)-toyRecord || binary.LittleEndian.Uint64(rec[4:]) != t.nextSeq() ||
			binary.LittleEndian.Uint32(rec[12:]) != t.recordSalt() {
			break
		}
		value := rec[toyRecord : toyRecord+n]
		if t.flaw == trustsOrder {
			at := int(value[0])*4096 + toyLogSize
			value = b[min(at, len(b)):min(at+100, len(b))]
		}
		if binary.LittleEndian.Uint32(rec[16:]) != t.checksum(rec[:16], value) {
			break
		}
		t.add(bytes.Clone(value))
		off += t.padded(toyRecord + n)
	}
	return nil
}

// add takes a value into the list. The second half of a commit that was split goes to the first.
func (t *toy) add(value []byte) {
	t.inLog++
	if t.flaw == splitsCommits && t.inLog%2 == 0 {
		last := len(t.values) - 1
		t.values[last] = append(bytes.Clone(t.values[last]), value...)
		return
	}
	t.values = append(t.values, value)
}

func (t *toy) nextSeq() uint64 {
	if t.flaw == trustsFreshSpace {
		return uint64(t.inLog)
	}
	return uint64(t.inLog) + t.salt<<20
}

func (t *toy) recordSalt() uint32 {
	if t.flaw == trustsFreshSpace {
		return 0
	}
	return uint32(t.salt)
}

func (t *toy) checksum(head, value []byte) uint32 {
	sum := crc32.ChecksumIEEE(head)
	switch t.flaw {
	case trustsBlocks, trustsLongWrites, trustsOrder:
		return sum
	}
	return crc32.Update(sum, crc32.IEEETable, value)
}

func (t *toy) padded(n int) int {
	switch t.flaw {
	case sharesSectors:
		return n
	case splitsCommits:
		return (n + 4095) / 4096 * 4096
	}
	return (n + 511) / 512 * 512
}

// checkpoint starts the next generation.
func (t *toy) checkpoint() error {
	old := t.gen
	next := old + 1
	salt := next*2654435761%65521 + 1
	for _, name := range []string{toyLog(next), toyTemp} {
		if err := t.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	log, err := t.createLog(next)
	if err != nil {
		return err
	}
	if t.log != nil {
		if err := t.log.Close(); err != nil {
			return err
		}
	}
	t.log = log
	if err := t.writeSnapshot(next, salt); err != nil {
		return err
	}
	if t.flaw != forgetsDirSync {
		// The snapshot names the log: the log's name must be durable first.
		if err := t.fs.SyncDir(toyDir); err != nil {
			return err
		}
	}
	if err := t.fs.Rename(toyTemp, toySnap); err != nil {
		return err
	}
	if err := t.fs.SyncDir(toyDir); err != nil {
		return err
	}
	t.gen, t.salt, t.off, t.inLog = next, salt, toyHeader, 0
	if err := t.fs.Remove(toyLog(old)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (t *toy) createLog(gen uint64) (vfs.File, error) {
	log, err := t.fs.Open(toyLog(gen), vfs.Write|vfs.Create)
	if err != nil {
		return nil, err
	}
	size := toyLogSize
	if t.flaw == growsWithDataSync || t.flaw == trustsFreshSpace {
		size = toyHeader
	}
	b := make([]byte, size)
	binary.LittleEndian.PutUint64(b, gen)
	if err := vfs.WriteFull(log, b, 0); err != nil {
		return nil, err
	}
	if err := log.Sync(); err != nil {
		return nil, err
	}
	if !t.direct {
		return log, nil
	}
	if err := log.Close(); err != nil {
		return nil, err
	}
	return t.fs.Open(toyLog(gen), vfs.Write|vfs.Direct)
}

func (t *toy) writeSnapshot(gen, salt uint64) error {
	b := binary.LittleEndian.AppendUint64(make([]byte, 4), gen)
	b = binary.LittleEndian.AppendUint64(b, salt)
	for _, v := range t.values {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	binary.LittleEndian.PutUint32(b, crc32.ChecksumIEEE(b[4:]))
	f, err := t.fs.Open(toyTemp, vfs.Write|vfs.Create|vfs.Excl)
	if err != nil {
		return err
	}
	if err := vfs.WriteFull(f, b, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(f.Sync(), f.Close())
}

// commit adds a value. durable asks for a sync.
func (t *toy) commit(value []byte, durable bool) (err error) {
	if t.failed != nil {
		return t.failed
	}
	defer func() { t.failed = err }()
	if len(t.values)%toyPerLog == 0 && t.inLog > 0 {
		if err := t.checkpoint(); err != nil {
			return err
		}
	}
	switch t.flaw {
	case splitsCommits:
		half := len(value) / 2
		err = errors.Join(t.append(value[:half]), t.append(value[half:]))
	case trustsOrder:
		// The value goes to a place of its own, the record that makes it count behind it.
		at := t.inLog + 1
		err = errors.Join(vfs.WriteFull(t.log, value[:100], int64(at)*4096+toyLogSize),
			t.append([]byte{byte(at)}))
		t.values[len(t.values)-1] = value[:100]
	default:
		err = t.append(value)
	}
	if err != nil || !durable || t.flaw == forgetsLogSync || t.direct {
		return err
	}
	if t.flaw == trustsFreshSpace {
		return t.log.Sync()
	}
	err = t.log.SyncData()
	if err != nil && t.flaw == retriesFailedSyncs {
		err = t.log.SyncData()
	}
	return err
}

func (t *toy) append(value []byte) error {
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(value)))
	head = binary.LittleEndian.AppendUint64(head, t.nextSeq())
	head = binary.LittleEndian.AppendUint32(head, t.recordSalt())
	head = binary.LittleEndian.AppendUint32(head, t.checksum(head, value))
	b := vfs.AlignedBuffer(t.padded(toyRecord + len(value)))
	copy(b[copy(b, head):], value)
	at := t.off
	t.off += int64(len(b))
	t.add(value)
	if t.flaw == acksBeforeWriting {
		b, t.held = t.held, b
		at -= int64(len(b))
	}
	return vfs.WriteFull(t.log, b, at)
}

func (t *toy) close() error { return t.log.Close() }

// runToy commits n values and tells the disk. Every third commit is relaxed, unless the log is
// direct.
func runToy(d *crashfs.Disk, f flaw, direct bool, n int) error {
	d.SetPhase("open")
	t, err := openToy(d, f, direct)
	if err != nil {
		return err
	}
	for k := 1; k <= n; k++ {
		d.SetPhase("commit")
		relaxed := k%3 == 2 && !direct
		d.Begun(uint64(k))
		if err := t.commit(toyValue(f, k), !relaxed); err != nil {
			return errors.Join(err, t.close())
		}
		if relaxed {
			d.AckedRelaxed(uint64(k))
		} else {
			d.Acked(uint64(k))
		}
	}
	return t.close()
}

// judgeToy opens an image and tells what is wrong with it.
func judgeToy(im *crashfs.Image, f flaw, opts crashfs.Options) (disk *crashfs.Disk, commits int, err error) {
	disk = im.Disk(opts)
	t, err := openToy(disk, f, opts.Direct)
	if err != nil {
		return disk, 0, err
	}
	k := len(t.values)
	for i, v := range t.values {
		want := toyValue(f, i+1)
		if f == trustsOrder {
			want = want[:100]
		}
		if !bytes.Equal(v, want) {
			return disk, k, fmt.Errorf("value %d of %d is wrong", i+1, k)
		}
	}
	if uint64(k) < im.Acked || uint64(k) > im.Begun {
		return disk, k, fmt.Errorf("%d commits, want %d to %d", k, im.Acked, im.Begun)
	}
	return disk, k, nil
}
