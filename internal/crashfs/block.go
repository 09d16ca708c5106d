package crashfs

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// blockSize is the unit in which pending data persists, and the unit of sharing between images.
// sectorSize is what a torn write may tear it into.
const (
	blockSize       = 4096
	sectorSize      = 512
	sectorsPerBlock = blockSize / sectorSize
)

type rawBlock = [blockSize]byte

// A block is one immutable version of a block of a file. A block of zeros is a nil *block, so that
// equal bytes have equal hashes however they came about.
type block struct {
	data *rawBlock
	hash uint64
	end  int // offset after the last byte that is not zero
}

// newBlock takes ownership of data.
func newBlock(data *rawBlock) *block {
	end := blockSize
	for end > 0 && binary.LittleEndian.Uint64(data[end-8:]) == 0 {
		end -= 8
	}
	if end == 0 {
		return nil
	}
	for data[end-1] == 0 {
		end--
	}
	return &block{data: data, hash: xxhash.Sum64(data[:end]), end: end}
}

func (b *block) bytes() []byte {
	if b == nil {
		return zeroBlock[:]
	}
	return b.data[:]
}

var zeroBlock rawBlock

// overlaid gives b with part written at off within the block. part is kept where it fills the
// block: it must never change.
func (b *block) overlaid(part []byte, off int) *block {
	if len(part) == blockSize {
		return newBlock((*rawBlock)(part))
	}
	data := new(rawBlock)
	copy(data[:], b.bytes())
	copy(data[off:], part)
	return newBlock(data)
}

// clipped gives b with zeros from end on.
func (b *block) clipped(end int) *block {
	if b == nil || b.end <= end {
		return b
	}
	data := new(rawBlock)
	copy(data[:end], b.data[:])
	return newBlock(data)
}

// mix scatters the bits of x (the finisher of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// part is what block i adds to the sum of its file.
func (b *block) part(i int) uint64 {
	if b == nil {
		return 0
	}
	return mix(b.hash + uint64(i)*0x9e3779b97f4a7c15)
}

// content is what a file holds. sum is the sum of the parts of its blocks, kept up as they change,
// so that the hash of an image costs no more than what differs from the one before. Where shared is
// set, other contents hold the same slice of blocks, and the next change copies it.
type content struct {
	size   int64
	blocks []*block
	sum    uint64
	shared bool
}

func blocksOf(size int64) int { return int((size + blockSize - 1) / blockSize) }

func (c *content) block(i int) *block {
	if i < len(c.blocks) {
		return c.blocks[i]
	}
	return nil
}

func (c *content) own() {
	if c.shared {
		c.blocks, c.shared = slices.Clone(c.blocks), false
	}
}

func (c *content) set(i int, b *block) {
	old := c.block(i)
	if old == b {
		return
	}
	c.own()
	for len(c.blocks) <= i {
		c.blocks = append(c.blocks, nil)
	}
	c.sum += b.part(i) - old.part(i)
	c.blocks[i] = b
}

// share gives a second content that has the same blocks.
func (c *content) share() content {
	c.shared = true
	return *c
}

// cut zeroes everything from size on, without touching c.size.
func (c *content) cut(size int64) {
	n := blocksOf(size)
	if n < len(c.blocks) {
		c.own()
		for i := n; i < len(c.blocks); i++ {
			c.sum -= c.blocks[i].part(i)
		}
		c.blocks = c.blocks[:n]
	}
	if end := int(size % blockSize); end != 0 && n > 0 {
		c.set(n-1, c.block(n-1).clipped(end))
	}
}

// write puts p at off and grows the file to hold it.
func (c *content) write(p []byte, off int64) {
	forBlocks(p, off, func(i, at int, part []byte) { c.set(i, c.block(i).overlaid(part, at)) })
	c.size = max(c.size, off+int64(len(p)))
}

// forBlocks splits p, which lies at off in a file, at the borders of blocks.
func forBlocks(p []byte, off int64, fn func(i, at int, part []byte)) {
	for len(p) > 0 {
		at := int(off % blockSize)
		n := min(len(p), blockSize-at)
		fn(int(off/blockSize), at, p[:n:n])
		p, off = p[n:], off+int64(n)
	}
}

func (c *content) bytes() []byte {
	b := make([]byte, c.size)
	for i, blk := range c.blocks {
		if blk != nil {
			copy(b[min(int64(i)*blockSize, c.size):], blk.data[:])
		}
	}
	return b
}

// noise fills dst with bytes that depend on seed alone. len(dst) is a multiple of 8.
func noise(dst []byte, seed uint64) {
	for i := 0; i < len(dst); i += 8 {
		seed += 0x9e3779b97f4a7c15
		binary.LittleEndian.PutUint64(dst[i:], mix(seed))
	}
}
