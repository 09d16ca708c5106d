package pager

import "math/bits"

// bitmap is a set of small numbers. Its methods panic past its end.
type bitmap []uint64

func (b bitmap) has(i uint64) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bitmap) set(i uint64)      { b[i/64] |= 1 << (i % 64) }
func (b bitmap) clear(i uint64)    { b[i/64] &^= 1 << (i % 64) }

func (b bitmap) count() (n uint64) {
	for _, w := range b {
		n += uint64(bits.OnesCount64(w))
	}
	return n
}

// runAt finds the first run of at least n set bits at or after bit from, as [lo, hi).
func runAt(words bitmap, from, n uint64) (lo, hi uint64) {
	end := uint64(len(words)) * 64
	for at := from; at < end; {
		lo = nextBit(words, at, false)
		if lo >= end {
			return 0, 0
		}
		hi = nextBit(words, lo, true)
		if hi-lo >= n {
			return lo, hi
		}
		at = hi
	}
	return 0, 0
}

// nextBit finds the first set (clear: unset) bit at or after from; past the end if there is none.
func nextBit(words bitmap, from uint64, clear bool) uint64 {
	i := from / 64
	if i >= uint64(len(words)) {
		return uint64(len(words)) * 64
	}
	w := words[i]
	if clear {
		w = ^w
	}
	w &= ^uint64(0) << (from % 64)
	for w == 0 {
		i++
		if i == uint64(len(words)) {
			return i * 64
		}
		w = words[i]
		if clear {
			w = ^w
		}
	}
	return i*64 + uint64(bits.TrailingZeros64(w))
}
