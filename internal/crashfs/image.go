package crashfs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// imageFile is one file of an image. Its blocks are shared and never change; none lies past size, and the bytes of
// the last one past size are zero.
type imageFile struct {
	name     string
	nameHash uint64
	size     int64
	blocks   []*block
	sum      uint64 // of the parts of blocks
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

// Desc says what persisted. Disk.Rebuild makes the same image from it on a disk with the same trace.
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

// bits is a set of units.
type bits []uint64

func (b bits) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bits) add(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bits) del(i int)      { b[i/64] &^= 1 << (i % 64) }

func (b bits) fill(n int) {
	for i := range b {
		b[i] = ^uint64(0)
	}
	if rest := n % 64; rest != 0 {
		b[len(b)-1] = 1<<rest - 1
	}
}

// String lists the members as ranges.
func (b bits) String() string {
	var s strings.Builder
	for i := 0; i < len(b)*64; i++ {
		if !b.has(i) {
			continue
		}
		lo := i
		for i+1 < len(b)*64 && b.has(i+1) {
			i++
		}
		if s.Len() > 0 {
			s.WriteByte(',')
		}
		s.WriteString(strconv.Itoa(lo))
		if i > lo {
			s.WriteString("-" + strconv.Itoa(i))
		}
	}
	return s.String()
}

var errDesc = errors.New("crashfs: description does not fit the trace")

func parseBits(text string, n int) (bits, error) {
	b := make(bits, (n+63)/64)
	if text == "" {
		return b, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		lo, err1 := strconv.Atoi(from)
		hi, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || lo < 0 || hi >= n || lo > hi {
			return nil, fmt.Errorf("%w: %q of %d", errDesc, part, n)
		}
		for i := lo; i <= hi; i++ {
			b.add(i)
		}
	}
	return b, nil
}

// staleFill says what unsynced holes hold.
type staleFill uint8

const (
	staleNone    staleFill = iota // zeros
	staleNewest                   // the newest deleted file that has something there
	staleOldest                   // the oldest one
	staleGarbage                  // noise
)

// recipe says what persists at a crash point. Numbers of units are those of a point.
type recipe struct {
	live bool // nothing is lost, the page cache included: a kill
	keep bits // units that persist

	// One write may be torn: lost are its sectors, counted from the first one that it touches, that keep their old
	// bytes, or become noise.
	tornSeq int // -1 for none
	lost    bits
	noise   bool

	stale staleFill
}

func (r *recipe) String() string {
	if r.live {
		return "all"
	}
	s := "keep=" + r.keep.String()
	if r.tornSeq >= 0 {
		s += fmt.Sprintf(" torn=%d lost=%s", r.tornSeq, r.lost)
		if r.noise {
			s += " noise"
		}
	}
	if r.stale != staleNone {
		s += fmt.Sprintf(" stale=%d", r.stale)
	}
	return s
}

// parse is the inverse of String at a point.
func (p *point) parse(text string) (recipe, error) {
	r := recipe{tornSeq: -1}
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		var err error
		switch key {
		case "all":
			r.live = true
		case "keep":
			r.keep, err = parseBits(value, len(p.units))
		case "torn":
			r.tornSeq, err = strconv.Atoi(value)
			if err == nil && (r.tornSeq < 0 || r.tornSeq >= p.w.pos) {
				err = errDesc
			}
		case "lost":
			if r.tornSeq < 0 {
				return r, errDesc
			}
			r.lost, err = parseBits(value, sectors(&p.w.ops[r.tornSeq]))
		case "noise":
			r.noise = true
		case "stale":
			var n int
			n, err = strconv.Atoi(value)
			r.stale = staleFill(n)
		default:
			err = errDesc
		}
		if err != nil {
			return r, err
		}
	}
	if !r.live && r.keep == nil {
		r.keep = make(bits, p.words())
	}
	return r, nil
}

// sectors is how many sectors a write touches.
func sectors(op *Op) int {
	if len(op.Data) == 0 {
		return 0
	}
	return int((op.Off+int64(len(op.Data))-1)/sectorSize - op.Off/sectorSize + 1)
}

// A point is one crash point with all that images of it need.
type point struct {
	w     *walker
	marks Marks
	// units are what may be lost here: first the soft growths, soft of them, which only profile Size loses; then what
	// is pending. groups are the units past those that stand or fall together: both halves of a rename.
	units   []unit
	soft    int
	groups  [][2]int
	touched []touched
	slot    []int // by inode: its index in touched plus 1, or 0

	scratch []entry
}

// touched is an inode that units change, with room to build it.
type touched struct {
	f     *winode
	ino   int
	c     content
	space []*block // what c.blocks grows in
}

func (p *point) words() int { return (len(p.units) + 63) / 64 }

// at prepares p for the walker's place. The memory of the point before is used again.
func (p *point) at(w *walker, final Marks) {
	p.w, p.marks = w, final
	if w.pos < len(w.ops) {
		p.marks = w.ops[w.pos].Marks
	}
	p.units, p.groups, p.touched = p.units[:0], p.groups[:0], p.touched[:0]
	p.slot = append(p.slot[:0], make([]int, len(w.inodes))...)
	visible := w.visible()
	for ino, f := range w.inodes {
		if ino > 0 && visible[ino] && len(f.soft) > 0 {
			p.units = append(p.units, f.soft...)
			p.touch(ino)
		}
	}
	p.soft = len(p.units)
	for i := range w.pending {
		u := &w.pending[i]
		if !visible[u.ino] && u.kind < unitDel {
			continue
		}
		if u.kind <= unitShrink {
			p.touch(u.ino)
		}
		n := len(p.units)
		p.units = append(p.units, *u)
		if u.kind == unitDel && n > p.soft && p.units[n-1].kind == unitAdd && p.units[n-1].seq == u.seq {
			p.groups[len(p.groups)-1][1] = n + 1
		} else {
			p.groups = append(p.groups, [2]int{n, n + 1})
		}
	}
}

func (p *point) touch(ino int) {
	if p.slot[ino] != 0 {
		return
	}
	if len(p.touched) < cap(p.touched) {
		p.touched = p.touched[:len(p.touched)+1]
	} else {
		p.touched = append(p.touched, touched{})
	}
	t := &p.touched[len(p.touched)-1]
	t.f, t.ino = p.w.inodes[ino], ino
	p.slot[ino] = len(p.touched)
}

// build lays out the image that r describes and gives its hash. It stays valid, in p, until the next build.
func (p *point) build(r *recipe) uint64 {
	if r.live {
		p.scratch = append(p.scratch[:0], p.w.live...)
		return p.hash(r)
	}
	p.scratch = append(p.scratch[:0], p.w.entries...)
	for i := range p.touched {
		t := &p.touched[i]
		d := &t.f.durable
		t.space = append(t.space[:0], d.blocks...)
		t.c = content{size: d.size, blocks: t.space, sum: d.sum}
		if len(t.f.soft) > 0 {
			t.c.size = t.f.hard
		}
	}
	for i := range p.units {
		if !r.keep.has(i) {
			continue
		}
		u := &p.units[i]
		if u.kind >= unitAdd {
			p.scratch = u.apply(p.scratch)
			continue
		}
		c := &p.touched[p.slot[u.ino]-1].c
		switch u.kind {
		case unitData:
			v := u.v
			if u.seq == r.tornSeq {
				v = p.torn(r, u, c.block(u.i))
			}
			c.set(u.i, v)
		case unitGrow:
			c.size = u.size
		case unitShrink:
			c.size = u.size
			c.cut(u.size)
		}
	}
	for i := range p.touched {
		t := &p.touched[i]
		if r.stale != staleNone {
			p.fillHoles(r, t)
		}
		t.c.cut(t.c.size)
		t.space = t.c.blocks
	}
	return p.hash(r)
}

// torn gives the version of a block that the torn write leaves, where old is what it held before.
func (p *point) torn(r *recipe, u *unit, old *block) *block {
	first := int(p.w.ops[u.seq].Off / sectorSize)
	n := sectors(&p.w.ops[u.seq])
	var data *rawBlock
	for s := range sectorsPerBlock {
		i := u.i*sectorsPerBlock + s - first
		if i < 0 || i >= n || !r.lost.has(i) {
			continue
		}
		if data == nil {
			data = new(rawBlock)
			copy(data[:], u.v.bytes())
		}
		sector := data[s*sectorSize : (s+1)*sectorSize]
		if r.noise {
			noise(sector, uint64(u.seq)<<32+uint64(i))
		} else {
			copy(sector, old.bytes()[s*sectorSize:])
		}
	}
	if data == nil {
		return u.v
	}
	return newBlock(data)
}

// fillHoles puts old content of the disk into blocks past the durable size that did not persist.
func (p *point) fillHoles(r *recipe, t *touched) {
	c := &t.c
	lo, hi := blocksOf(t.f.durable.size), blocksOf(c.size)
	if lo >= hi {
		return
	}
	kept := make([]bool, hi-lo)
	for i := range p.units {
		if u := &p.units[i]; u.kind == unitData && u.ino == t.ino && r.keep.has(i) && u.i >= lo && u.i < hi {
			kept[u.i-lo] = true
		}
	}
	for i := lo; i < hi; i++ {
		if !kept[i-lo] {
			c.set(i, p.resurrected(r.stale, t.ino, i))
		}
	}
}

func (p *point) resurrected(fill staleFill, ino, i int) *block {
	dead := p.w.dead
	for j := range dead {
		d := &dead[j]
		if fill == staleNewest {
			d = &dead[len(dead)-1-j]
		}
		if b := d.block(i); b != nil && fill != staleGarbage {
			return b
		}
	}
	data := new(rawBlock)
	noise(data[:], uint64(ino)<<32+uint64(i))
	return newBlock(data)
}

// file is the content of an inode in the image that build laid out.
func (p *point) file(r *recipe, ino int) *content {
	f := p.w.inodes[ino]
	switch {
	case r.live && f.hasCache:
		return &f.cache
	case r.live:
		return &f.line
	case p.slot[ino] != 0:
		return &p.touched[p.slot[ino]-1].c
	}
	return &f.durable
}

func (p *point) hash(r *recipe) uint64 {
	var sum uint64
	for i := range p.scratch {
		sum += fileHash(p.scratch[i].hash, p.file(r, p.scratch[i].ino))
	}
	return mix(sum)
}

// image takes the image that build laid out.
func (p *point) image(r *recipe, profile Profile, hash uint64) *Image {
	im := &Image{
		Point: p.w.pos, Profile: profile, Acked: p.marks.Acked, Begun: p.marks.Begun, hash: hash,
		files: make([]imageFile, len(p.scratch)), dead: p.w.dead[:len(p.w.dead):len(p.w.dead)], recipe: *r,
	}
	if profile == Kill {
		im.Acked = max(im.Acked, p.marks.Relaxed)
	}
	im.recipe.keep, im.recipe.lost = slices.Clone(r.keep), slices.Clone(r.lost)
	for i := range p.scratch {
		e := &p.scratch[i]
		c := p.file(r, e.ino)
		f := imageFile{name: e.name, nameHash: e.hash, size: c.size, sum: c.sum}
		if p.slot[e.ino] != 0 && !r.live {
			f.blocks = slices.Clone(c.blocks)
		} else {
			f.blocks, c.shared = c.blocks, true
		}
		im.files[i] = f
	}
	return im
}

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

// Shrink looks for an image at the same crash point that still fails and of which less is lost: first fewer units, then
// fewer sectors. fails is called once per image that is tried. im must come from this disk.
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

// Seen remembers images, so that each is judged once. Many runs may share it.
type Seen struct {
	mu sync.Mutex
	m  map[uint64]struct{}
}

// NewSeen gives an empty set.
func NewSeen() *Seen { return &Seen{m: map[uint64]struct{}{}} }

// Len is the number of images remembered.
func (s *Seen) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.m)
}

// add tells whether key is new.
func (s *Seen) add(key uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.m[key]; ok {
		return false
	}
	s.m[key] = struct{}{}
	return true
}
