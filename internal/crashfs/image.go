package crashfs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// imageFile is one file of an image. Its blocks are shared and never change; none is past size,
// and the bytes of the last one past size are zero.
type imageFile struct {
	name     string
	nameHash uint64
	size     int64
	blocks   []*block
	sum      uint64 // of the parts of blocks
	holes    holes
}

func nameHash(name string) uint64 { return mix(xxhash.Sum64String(name)) }

func fileHash(nameHash uint64, c *content) uint64 {
	return mix(nameHash ^ mix(c.sum+mix(uint64(c.size)+1)))
}

// An Image is what the disk may hold after a crash. It never changes.
type Image struct {
	Point   int     // the crash came after this many entries of the trace
	Profile Profile // one
	Acked   uint64  // the state must hold all commits up to this one
	Begun   uint64  // and may hold commits up to this one
	files   []imageFile
	dead    []content
	hash    uint64
	recipe  recipe
}

// Hash is the same for images with the same names, sizes and bytes.
func (im *Image) Hash() uint64 { return im.hash }

// Desc says what persisted. Disk.Rebuild makes the same image from it on a disk with the same
// trace.
func (im *Image) Desc() string { return im.Profile.String() + " " + im.recipe.String() }

// String is one line for people.
func (im *Image) String() string {
	return fmt.Sprintf("point %d, %s, commits [%d,%d]", im.Point, im.Desc(), im.Acked, im.Begun)
}

// Names gives the names of all files, sorted.
func (im *Image) Names() []string {
	names := make([]string, len(im.files))
	for i := range im.files {
		names[i] = im.files[i].name
	}
	return names
}

// Files gives copies of all files.
func (im *Image) Files() map[string][]byte {
	files := make(map[string][]byte, len(im.files))
	for i := range im.files {
		f := &im.files[i]
		c := content{size: f.size, blocks: f.blocks}
		files[f.name] = c.bytes()
	}
	return files
}

// Disk starts a disk that holds the image, all of it durable.
func (im *Image) Disk(opts Options) *Disk { return newDisk(opts, im.files, im.dead) }

// Rebuild makes the image that Image.Desc described at the given crash point.
func (d *Disk) Rebuild(at int, desc string) (*Image, error) {
	ops, final := d.snapshot()
	if at < 0 || at > len(ops) {
		return nil, fmt.Errorf("%w: point %d of %d", errDesc, at, len(ops))
	}
	name, rest, _ := strings.Cut(desc, " ")
	profile, ok := ParseProfile(name)
	if !ok {
		return nil, fmt.Errorf("%w: profile %q", errDesc, name)
	}
	w := newWalker(d.base, d.dead, ops)
	for range at {
		w.step()
	}
	var p point
	p.at(w, final)
	r, err := p.parse(rest)
	if err != nil {
		return nil, err
	}
	return p.image(&r, profile, p.build(&r)), nil
}

// Shrink looks for an image at the same crash point that still fails and of which less is lost:
// first fewer units, then fewer sectors. fails is called once per image that is tried. im must come
// from this disk.
func (d *Disk) Shrink(im *Image, fails func(*Image) bool) *Image {
	ops, final := d.snapshot()
	w := newWalker(d.base, d.dead, ops)
	for range im.Point {
		w.step()
	}
	var p point
	p.at(w, final)
	r := im.recipe
	if r.live {
		return im
	}
	r.keep, r.lost = slices.Clone(r.keep), slices.Clone(r.lost)
	try := func() bool {
		smaller := p.image(&r, im.Profile, p.build(&r))
		if !fails(smaller) {
			return false
		}
		im = smaller
		return true
	}
	for i := range p.units {
		if !r.keep.has(i) {
			if r.keep.add(i); !try() {
				r.keep.del(i)
			}
		}
	}
	for s := range len(r.lost) * 64 {
		if r.lost.has(s) {
			if r.lost.del(s); !try() {
				r.lost.add(s)
			}
		}
	}
	return im
}

func (d *Disk) snapshot() ([]Op, Marks) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.trace[:len(d.trace):len(d.trace)], d.marks
}
