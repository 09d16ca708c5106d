package keyspace

import (
	"encoding/binary"
	"iter"

	"github.com/ebbkv/ebb/kv"
)

const listKind = 'l'

// Push puts an element before the head, or behind the tail; Save follows.
func (s *Space) Push(row *Row, head bool, value []byte) error {
	pos := row.Count
	if head {
		row.Head--
		pos = 0
	}
	row.Count++
	return s.changing(s.elements()).Put(s.listKey(row, pos), value)
}

// Pop removes the first or the last element of a list that has one; Save follows.
func (s *Space) Pop(row *Row, head bool) (value []byte, err error) {
	pos := row.Count - 1
	if head {
		pos = 0
	}
	if value, err = s.elements().GetAppend(nil, s.listKey(row, pos)); err != nil {
		return nil, err
	}
	if err := s.changing(s.elements()).Delete(s.listKey(row, pos)); err != nil {
		return nil, err
	}
	row.Count--
	if head {
		row.Head++
	}
	return value, nil
}

// Index returns the element at a position within the list.
func (s *Space) Index(row *Row, pos int64) ([]byte, error) {
	return s.elements().Get(s.listKey(row, pos))
}

// SetIndex replaces the element at a position within the list.
func (s *Space) SetIndex(row *Row, pos int64, value []byte) error {
	return s.changing(s.elements()).Put(s.listKey(row, pos), value)
}

// Elements ranges over the elements of positions [from, to), which lie within the list.
func (s *Space) Elements(row *Row, from, to int64, reverse bool) iter.Seq2[int64, []byte] {
	return func(yield func(int64, []byte) bool) {
		if row.Type == 0 || from >= to {
			return
		}
		o := kv.ScanOptions{Reverse: reverse}
		o.Lower = append(o.Lower, s.listKey(row, from)...)
		o.Upper = append(o.Upper, s.listKey(row, to)...)
		for key, value := range s.elements().Scan(o) {
			pos := int64(binary.BigEndian.Uint64(key[elementPrefix:])^1<<63) - row.Head
			if !yield(pos, value) {
				return
			}
		}
	}
}

// Trim keeps the positions [from, to) of a list; Save follows.
func (s *Space) Trim(row *Row, from, to int64) error {
	cut := func(lo, hi int64) error {
		if lo >= hi {
			return nil
		}
		lower := append([]byte(nil), s.listKey(row, lo)...)
		return s.changing(s.elements()).DeleteRange(lower, s.listKey(row, hi))
	}
	if err := cut(0, from); err != nil {
		return err
	}
	if err := cut(to, row.Count); err != nil {
		return err
	}
	row.Head += from
	row.Count = max(to-from, 0)
	return nil
}

// Insert puts an element before the one at pos; the elements of the shorter side move. Save
// follows.
func (s *Space) Insert(row *Row, pos int64, value []byte) error {
	if pos < row.Count/2 {
		row.Head--
		row.Count++
		if err := moveElements(s, row, 1, pos+1, -1); err != nil {
			return err
		}
	} else {
		row.Count++
		if err := moveElements(s, row, pos, row.Count-1, 1); err != nil {
			return err
		}
	}
	return s.SetIndex(row, pos, value)
}

// RemoveAt removes the element at pos; the elements of the shorter side move. Save follows.
func (s *Space) RemoveAt(row *Row, pos int64) error {
	if pos < row.Count/2 {
		if err := moveElements(s, row, 0, pos, 1); err != nil {
			return err
		}
		_, err := s.Pop(row, true)
		return err
	}
	if err := moveElements(s, row, pos+1, row.Count, -1); err != nil {
		return err
	}
	_, err := s.Pop(row, false)
	return err
}

// moveElements copies the elements of [from, to) to positions that are by higher.
func moveElements(s *Space, row *Row, from, to, by int64) error {
	step, pos, end := int64(1), from, to
	if by > 0 {
		step, pos, end = -1, to-1, from-1
	}
	for ; pos != end; pos += step {
		value, err := s.elements().GetAppend(nil, s.listKey(row, pos))
		if err != nil {
			return err
		}
		if err := s.changing(s.elements()).Put(s.listKey(row, pos+by), value); err != nil {
			return err
		}
	}
	return nil
}

// RemoveMany removes the elements at positions, in any order; the elements behind the first of them
// moveElements once. Save follows.
func (s *Space) RemoveMany(row *Row, positions []int64) error {
	if len(positions) == 1 {
		return s.RemoveAt(row, positions[0])
	}
	gone := make(map[int64]bool, len(positions))
	to := row.Count
	for _, pos := range positions {
		gone[pos] = true
		to = min(to, pos)
	}
	for pos := to; pos < row.Count; pos++ {
		if gone[pos] {
			continue
		}
		value, err := s.elements().GetAppend(nil, s.listKey(row, pos))
		if err != nil {
			return err
		}
		if err := s.changing(s.elements()).Put(s.listKey(row, to), value); err != nil {
			return err
		}
		to++
	}
	return s.Trim(row, 0, to)
}
