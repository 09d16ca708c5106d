package keyspace

import (
	"iter"

	"github.com/ebbkv/ebb/kv"
)

const memberKind = 'm'

// HasMember says whether a set or a sorted set has a member.
func (s *Space) HasMember(row *Row, member []byte) (bool, error) {
	if row.Type == 0 || len(member) > s.store.maxElement() {
		return false, nil
	}
	return s.elements().Has(s.elementKey(row.ID, memberKind, member))
}

// AddMember puts a member into a set; Save follows.
func (s *Space) AddMember(row *Row, member []byte) (added bool, err error) {
	added, err = s.changing(s.elements()).PutWith(
		s.elementKey(row.ID, memberKind, member), nil, kv.PutOptions{IfAbsent: true})
	if added {
		row.Count++
	}
	return added, err
}

// RemoveMember deletes a member of a set; Save follows.
func (s *Space) RemoveMember(row *Row, member []byte) (removed bool, err error) {
	has, err := s.HasMember(row, member)
	if err != nil || !has {
		return false, err
	}
	row.Count--
	return true, s.changing(s.elements()).Delete(s.elementKey(row.ID, memberKind, member))
}

// Members ranges over the members of a set or a sorted set from one on, in the order of bytes. The
// value is the score's encoding in a sorted set.
func (s *Space) Members(row *Row, from []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(member, value []byte) bool) {
		if row.Type == 0 {
			return
		}
		o := kv.ScanOptions{Prefix: append([]byte(nil), s.elementKey(row.ID, memberKind, nil)...)}
		if from != nil {
			o.Lower = append([]byte(nil), s.elementKey(row.ID, memberKind, from)...)
		}
		for key, value := range s.elements().Scan(o) {
			if !yield(key[elementPrefix:], value) {
				return
			}
		}
	}
}
