package keyspace

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// ErrBadDump is returned by Restore for bytes that Dump has not made.
var ErrBadDump = errors.New("keyspace: not a dump of this server")

// Layout of a dump:
//
//	0   4  "EBB1"
//	4      master row, with its length before it (4)
//	.      element rows: length of the key behind the id (4), key, length of the value (4), value,
//	       expiry (8), 0: permanent
//	-4  4  CRC-32C of all before
const dumpMagic = "EBB1"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendBytes(b, part []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(part))), part...)
}

// Dump returns a present key as bytes, without its expiry.
func (s *Space) Dump(row *Row) ([]byte, error) {
	b := appendBytes([]byte(dumpMagic), appendRow(nil, row))
	if row.Type != TypeString {
		c := s.elements().CursorIn(kv.ScanOptions{Prefix: append([]byte(nil), s.header(row.ID)...)})
		for ok := c.First(); ok; ok = c.Next() {
			if len(c.Key()) == 8 {
				continue // the header row
			}
			b = appendBytes(appendBytes(b, c.Key()[8:]), c.Value())
			expiry := uint64(0)
			if at, ok := c.Expiry(); ok {
				expiry = uint64(at.UnixMilli())
			}
			b = binary.BigEndian.AppendUint64(b, expiry)
		}
		if err := c.Err(); err != nil {
			return nil, err
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// dumpReader takes parts from the front of a dump.
type dumpReader struct {
	rest []byte
	bad  bool
}

func (d *dumpReader) take(n int) []byte {
	if n < 0 || n > len(d.rest) {
		d.bad = true
		return make([]byte, min(max(n, 0), 8))
	}
	part := d.rest[:n]
	d.rest = d.rest[n:]
	return part
}

func (d *dumpReader) bytes() []byte {
	n := int(binary.BigEndian.Uint32(d.take(4)))
	if n > len(d.rest) {
		d.bad = true
		return nil
	}
	return d.take(n)
}

// Restore makes key of a dump, where target was. Fields of a hash whose expiry has come are left
// out.
func (s *Space) Restore(key, dump []byte, target *Row, expiry int64) error {
	if len(dump) < len(dumpMagic)+4 || string(dump[:len(dumpMagic)]) != dumpMagic {
		return ErrBadDump
	}
	end := len(dump) - 4
	if crc32.Checksum(dump[:end], castagnoli) != binary.BigEndian.Uint32(dump[end:]) {
		return ErrBadDump
	}
	d := &dumpReader{rest: dump[len(dumpMagic):end]}
	row, err := decodeRow(d.bytes())
	if err != nil || d.bad {
		return ErrBadDump
	}
	if row.Type == TypeString {
		return s.SetString(key, row.Value, target, expiry)
	}
	if target.Type != 0 {
		if err := s.Delete(key, target); err != nil {
			return err
		}
	}
	made, err := s.create(key, row.Type)
	if err != nil {
		return err
	}
	row.ID, row.unsaved = made.ID, true
	if row.fieldMax > 0 {
		row.userExpiry, row.inexact = expiry, true
	}
	if err := restoreElements(s, d, &row); err != nil {
		return err
	}
	if err := s.Save(key, &row); err != nil || row.unsaved || row.fieldMax > 0 || expiry == 0 {
		return err
	}
	return s.SetExpiry(key, &row, expiry)
}

// restoreElements puts the element rows. Their number is checked against the master row.
func restoreElements(s *Space, d *dumpReader, row *Row) error {
	n := int64(0)
	for len(d.rest) > 0 {
		name, value := d.bytes(), d.bytes()
		expiry := int64(binary.BigEndian.Uint64(d.take(8)))
		if d.bad || len(name) == 0 || expiry < 0 || expiry > 0 && row.Type != TypeHash {
			return ErrBadDump
		}
		o := kv.PutOptions{}
		switch {
		case expiry > 0 && expiry <= s.Now:
			continue
		case expiry > 0:
			o.ExpireAt = time.UnixMilli(expiry)
		case name[0] != scoreKind:
			n++
		}
		if _, err := s.changing(s.elements()).PutWith(append(s.header(row.ID), name...), value,
			o); err != nil {
			return err
		}
	}
	if n != row.Count {
		return ErrBadDump
	}
	return nil
}
