package btree

import "github.com/ebbkv/ebb/pager"

// Reader gives read access to the pages of a tree.
type Reader interface {
	// PageSize is the same for all pages.
	PageSize() int
	// Page returns the page that ref names, verified against checksum, pgid, epoch and CheckPage at
	// its first read from the file. The bytes are read-only. They stay unchanged until the
	// transaction ends, except that this transaction changes pages of its own in place.
	Page(ref pager.Ref) ([]byte, error)
	// Leaf is Page of a leaf. A leaf with a delta is returned as its base and its changes, see
	// ApplyDelta; otherwise changes is nil. Both stay valid as a page does.
	Leaf(ref pager.Ref) (b, changes []byte, err error)
	// Extent returns the size value bytes of the overflow extent at ref, valid until the
	// transaction ends.
	Extent(ref pager.Ref, size int) ([]byte, error)
	Hints
}

// Hints let a walk wait for memory and for the disk less often.
type Hints interface {
	// PrefetchSlot prefetches the page table entry that Peek and Leaf read for ref.
	PrefetchSlot(ref pager.Ref)
	// Peek returns the first n bytes of the page that ref names, if they are in memory, or nil.
	// They are not verified: callers may prefetch them, but not read them.
	Peek(ref pager.Ref, n int) []byte
	// ReadsAhead reports whether ReadAhead does anything now.
	ReadsAhead() bool
	// ReadAhead requests a read of these pages, in the order in which a walk will read them.
	ReadAhead(refs []pager.Ref)
	// ReadSoon requests a read of a page, if it is in the file.
	ReadSoon(ref pager.Ref)
}

// NoHints are the Hints of a Reader that has no memory to prefetch into.
type NoHints struct{}

func (NoHints) PrefetchSlot(pager.Ref)     {}
func (NoHints) Peek(pager.Ref, int) []byte { return nil }
func (NoHints) ReadsAhead() bool           { return false }
func (NoHints) ReadAhead([]pager.Ref)      {}
func (NoHints) ReadSoon(pager.Ref)         {}

// Writer gives write access to the pages of a tree. Pages that an earlier transaction, or an
// earlier savepoint of this one, can reach are never changed in place, except as Undo allows and
// records.
type Writer interface {
	Reader
	// Edit returns a page with ref's content that may be changed in place until the next savepoint:
	// ref itself if this transaction owns it, else a copy with a new reference (ref is freed). The
	// header's pgid and epoch are set. read is what ReadForUpdate has returned for ref, or nil.
	Edit(ref pager.Ref, read []byte) (pager.Ref, []byte, error)
	// Cold reports whether a page is of another transaction, and in the file but not in memory. Edit
	// reads such a page straight into its copy; after a Page call memory would hold it twice.
	Cold(ref pager.Ref) bool
	// ReadForUpdate is Page of a Cold leaf, for callers that are likely to edit it. The bytes stay
	// valid until the next call.
	ReadForUpdate(ref pager.Ref) ([]byte, error)
	// CanDelta returns the size limit of a delta of a leaf; 0: the leaf can have none.
	CanDelta(ref pager.Ref) (most int)
	// DeltaBase returns the base of a delta of a CanDelta leaf, and the changes that the leaf has;
	// nil for none.
	DeltaBase(ref pager.Ref) (base pager.Ref, b, changes []byte, err error)
	// StoreDelta is Edit of a CanDelta leaf with that base. changes replace those that the leaf
	// has. Without ref it returns a new page: the other half of a split leaf.
	StoreDelta(ref, base pager.Ref, changes []byte) (pager.Ref, error)
	// Undo returns the undo writer for pages of earlier transactions that no reader needs now; nil
	// if there are none, or if such pages must be copied.
	Undo() UndoWriter
	// New returns an owned page with the header set, count 0, and the payload zeroed.
	New(kind pager.Kind, level uint8) (pager.Ref, []byte, error)
	// Free frees a page; readers that can still reach it may read it.
	Free(ref pager.Ref) error
	// NewExtent stores value in a new overflow extent.
	NewExtent(value []byte) (pager.Ref, error)
	// FreeExtent frees the extent of a value of size bytes.
	FreeExtent(ref pager.Ref, size int) error
}

// A RelocateWriter is a Writer that can also move pages, for Relocate.
type RelocateWriter interface {
	Writer
	// Reassign is a cheaper Edit of a page that will not change and that no file holds yet: it
	// gives the content another page number. done is false, and nothing has happened, for other
	// pages.
	Reassign(ref pager.Ref) (fresh pager.Ref, done bool, err error)
	// MoveExtent gives the value of an extent another place, nearer to the start of the file. done is
	// false, and nothing has happened, if there is none.
	MoveExtent(ref pager.Ref, size int) (fresh pager.Ref, done bool, err error)
}

// An UndoWriter records what in-place changes overwrite: see pager.UndoWriter.
type UndoWriter interface {
	// Changeable reports whether a leaf may be changed in place, and Reachable whether a branch
	// above such a leaf may.
	Changeable(ref pager.Ref) bool
	Reachable(ref pager.Ref) bool
	// Lent reports whether child references of branches may be changed in place, too.
	Lent() bool
	// Enter begins an operation that Leave ends, or returns false. In between, Record and
	// RecordZeros precede each change of the bytes [from, to) of a page.
	Enter() bool
	Record(id pager.Pgid, from, to int)
	RecordZeros(id pager.Pgid, from, to int)
	Leave()
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
