package cf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/txn"
)

// ErrVersion is returned for a catalog entry that a newer program wrote.
var ErrVersion = errors.New("cf: catalog entry of an unknown version")

// Catalog entry. The key is the family name, the value is this; integers are little-endian.
//
//	0         1       2          8          16            24             32             40
//	+---------+-------+----------+----------+-------------+--------------+--------------+
//	| version | flags | reserved | base     | default ttl | retention    | partition    |
//	| u8 = 1  | u8    | 6 bytes  | u64      | i64, ms     | i64, ms      | i64, ms      |
//	+---------+-------+----------+----------+-------------+--------------+--------------+
//
// base is the first of the family's four tree numbers. flags and reserved must be zero. No duration
// is negative, and retention and partition are both zero or both not. Golden bytes:
// testdata/entry.hex.
const (
	entryVersion = 1

	offVersion    = 0
	offFlags      = 1
	offReserved   = 2
	offBase       = 8
	offDefaultTTL = 16
	offRetention  = 24
	offPartition  = 32
	entrySize     = 40
)

// appendEntry appends the stored form of a family, without its name.
func appendEntry(b []byte, f *Family) []byte {
	le := binary.LittleEndian
	b = append(b, entryVersion, 0, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint64(b, uint64(f.Base))
	b = le.AppendUint64(b, uint64(f.Options.DefaultTTLMs))
	b = le.AppendUint64(b, uint64(f.Options.RetentionMs))
	return le.AppendUint64(b, uint64(f.Options.PartitionMs))
}

// DecodeEntry decodes a row of the catalog. Its errors are those of Lookup.
func DecodeEntry(key, value []byte) (*Family, error) { return decodeEntry(string(key), value) }

// decodeEntry verifies every field of the layout above before it returns. Its errors are
// *badfile.Error, except ErrVersion for an entry of a later version.
func decodeEntry(name string, b []byte) (*Family, error) {
	if len(b) > 0 && b[offVersion] > entryVersion {
		return nil, fmt.Errorf("%w: family %q has %d, known is %d", ErrVersion, name, b[offVersion],
			entryVersion)
	}
	bad := func(format string, args ...any) (*Family, error) {
		return nil, badfile.At("", -1, "catalog: family %q: %s", name, fmt.Sprintf(format, args...))
	}
	if err := CheckName(name); err != nil {
		return bad("name is not allowed")
	}
	if len(b) != entrySize {
		return bad("entry of %d bytes, expected %d", len(b), entrySize)
	}
	if b[offVersion] != entryVersion {
		return bad("version %d, expected %d", b[offVersion], entryVersion)
	}
	for i := offFlags; i < offBase; i++ {
		if b[i] != 0 {
			return bad("byte %d is %d, expected 0", i, b[i])
		}
	}
	le := binary.LittleEndian
	f := &Family{Name: name, Base: txn.TreeID(le.Uint64(b[offBase:])), Options: Options{
		DefaultTTLMs: int64(le.Uint64(b[offDefaultTTL:])),
		RetentionMs:  int64(le.Uint64(b[offRetention:])),
		PartitionMs:  int64(le.Uint64(b[offPartition:])),
	}}
	if f.Base <= txn.CatalogTree || f.Base+treesPerFamily < f.Base {
		return bad("base tree %d", f.Base)
	}
	if err := f.Options.check(); err != nil {
		return bad("%v", err)
	}
	return f, nil
}

// check returns an error that names the invalid setting, or nil.
func (o Options) check() error {
	for _, d := range [...]struct {
		name string
		ms   int64
	}{{"default ttl", o.DefaultTTLMs}, {"retention", o.RetentionMs}, {"partition", o.PartitionMs}} {
		if d.ms < 0 {
			return fmt.Errorf("%w: %s of %d ms", ErrOptions, d.name, d.ms)
		}
	}
	if (o.RetentionMs == 0) != (o.PartitionMs == 0) {
		return fmt.Errorf("%w: retention of %d ms with partitions of %d ms", ErrOptions,
			o.RetentionMs, o.PartitionMs)
	}
	return nil
}
