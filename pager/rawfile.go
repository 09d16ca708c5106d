package pager

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"github.com/ebbkv/ebb/internal/vfs"
)

// A RawFile reads pages of a main file that Open may refuse: without a valid meta page, cut short,
// or without a free map. It verifies each page by itself, and writes nothing. It is for one
// goroutine.
type RawFile struct {
	f     mainFile // of which file, name, pageSize, salt and end are set
	bytes int64
	metas [2]*Meta
	lost  [2]bool
}

// OpenLive opens a main file that another process may be writing, without a lock: ReadAgain comes
// next.
func OpenLive(fs vfs.FS, path string) (*RawFile, error) {
	file, err := fs.Open(path, 0)
	if err != nil {
		return nil, err
	}
	return &RawFile{f: mainFile{file: file, name: filepath.Base(path)}}, nil
}

// Magic reports whether the file begins as a store, or with zeros.
func (r *RawFile) Magic() bool {
	p := make([]byte, MinPageSize)
	err := vfs.ReadFull(r.f.file, p, 0)
	return err == nil && (allZero(p) || bytes.Equal(p[offMagic:offMagic+len(magic)], magic[:]))
}

// OpenRaw opens the main file at path, under a shared lock unless noLock is set. The page size and
// the salt are those of a valid meta page. Without one, every page with a right checksum tells both:
// those that most pages agree on are taken. It returns ErrNotStore if no two pages agree, ErrVersion,
// vfs.ErrLocked, or an I/O error.
func OpenRaw(fs vfs.FS, path string, noLock bool) (r *RawFile, err error) {
	file, err := fs.Open(path, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	r = &RawFile{f: mainFile{file: file, name: filepath.Base(path)}}
	if !noLock {
		if err := file.Lock(false); err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
	if r.bytes, err = file.Size(); err != nil {
		return nil, err
	}
	if err := r.readMetas(); err != nil {
		return nil, err
	}
	if two := r.metas; two[0] != nil && two[1] != nil && two[0].StoreID != two[1].StoreID {
		r.f.pageSize = 0 // one of them is of another store
	}
	if r.f.pageSize == 0 {
		if err := r.vote(); err != nil {
			return nil, err
		}
	}
	for slot, m := range r.metas {
		if m != nil && (m.PageSize != r.f.pageSize || Salt(m.StoreID) != r.f.salt) {
			r.metas[slot], r.lost[slot] = nil, true
		}
	}
	r.f.end.Store(r.Pages())
	return r, nil
}

// Close closes the file, which ends its lock.
func (r *RawFile) Close() error { return r.f.file.Close() }

// PageSize is the size of a page in bytes.
func (r *RawFile) PageSize() int { return r.f.pageSize }

// Bytes is the size of the file.
func (r *RawFile) Bytes() int64 { return r.bytes }

// Pages is the number of whole pages in the file.
func (r *RawFile) Pages() uint64 { return uint64(r.bytes / int64(r.f.pageSize)) }

// MetaPages is the number of valid meta pages.
func (r *RawFile) MetaPages() (n int) {
	for _, m := range r.metas {
		if m != nil {
			n++
		}
	}
	return n
}

// Meta returns the newest valid meta page; nil: there is none. certain says that no damaged one may
// have been newer.
func (r *RawFile) Meta() (m *Meta, certain bool) {
	m = r.metas[0]
	if m == nil || r.metas[1] != nil && r.metas[1].Epoch > m.Epoch {
		m = r.metas[1]
	}
	return m, m != nil && !r.lost[0] && !r.lost[1]
}

// Metas returns the valid meta pages by their numbers; nil: not valid.
func (r *RawFile) Metas() [2]*Meta { return r.metas }

// Look reads page id as it is into b, which is a page long, and returns what is wrong with it: it does
// not prove by its checksum and its own number, or cannot be read. An extent proves as a whole only:
// see Extent.
func (r *RawFile) Look(id Pgid, b []byte) error {
	clear(b)
	if id < 2 {
		err := vfs.ReadFull(r.f.file, b, int64(id)*int64(r.f.pageSize))
		if err == nil && r.metas[id] == nil {
			err = r.f.corrupt(id, "no valid meta page")
		}
		return err
	}
	if err := r.f.ReadPages(id, b); err != nil {
		return err
	}
	return r.f.verifyHeader(Ref{id, ReadHeader(b).Epoch}, b)
}

// ExtentOf returns the reference to the extent that begins with head, and the size of its value, as
// head says it. Nothing is verified: see RawFile.Extent.
func ExtentOf(head []byte) (ref Ref, size uint64) {
	h := ReadHeader(head)
	return Ref{h.Pgid, h.Epoch}, extentSize(head)
}

// readMetas reads the meta pages one by one: a damaged one does not hide the other.
func (r *RawFile) readMetas() error {
	for slot := range r.metas {
		for _, size := range pageSizesToTry(r.metas[0]) {
			p := make([]byte, size)
			if err := vfs.ReadFull(r.f.file, p, int64(slot)*int64(size)); err != nil {
				r.lost[slot] = true // cut short, or unreadable
				break
			}
			m, err := decodeMeta(p, slot)
			if err == nil {
				r.metas[slot], r.f.pageSize, r.f.salt = m, size, Salt(m.StoreID)
				r.lost[slot] = false
				break
			}
			if errors.Is(err, ErrVersion) {
				return err
			}
			r.lost[slot] = r.lost[slot] || slot == 0 || !allZero(p) // a new store has no page 1
		}
	}
	return nil
}

// rawChunk is the size of one sequential read.
const rawChunk = 1 << 20

// enoughVotes end the vote. Two pages of 64 random bits agree by chance never.
const (
	enoughVotes = 64
	leastVotes  = 2
	mostSalts   = 4096 // bounds the memory for pages that agree with no other
)

// vote finds page size and salt of a file without a meta page. The number of a page is in its
// header, so a page proves its size by its place.
func (r *RawFile) vote() error {
	best := 0
	for _, size := range pageSizesToTry(nil) {
		votes := map[uint64]int{}
		err := r.chunks(size, func(id Pgid, b []byte) bool {
			h := ReadHeader(b)
			if id < 2 || h.Pgid != id || h.Kind < KindLeaf || h.Kind > KindFreeDir || h.Kind == KindOverflow {
				return true
			}
			salt := binary.LittleEndian.Uint64(b[offChecksum:]) ^ xxhash.Sum64(b[offPgid:])
			if len(votes) < mostSalts || votes[salt] > 0 {
				votes[salt]++
			}
			if votes[salt] > best {
				best, r.f.pageSize, r.f.salt = votes[salt], size, salt
			}
			return best < enoughVotes
		})
		if err != nil {
			return err
		}
		if best >= enoughVotes {
			break
		}
	}
	if best < leastVotes {
		return fmt.Errorf("%w, and no two pages agree on a page size and a store", ErrNotStore)
	}
	return nil
}

// chunks calls fn for each whole page of the given size, in order, until it returns false. Pages of
// a chunk that cannot be read are left out.
func (r *RawFile) chunks(size int, fn func(id Pgid, b []byte) bool) error {
	buf := make([]byte, rawChunk)
	for off := int64(0); off+int64(size) <= r.bytes; off += rawChunk {
		part := buf[:min(rawChunk, (r.bytes-off)/int64(size)*int64(size))]
		if err := vfs.ReadFull(r.f.file, part, off); err != nil {
			r.readSingly(part, size, off)
		}
		for at := 0; at < len(part); at += size {
			if !fn(Pgid((off+int64(at))/int64(size)), part[at:at+size]) {
				return nil
			}
		}
	}
	return nil
}

// readSingly reads page by page what could not be read at once. An unreadable page becomes zeros.
func (r *RawFile) readSingly(part []byte, size int, off int64) {
	for at := 0; at < len(part); at += size {
		if err := vfs.ReadFull(r.f.file, part[at:at+size], off+int64(at)); err != nil {
			clear(part[at : at+size])
		}
	}
}

// Scan calls fn for each page of the file that proves by its checksum and its own number, except for
// extents, in order, until fn returns false. b is valid until fn returns; its layout is not verified.
func (r *RawFile) Scan(fn func(h Header, b []byte) bool) error {
	return r.chunks(r.f.pageSize, func(id Pgid, b []byte) bool {
		h := ReadHeader(b)
		if h.Pgid != id || h.Kind == KindOverflow || !ChecksumMatches(b, r.f.salt) {
			return true
		}
		return fn(h, b)
	})
}

// Page reads the page that ref names, and verifies checksum, number and epoch. It does not verify
// the layout.
func (r *RawFile) Page(ref Ref) ([]byte, error) { return r.f.readVerified(ref) }

// Extent reads and verifies the value of size bytes in the overflow extent at ref. It allocates
// nothing before the first page says that there is such a value.
func (r *RawFile) Extent(ref Ref, size int) ([]byte, error) {
	head := make([]byte, r.f.pageSize)
	if err := r.f.ReadPages(ref.Pgid, head); err != nil {
		return nil, err
	}
	if err := r.f.verifyExtentFit(ref, head, size); err != nil {
		return nil, err
	}
	n := ExtentPages(size, r.f.pageSize)
	if err := r.f.inBounds(ref, n); err != nil {
		return nil, err
	}
	b := make([]byte, int64(n)*int64(r.f.pageSize))
	if err := r.f.ReadPages(ref.Pgid, b); err != nil {
		return nil, err
	}
	if err := r.f.verifyHeader(ref, b); err != nil {
		return nil, err
	}
	return b[ExtentHeader : ExtentHeader+size : ExtentHeader+size], nil
}

// LoggedExtent is Extent of a value that the log names with this checksum of its extent.
func (r *RawFile) LoggedExtent(ref Ref, size int, sum uint64) ([]byte, error) {
	value, err := r.Extent(ref, size)
	if err == nil {
		err = r.f.VerifyExtentSum(ref, sum)
	}
	return value, err
}

// LeafOf returns page id if it is the leaf with that epoch and that checksum, as the log names one.
func (r *RawFile) LeafOf(ref Ref, sum uint64) ([]byte, error) {
	b, err := r.Page(ref)
	switch {
	case err != nil:
		return nil, err
	case ReadHeader(b).Kind != KindLeaf || binary.LittleEndian.Uint64(b[offChecksum:]) != sum:
		return nil, r.f.corrupt(ref.Pgid, "is not the leaf that the log names")
	}
	return b, nil
}

// directory reads the entries of a free directory page.
func (r *RawFile) directory(ref Ref, level uint8) (refs []Ref, used []uint32, ok bool) {
	b, err := r.Page(ref)
	h := Header{}
	if err == nil {
		h = ReadHeader(b)
	}
	if h.Kind != KindFreeDir || h.Level != level || int(h.Count) > r.f.entriesPerDir() {
		return nil, nil, false
	}
	refs, used = decodeDirectory(b)
	return refs, used, true
}

func (r *RawFile) directoryPages(dir Ref) []Ref {
	if level0, _, two := r.directory(dir, 1); two {
		return level0
	}
	return []Ref{dir}
}

// FreeMap reads the free map below a directory root: the pages in use, and the pages of the groups
// whose free map page can be read.
func (r *RawFile) FreeMap(dir Ref) (used, known *UsedSet) {
	used, known = NewUsedSet(r.Pages()), NewUsedSet(r.Pages())
	perGroup := uint64((r.f.pageSize - HeaderSize) / 8 * 64)
	group := uint64(0)
	for _, ref := range r.directoryPages(dir) {
		groups, _, ok := r.directory(ref, 0)
		if !ok {
			group += uint64(r.f.entriesPerDir())
			continue
		}
		for _, g := range groups {
			r.addGroup(g, group*perGroup, perGroup, used, known)
			group++
		}
	}
	return used, known
}

// UsedPages counts the pages in use by the directory alone; ok says that all of it can be read.
func (r *RawFile) UsedPages(dir Ref) (n uint64, ok bool) {
	for _, ref := range r.directoryPages(dir) {
		_, used, ok := r.directory(ref, 0)
		if !ok {
			return 0, false
		}
		for _, u := range used {
			n += uint64(u)
		}
	}
	return n, true
}

// ReadAgain reads the size and the meta pages anew, of a file that another process may be writing:
// one of them may be torn. It returns false if neither is valid.
func (r *RawFile) ReadAgain() (ok bool, err error) {
	r.metas, r.lost, r.f.pageSize = [2]*Meta{}, [2]bool{}, 0
	if r.bytes, err = r.f.file.Size(); err == nil {
		err = r.readMetas()
	}
	if r.f.pageSize != 0 {
		r.f.end.Store(r.Pages())
	}
	return r.f.pageSize != 0, err
}

// addGroup adds the group of a free map page, which begins at page first.
func (r *RawFile) addGroup(ref Ref, first, n uint64, used, known *UsedSet) {
	var b []byte
	if !ref.IsZero() {
		var err error
		if b, err = r.Page(ref); err != nil || ReadHeader(b).Kind != KindFreeMap {
			return
		}
	}
	for i := range min(n, max(r.Pages(), first)-first) {
		known.Add(Pgid(first + i))
		if b != nil && b[HeaderSize+i/8]&(1<<(i%8)) != 0 {
			used.Add(Pgid(first + i))
		}
	}
}
