package btree

import "github.com/ebbkv/ebb/pager"

// Reader is what a tree needs of its surroundings to be read.
type Reader interface {
	// PageSize is the same for all pages.
	PageSize() int
	// Page returns the page that ref names, checked against checksum, pgid, epoch and CheckPage
	// when it was first read from the file. The bytes are read-only. They stay as they are until
	// the transaction ends, except that a page which Owned reports is changed in place by this very
	// transaction.
	Page(ref pager.Ref) ([]byte, error)
	// Leaf is Page of a leaf, but that one which is kept as an older page and a patch is given as
	// these two: changes is nil if it is not. See Merge for what they mean. They stay as a page
	// does.
	Leaf(ref pager.Ref) (b, changes []byte, err error)
	// Peek returns the first n bytes of the page that ref names, where they are in memory, or nil.
	// Nothing is checked: the bytes are good for a hint to the processor and not to be looked at.
	Peek(ref pager.Ref, n int) []byte
	// ReadsAhead reports whether ReadAhead does anything now.
	ReadsAhead() bool
	// ReadAhead has pages read that a walk is going to look at, in this order. It is a hint.
	ReadAhead(refs []pager.Ref)
	// Extent returns the size value bytes of the overflow extent at ref, valid until the
	// transaction ends.
	Extent(ref pager.Ref, size int) ([]byte, error)
}

// Writer is what a tree needs of its surroundings to be changed. Nothing that an earlier
// transaction, or an earlier savepoint of this one, can reach is ever changed in place, but for
// what Undo allows and keeps.
type Writer interface {
	Reader
	// PrefetchSlot asks the processor for what Near and Leaf look at to find the page that ref
	// names. It is a hint.
	PrefetchSlot(ref pager.Ref)
	// ReadSoon has a page read that is going to be looked at, if it is in the file. It is a hint.
	ReadSoon(ref pager.Ref)
	// Owned says whether this transaction may change the page in place.
	Owned(ref pager.Ref) bool
	// Edit returns a page with ref's content that may be changed in place until the next savepoint:
	// ref itself if owned, else a copy with a new reference (ref is freed). The header's pgid and
	// epoch are set.
	Edit(ref pager.Ref) (pager.Ref, []byte, error)
	// Cold says that a page is not owned, and in the file only, where nobody has looked at it. Edit
	// reads it to where it is changed: who looks at it before has it in memory twice.
	Cold(ref pager.Ref) bool
	// ReadForUpdate is Page of a leaf that is Unmet, for who is likely to edit it. The bytes stay
	// until the next draft.
	ReadForUpdate(ref pager.Ref) ([]byte, error)
	// EditRead is Edit of a page of which draft is the content.
	EditRead(ref pager.Ref, draft []byte) (pager.Ref, []byte, error)
	// CanDelta says that a leaf may be changed by a patch of up to most bytes; 0: not.
	CanDelta(ref pager.Ref) (most int)
	// DeltaBase returns the page that a patch of a leaf which is Patchable changes, and the changes
	// that it has; nil for none.
	DeltaBase(ref pager.Ref) (base pager.Ref, b, changes []byte, err error)
	// StoreDelta is Edit of a leaf that is Patchable, and whose Base that is, with changes in the
	// place of those that it has.
	StoreDelta(ref, base pager.Ref, changes []byte) (pager.Ref, error)
	// NewDelta returns another page that changes the base: the other half of a leaf that is split.
	NewDelta(base pager.Ref, changes []byte) (pager.Ref, error)
	// Reassign is Edit of a page that nobody is going to change, at less cost, if no file holds it
	// yet: a page with the same content and another number. done is false, and nothing has
	// happened, if it is no such page.
	Reassign(ref pager.Ref) (fresh pager.Ref, done bool, err error)
	// Undo is where to keep what is overwritten in pages of earlier transactions that nobody else
	// reads now; nil if there are none, or if they are to be copied.
	Undo() *pager.UndoWriter
	// New returns an owned page with the header set, count 0, and the payload zeroed.
	New(kind pager.Kind, level uint8) (pager.Ref, []byte, error)
	// Free gives a page back; it stays readable for whoever can still reach it.
	Free(ref pager.Ref) error
	// NewExtent stores value in a new overflow extent.
	NewExtent(value []byte) (pager.Ref, error)
	// FreeExtent gives back the extent of a value of size bytes.
	FreeExtent(ref pager.Ref, size int) error
}

// Allocator is what a Builder needs of its surroundings: pages that it fills and does not look at
// again. A Writer is one.
type Allocator interface {
	// PageSize is the same for all pages.
	PageSize() int
	// New returns a page with the header set and count 0; what is behind the header is unknown. It
	// is filled by the time that the next one is asked for, or Finish returns, and may be written
	// then.
	New(kind pager.Kind, level uint8) (pager.Ref, []byte, error)
	// NewExtent stores value in a new overflow extent.
	NewExtent(value []byte) (pager.Ref, error)
}
