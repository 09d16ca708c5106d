package workload

import (
	"encoding/binary"
	"math/rand/v2"
)

// Sizes in bytes of the rows that every workload has if it does not say otherwise.
const (
	keySize   = 16
	valueSize = 100
	rowBytes  = keySize + valueSize
)

// order says how the number of a row becomes its key.
type order uint8

const (
	hashed    order = iota // scattered over the key space: neighbours in number are nowhere near in order
	ascending              // ascending
	grouped                // a hundred rows in a row share the first 8 bytes, which are scattered
)

const groupRows = 100

// key writes the key of row i into b and returns it.
func (o order) key(b []byte, i int) []byte {
	prefix := uint64(0)
	switch o {
	case hashed:
		prefix = mix(uint64(i))
	case grouped:
		prefix = mix(uint64(i / groupRows))
	}
	b = b[:keySize]
	binary.BigEndian.PutUint64(b, prefix)
	binary.BigEndian.PutUint64(b[8:], uint64(i))
	return b
}

// mix is the finalizer of splitmix64, a permutation of the 64-bit numbers.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// tag is what the value of a key begins with.
func tag(key []byte) uint64 {
	return binary.LittleEndian.Uint64(key)*31 + binary.LittleEndian.Uint64(key[8:])
}

// filler is what values are cut from, beginning in its first fillerStart bytes, which stay in the
// processor's cache: the benchmark is to cost little itself. It does not compress: a store shall
// not win by what the benchmark happens to store.
var filler = func() []byte {
	b := make([]byte, fillerStart+hugeValue)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
	return b
}()

const fillerStart = 32 << 10

// fill writes the value that key has in a version into v and returns it: tag, version, then filler.
func fill(v, key []byte, version uint64) []byte {
	t := tag(key)
	copy(v, filler[(t^version)%fillerStart:])
	binary.LittleEndian.PutUint64(v, t)
	binary.LittleEndian.PutUint64(v[8:], version)
	return v
}

// rightValue checks what a get gave: size, and the tag that only this key has.
func rightValue(v, key []byte, size int) bool {
	return len(v) == size && binary.LittleEndian.Uint64(v) == tag(key)
}

// sum is what engine.Tally.Add adds for a row.
func sum(key []byte, version uint64) uint64 {
	return binary.LittleEndian.Uint64(key[8:]) + tag(key) + version
}

// bigEndian is the first 8 bytes of a key as a number of the same order.
func bigEndian(key []byte) uint64 { return binary.BigEndian.Uint64(key) }

// permutation is [0, n) in a random order.
func permutation(rng *rand.Rand, n int) []uint32 {
	p := make([]uint32, n)
	for i := range p {
		p[i] = uint32(i)
	}
	rng.Shuffle(n, func(i, j int) { p[i], p[j] = p[j], p[i] })
	return p
}

// arena holds the rows of one batch, so that their slices stay as they are until it is committed.
type arena struct {
	buf []byte
	at  int
}

func newArena(rows, value int) *arena { return &arena{buf: make([]byte, rows*(keySize+value))} }

// row makes the key and value of row i in the next free place.
func (a *arena) row(o order, i, value int, version uint64) (k, v []byte) {
	b := a.next(keySize + value)
	k = o.key(b, i)
	return k, fill(b[keySize:], k, version)
}

// key makes the key of row i in the next free place.
func (a *arena) key(o order, i int) []byte { return o.key(a.next(keySize), i) }

// next is the next free place; after the last one it is the first again.
func (a *arena) next(size int) []byte {
	if a.at+size > len(a.buf) {
		a.at = 0
	}
	a.at += size
	return a.buf[a.at-size : a.at : a.at]
}
