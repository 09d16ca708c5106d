package kv

import "bytes"

const (
	// keyOrderMax is the number of keys that are sorted together: their order takes 6 KiB of stack.
	keyOrderMax = 1024
	// sortedFrom is the number of keys from which on neighbours in their order share branches of a
	// large tree: fewer are looked up as they are given.
	sortedFrom = 64
)

// keyOrder sorts the indices of up to keyOrderMax keys by the two bytes behind the prefix that all of
// them share. Keys that follow each other then have the upper part of their paths in common, as a
// rule. It is a radix sort of two passes, 5 ns a key; a whole order would cost ten times that, and
// save nothing more.
type keyOrder struct {
	digits, order, other [keyOrderMax]uint16
}

// asGiven is the order of fewer keys.
var asGiven = func() (order [sortedFrom]uint16) {
	for i := range order {
		order[i] = uint16(i)
	}
	return order
}()

// sort returns the order, which is valid until the next call.
func (o *keyOrder) sort(keys [][]byte) []uint16 {
	n, p := len(keys), sharedPrefix(keys)
	for i, key := range keys {
		o.digits[i], o.order[i] = 0, uint16(i)
		if len(key) > p {
			o.digits[i] = uint16(key[p]) << 8
		}
		if len(key) > p+1 {
			o.digits[i] |= uint16(key[p+1])
		}
	}
	o.pass(n, 0, &o.order, &o.other)
	o.pass(n, 8, &o.other, &o.order)
	return o.order[:n]
}

// pass sorts n indices by eight bits of their digits, and keeps the order of equal ones.
func (o *keyOrder) pass(n, shift int, from, to *[keyOrderMax]uint16) {
	var next [256]uint16 // where the next index with these bits goes
	for _, d := range o.digits[:n] {
		next[uint8(d>>shift)]++
	}
	sum := uint16(0)
	for i, count := range next {
		next[i], sum = sum, sum+count
	}
	for _, k := range from[:n] {
		d := uint8(o.digits[k%keyOrderMax] >> shift)
		to[next[d]%keyOrderMax] = k
		next[d]++
	}
}

func sharedPrefix(keys [][]byte) int {
	shared := keys[0]
	for _, key := range keys[1:] {
		if bytes.HasPrefix(key, shared) {
			continue
		}
		n := 0
		for n < len(key) && n < len(shared) && key[n] == shared[n] {
			n++
		}
		shared = shared[:n]
	}
	return len(shared)
}
