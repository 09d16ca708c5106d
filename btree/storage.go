package btree

import "github.com/ebbkv/ebb/pager"

// Reader gives read access to the pages of a tree.
type Reader interface {
	// PageSize is the same for all pages.
	PageSize() int
	// Page returns the page that ref names, verified against checksum, pgid, epoch and CheckPage at
	// its first read from the file. The bytes are read-only. They stay unchanged until the
	// transaction ends, except that this transaction changes pages that Owned reports in place.
	Page(ref pager.Ref) ([]byte, error)
	// Leaf is Page of a leaf. A leaf with a delta is returned as its base and its changes, see
	// ApplyDelta; otherwise changes is nil. Both stay valid as a page does.
	Leaf(ref pager.Ref) (b, changes []byte, err error)
	// Peek returns the first n bytes of the page that ref names, if they are in memory, or nil.
	// They are not verified: callers may prefetch them, but not read them.
	Peek(ref pager.Ref, n int) []byte
	// ReadsAhead reports whether ReadAhead does anything now.
	ReadsAhead() bool
	// ReadAhead requests a read of these pages, in the order in which a walk will read them. It is
	// a hint.
	ReadAhead(refs []pager.Ref)
	// Extent returns the size value bytes of the overflow extent at ref, valid until the
	// transaction ends.
	Extent(ref pager.Ref, size int) ([]byte, error)
}

// BatchReader is a Reader for batches of lookups.
type BatchReader interface {
	Reader
	// PrefetchSlot prefetches the page table entry that Peek and Leaf read for ref. It is a hint.
	PrefetchSlot(ref pager.Ref)
	// ReadSoon requests a read of a page, if it is in the file. It is a hint.
	ReadSoon(ref pager.Ref)
}

// Writer gives write access to the pages of a tree. Pages that an earlier transaction, or an
// earlier savepoint of this one, can reach are never changed in place, except as Undo allows and
// records.
type Writer interface {
	BatchReader
	// Owned reports whether this transaction may change the page in place.
	Owned(ref pager.Ref) bool
	// Edit returns a page with ref's content that may be changed in place until the next savepoint:
	// ref itself if owned, else a copy with a new reference (ref is freed). The header's pgid and
	// epoch are set.
	Edit(ref pager.Ref) (pager.Ref, []byte, error)
	// Cold reports whether a page is not owned, and in the file but not in memory. Edit reads such
	// a page straight into its copy; after a Page call memory would hold it twice.
	Cold(ref pager.Ref) bool
	// ReadForUpdate is Page of a Cold leaf, for callers that are likely to edit it. The bytes stay
	// valid until the next call.
	ReadForUpdate(ref pager.Ref) ([]byte, error)
	// EditRead is Edit of a page that ReadForUpdate returned as read.
	EditRead(ref pager.Ref, read []byte) (pager.Ref, []byte, error)
	// CanDelta returns the size limit of a delta of a leaf; 0: the leaf can have none.
	CanDelta(ref pager.Ref) (most int)
	// DeltaBase returns the base of a delta of a CanDelta leaf, and the changes that the leaf has;
	// nil for none.
	DeltaBase(ref pager.Ref) (base pager.Ref, b, changes []byte, err error)
	// StoreDelta is Edit of a CanDelta leaf with that base. changes replace those that the leaf
	// has.
	StoreDelta(ref, base pager.Ref, changes []byte) (pager.Ref, error)
	// NewDelta returns a new page with changes to base: the other half of a split leaf.
	NewDelta(base pager.Ref, changes []byte) (pager.Ref, error)
	// Reassign is a cheaper Edit of a page that will not change and that no file holds yet: it
	// gives the content another page number. done is false, and nothing has happened, for other
	// pages.
	Reassign(ref pager.Ref) (fresh pager.Ref, done bool, err error)
	// Undo returns the undo writer for pages of earlier transactions that no reader needs now; nil
	// if there are none, or if such pages must be copied.
	Undo() *pager.UndoWriter
	// New returns an owned page with the header set, count 0, and the payload zeroed.
	New(kind pager.Kind, level uint8) (pager.Ref, []byte, error)
	// Free frees a page; readers that can still reach it may read it.
	Free(ref pager.Ref) error
	// NewExtent stores value in a new overflow extent.
	NewExtent(value []byte) (pager.Ref, error)
	// FreeExtent frees the extent of a value of size bytes.
	FreeExtent(ref pager.Ref, size int) error
}

// Allocator gives a Builder pages that it fills and does not read again. A Writer is one.
type Allocator interface {
	// PageSize is the same for all pages.
	PageSize() int
	// New returns a page with the header set and count 0; its content after the header is
	// undefined. The caller fills it before it calls New again, or Finish returns; the page may be
	// written then.
	New(kind pager.Kind, level uint8) (pager.Ref, []byte, error)
	// NewExtent stores value in a new overflow extent.
	NewExtent(value []byte) (pager.Ref, error)
}
