package crashfs

import (
	"slices"
)

// A point is one crash point with all that images of it need.
type point struct {
	w     *walker
	marks Marks
	// units are what may be lost here: first the soft growths, soft of them, which only profile
	// Size loses; then what is pending. groups are the units past those that stand or fall
	// together: both halves of a rename.
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

// build lays out the image that r describes and gives its hash. It stays valid, in p, until the
// next build.
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
			} else if r.tornSeq > 0 && u.seq > r.tornSeq && p.w.ops[r.tornSeq].Ino == u.ino &&
				len(r.lost) > 0 {
				v = p.tornBelow(r, u, c.block(u.i))
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

// tornBelow gives the version of a block that a later write leaves where sectors of the torn one
// are lost: what neither it nor another write after the torn one has written is as in old, which is
// what the block holds without it.
func (p *point) tornBelow(r *recipe, u *unit, old *block) *block {
	torn := &p.w.ops[r.tornSeq]
	first, n := int(torn.Off/sectorSize), sectors(torn)
	var data *rawBlock
next:
	for s := range sectorsPerBlock {
		i := u.i*sectorsPerBlock + s - first
		if i < 0 || i >= n || !r.lost.has(i) {
			continue
		}
		for seq := r.tornSeq + 1; seq <= u.seq; seq++ {
			op := &p.w.ops[seq]
			lo, at := op.Off/sectorSize, int64(u.i*sectorsPerBlock+s)
			if op.Kind == KindWrite && op.Ino == torn.Ino && at >= lo && at < lo+int64(sectors(op)) {
				continue next
			}
		}
		if data == nil {
			data = new(rawBlock)
			copy(data[:], u.v.bytes())
		}
		copy(data[s*sectorSize:(s+1)*sectorSize], old.bytes()[s*sectorSize:])
	}
	if data == nil {
		return u.v
	}
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
		f.holes = p.w.inodes[e.ino].holesIn(c)
		if p.slot[e.ino] != 0 && !r.live {
			f.blocks = slices.Clone(c.blocks)
		} else {
			f.blocks, c.shared = c.blocks, true
		}
		im.files[i] = f
	}
	return im
}
