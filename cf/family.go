package cf

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ebbkv/ebb/txn"
)

// MaxName is the longest family name in bytes.
const MaxName = 200

// Default is the family that every store has.
const Default = "default"

// reserved is the prefix of names that belong to the engine.
const reserved = "__"

// treesPerFamily is the number of consecutive tree numbers of a family: data, key index, expiry
// index and metadata.
const treesPerFamily = 4

// Options are the stored settings of a family, all in milliseconds. Zero means none.
type Options struct {
	DefaultTTLMs int64 // ttl of a key from a plain put
	RetentionMs  int64 // lifetime of rows in a time-partitioned family
	PartitionMs  int64 // time that one of its trees covers
}

// A Family is one entry of the catalog in the snapshot of one transaction. It is immutable once
// returned, so goroutines may share it.
//
//	(1) Base is the first of treesPerFamily tree numbers that no other family has or ever had.
//	(2) the data tree exists as long as the entry does; the other trees are created on demand.
//
// A Base of zero means a family without any tree: the default family of a store that was opened
// read-only before its first commit. It is empty.
type Family struct {
	Name    string
	Base    txn.TreeID
	Options Options
}

// Data is the tree of user keys and values.
func (f *Family) Data() txn.TreeID { return f.Base }

// KeyIndex is the tree from user key to expiry; it need not exist.
func (f *Family) KeyIndex() txn.TreeID { return f.Base + 1 }

// ExpiryIndex is the tree from expiry and user key to nothing; it need not exist.
func (f *Family) ExpiryIndex() txn.TreeID { return f.Base + 2 }

// NoTrees says that the family has no tree, and so no rows.
func (f *Family) NoTrees() bool { return f.Base == 0 }

// Role returns the role of tree id in the family: "data", "key index", "expiry index", "metadata",
// or "" for a tree of another family.
func (f *Family) Role(id txn.TreeID) string {
	if f.NoTrees() || id < f.Base || id-f.Base >= treesPerFamily {
		return ""
	}
	return [treesPerFamily]string{"data", "key index", "expiry index", "metadata"}[id-f.Base]
}

// CheckName returns nil if name may name a family: 1 to MaxName bytes of UTF-8 without NUL (else
// ErrName), not starting with two underscores (else ErrReserved).
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrName)
	case len(name) > MaxName:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrName, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: not UTF-8", ErrName)
	case strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("%w: it holds a NUL byte", ErrName)
	case strings.HasPrefix(name, reserved):
		return fmt.Errorf("%w: %q", ErrReserved, name)
	}
	return nil
}
