package offheap

import "unsafe"

// A List is numbers, or bytes, in memory that doubles as it fills: each growth is untouched memory,
// where append would grow large slices by a quarter only, and clear the added part. The zero value
// is empty, and on the Go heap.
type List[T byte | uint32 | uint64] struct {
	All []T
	// Off is for lists that Free ends: what is large is outside of the Go heap, in huge pages, of
	// which few have to be found. A Go heap that grows finds memory 4 KiB at a time.
	Off  bool
	slab []byte // where All is, if it is not on the Go heap
}

// Room makes room for n more.
func (l *List[T]) Room(n int) {
	if cap(l.All)-len(l.All) < n {
		l.grow(n)
	}
}

func (l *List[T]) grow(n int) {
	old := *l
	room := max(len(l.All)+n, 2*len(l.All), 64)
	l.All, l.slab = nil, nil
	if size := int(unsafe.Sizeof(T(0))); l.Off && room >= HugePage/size {
		room = (room*size + HugePage - 1) / HugePage * HugePage / size
		if slab, err := Alloc(room * size); err == nil { // else the Go heap
			l.slab, l.All = slab, unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(slab))),
				room)[:len(old.All)]
		}
	}
	if l.All == nil {
		l.All = make([]T, len(old.All), room)
	}
	copy(l.All, old.All)
	old.Free()
}

// Add appends v.
func (l *List[T]) Add(v T) {
	l.Room(1)
	l.All = append(l.All, v)
}

// Free gives the memory back. The list is empty afterwards, and may be used again.
func (l *List[T]) Free() {
	if l.slab != nil {
		_ = Free(l.slab) // nothing to do about a refusal at this point
	}
	l.All, l.slab = nil, nil
}
