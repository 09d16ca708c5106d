package keyspace

import "encoding/binary"

const elementPrefix = 9 // id and kind of row

// rowKeys makes the keys of rows. Each is valid until the next one of its family: the store copies
// the keys of writes.
type rowKeys struct{ keyBuf, elementBuf []byte }

func (k *rowKeys) masterKey(key []byte) []byte {
	k.keyBuf = append(append(k.keyBuf[:0], 'k'), key...)
	return k.keyBuf
}

// header returns the key of the header row of a collection, the prefix of those of its elements.
func (k *rowKeys) header(id uint64) []byte {
	k.elementBuf = binary.BigEndian.AppendUint64(k.elementBuf[:0], id)
	return k.elementBuf
}

// elementKey returns the key of an element row.
func (k *rowKeys) elementKey(id uint64, kind byte, name []byte) []byte {
	k.elementBuf = append(k.header(id), kind)
	k.elementBuf = append(k.elementBuf, name...)
	return k.elementBuf
}

// listKey returns the element key of position pos, from 0 at the head.
func (k *rowKeys) listKey(row *Row, pos int64) []byte {
	k.elementBuf = append(k.header(row.ID), listKind)
	k.elementBuf = binary.BigEndian.AppendUint64(k.elementBuf, uint64(row.Head+pos)^1<<63)
	return k.elementBuf
}

// scoreKey returns the key of the row of a sorted set that is ordered by score.
func (k *rowKeys) scoreKey(id uint64, score float64, member []byte) []byte {
	k.elementBuf = append(k.header(id), scoreKind)
	k.elementBuf = binary.BigEndian.AppendUint64(k.elementBuf, sortable(score))
	k.elementBuf = append(k.elementBuf, member...)
	return k.elementBuf
}
