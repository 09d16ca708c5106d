package keyspace

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"

	"github.com/ebbkv/ebb/kv"
)

const scoreKind = 's'

// sortable returns the bits of a score in an order-preserving form. -0 is 0.
func sortable(score float64) uint64 {
	bits := math.Float64bits(score + 0)
	if bits>>63 != 0 {
		return ^bits
	}
	return bits | 1<<63
}

func fromSortable(bits uint64) float64 {
	if bits>>63 != 0 {
		return math.Float64frombits(bits &^ (1 << 63))
	}
	return math.Float64frombits(^bits)
}

// Score returns the score of a member; ok false if it is absent.
func (s *Space) Score(row *Row, member []byte) (score float64, ok bool, err error) {
	if row.Type == 0 || len(member) > s.store.maxElement()-8 {
		return 0, false, nil
	}
	value, err := s.elements().Get(s.elementKey(row.ID, memberKind, member))
	if ok, err = absent(err); !ok {
		return 0, false, err
	}
	score, err = DecodeScore(value)
	return score, true, err
}

// DecodeScore returns the score in the value that Members gives.
func DecodeScore(value []byte) (float64, error) {
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: score of %d bytes", errCorrupt, len(value))
	}
	return fromSortable(binary.BigEndian.Uint64(value)), nil
}

// SetScore puts a member with a score; was is its present score, if it is there. Save follows.
func (s *Space) SetScore(row *Row, member []byte, score float64, present bool, was float64) error {
	score += 0 // -0 is 0
	if present {
		if was == score {
			return nil
		}
		if err := s.changing(s.elements()).Delete(s.scoreKey(row.ID, was, member)); err != nil {
			return err
		}
	} else {
		row.Count++
	}
	if err := s.changing(s.elements()).Put(s.scoreKey(row.ID, score, member), nil); err != nil {
		return err
	}
	bits := binary.BigEndian.AppendUint64(nil, sortable(score))
	return s.changing(s.elements()).Put(s.elementKey(row.ID, memberKind, member), bits)
}

// RemoveScore deletes a present member of a sorted set; Save follows.
func (s *Space) RemoveScore(row *Row, member []byte, score float64) error {
	row.Count--
	if err := s.changing(s.elements()).Delete(s.scoreKey(row.ID, score, member)); err != nil {
		return err
	}
	return s.changing(s.elements()).Delete(s.elementKey(row.ID, memberKind, member))
}

// ByScore ranges over members in the order of scores, then of bytes, or the other way round. from
// is the score to begin with, or to end with in reverse.
func (s *Space) ByScore(row *Row, from, to float64, reverse bool) iter.Seq2[[]byte, float64] {
	return func(yield func(member []byte, score float64) bool) {
		if row.Type == 0 {
			return
		}
		o := kv.ScanOptions{KeysOnly: true, Reverse: reverse}
		o.Lower = append(o.Lower, s.scoreKey(row.ID, from, nil)...)
		if above := sortable(to) + 1; above != 0 {
			o.Upper = append(s.header(row.ID), scoreKind)
			o.Upper = append([]byte(nil), binary.BigEndian.AppendUint64(o.Upper, above)...)
		}
		for key := range s.elements().Scan(o) {
			score := fromSortable(binary.BigEndian.Uint64(key[elementPrefix:]))
			if !yield(key[elementPrefix+8:], score) {
				return
			}
		}
	}
}
