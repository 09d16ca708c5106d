package limit

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// Array is rows in one piece of memory, sorted by key. The first 8 bytes of the keys lie side by
// side in an array of their own, so that a search touches as few lines of memory as a binary search
// can.
type Array struct {
	heads     []uint64
	rows      []byte
	key, size int // bytes of a key, and of a row
}

// NewArray sorts n rows with keys and values of fixed sizes. next returns slices that are valid
// until it is called again.
func NewArray(n, key, value int, next func(i int) (k, v []byte)) *Array {
	a := &Array{heads: make([]uint64, n), rows: make([]byte, 0, n*(key+value)), key: key, size: key + value}
	type numbered struct {
		head uint64
		i    int
	}
	order := make([]numbered, n)
	for i := range order {
		k, _ := next(i)
		order[i] = numbered{binary.BigEndian.Uint64(k), i}
	}
	slices.SortFunc(order, func(x, y numbered) int {
		switch {
		case x.head < y.head:
			return -1
		case x.head > y.head:
			return 1
		}
		return x.i - y.i
	})
	for i, o := range order {
		k, v := next(o.i)
		a.heads[i] = o.head
		a.rows = append(append(a.rows, k...), v...)
	}
	return a
}

// Get returns the value of k, or nil.
func (a *Array) Get(k []byte) []byte {
	head := binary.BigEndian.Uint64(k)
	lo, n := 0, len(a.heads)
	// The loop runs the same number of times for every key, and its body has no branch to predict.
	for n > 1 {
		half := n / 2
		if a.heads[lo+half-1] < head {
			lo += half
		}
		n -= half
	}
	for ; lo < len(a.heads) && a.heads[lo] == head; lo++ {
		row := a.rows[lo*a.size : (lo+1)*a.size]
		if bytes.Equal(row[:a.key], k) {
			return row[a.key:]
		}
	}
	return nil
}
