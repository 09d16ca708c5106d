package crashfs

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is a set of kinds of operations. An entry of a trace has one; an operation that a Fault may
// pick can have two
// (an Open that creates; a write to a Direct file).
type Kind uint32

// The kinds. Those up to Rename are what a trace holds.
const (
	KindWrite    Kind = 1 << iota
	KindTruncate      // also growth
	KindSync
	KindSyncData
	KindSyncDir
	// in a trace: the data of the write before it becomes durable; in a Fault: a write to a Direct
	// file
	KindDirect
	KindCreate
	KindRemove
	KindRename
	KindOpen
	KindRead
	KindSize // Size and ID of an open file
	KindStat
	KindList
	KindLock
	KindClose
	KindWriteBack
	KindPunch // in a trace, like those up to Rename
	KindReserve

	KindSyncs   = KindSync | KindSyncData | KindSyncDir | KindDirect
	KindChanges = KindWrite | KindTruncate | KindSyncs | KindCreate | KindRemove | KindRename |
		KindPunch | KindReserve
	KindAll = KindReserve<<1 - 1
)

var kindNames = []string{
	"write", "truncate", "sync", "syncdata", "syncdir", "direct", "create", "remove", "rename",
	"open", "read", "size", "stat", "list", "lock", "close", "writeback",
	"punch", "reserve",
}

// String names the kinds, joined by "|".
func (k Kind) String() string {
	var names []string
	for i, name := range kindNames {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// Outcome is what became of an entry of the trace. Only syncs have others than Done.
type Outcome uint8

// The outcomes. After Failed the pending data may still persist; after Dropped it never does.
const (
	Done Outcome = iota
	Failed
	Dropped
	Ignored
)

// Op is one entry of a trace: a call that changed the disk or asked for durability.
type Op struct {
	Kind    Kind
	Outcome Outcome
	Ino     int    // of the file; 0 for SyncDir
	Name    string // as cleaned; for a file, the name it was opened by
	NewName string // Rename
	Off     int64  // Write, Punch, Reserve
	Size    int64  // Truncate: the new size; Punch, Reserve: bytes from Off on
	Data    []byte // Write; never changes
	Phase   string
	Marks   Marks // before the call

	site *site
}

// Site is the id of the call outside this package and vfs, see Disk.Sites. Empty without one.
func (o *Op) Site() string {
	if o.site == nil {
		return ""
	}
	return o.site.id(o.Kind)
}

// String is one line for people.
func (o *Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", o.Kind, o.Name)
	switch o.Kind {
	case KindWrite:
		fmt.Fprintf(&b, " [%d,%d)", o.Off, o.Off+int64(len(o.Data)))
	case KindPunch, KindReserve:
		fmt.Fprintf(&b, " [%d,%d)", o.Off, o.Off+o.Size)
	case KindTruncate:
		fmt.Fprintf(&b, " to %d", o.Size)
	case KindRename:
		fmt.Fprintf(&b, " to %s", o.NewName)
	}
	if o.Outcome != Done {
		fmt.Fprintf(&b, " (%s)", []string{"", "failed", "dropped", "ignored"}[o.Outcome])
	}
	if id := o.Site(); id != "" {
		fmt.Fprintf(&b, " at %s", id)
	}
	if o.Phase != "" {
		fmt.Fprintf(&b, " in %s", o.Phase)
	}
	return b.String()
}

// Marks is how far the workload had come.
type Marks struct {
	Begun   uint64 // last commit that had started
	Acked   uint64 // last durable commit that had been acknowledged
	Relaxed uint64 // last commit of any kind that had been acknowledged; what a kill must keep
}

// Begun records that commit n starts now. Numbers only rise.
func (d *Disk) Begun(n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.marks.Begun = max(d.marks.Begun, n)
}

// Acked records that commit n, and all before it, was acknowledged as durable.
func (d *Disk) Acked(n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.marks.Acked = max(d.marks.Acked, n)
	d.marks.Relaxed = max(d.marks.Relaxed, n)
}

// AckedRelaxed records that commit n was acknowledged without the promise to survive a power cut.
func (d *Disk) AckedRelaxed(n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.marks.Relaxed = max(d.marks.Relaxed, n)
}

// SetPhase names what the workload does from now on; entries of the trace carry it.
func (d *Disk) SetPhase(phase string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.phase = phase
}

// Len is the number of entries in the trace, and the number of the newest crash point.
func (d *Disk) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.trace)
}

// Trace gives the trace so far. The caller must not change the data in it.
func (d *Disk) Trace() []Op {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.trace)
}

// Sites gives, sorted, the ids of the calls that asked for durability so far: Sync, SyncData and
// SyncDir as StaticSyncSites spells them, and writes to Direct files.
func (d *Disk) Sites() []string {
	var ids []string
	seen := map[*site]Kind{}
	trace := d.Trace()
	for i := range trace {
		op := &trace[i]
		if op.Kind&KindSyncs == 0 || op.site == nil || seen[op.site]&op.Kind != 0 {
			continue
		}
		seen[op.site] |= op.Kind
		ids = append(ids, op.Site())
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// record appends op to the trace. Called with d.mu held.
func (d *Disk) record(op Op) {
	if !d.opts.Untraced {
		op.Phase, op.Marks = d.phase, d.marks
		d.trace = append(d.trace, op)
	}
}

// recordBefore puts op at index i of the trace, as if the workload had done it then. Called with
// d.mu held.
func (d *Disk) recordBefore(i int, op Op) {
	if d.opts.Untraced {
		return
	}
	op.Phase = d.trace[i].Phase
	op.Marks = d.trace[i].Marks
	d.trace = slices.Insert(slices.Clip(d.trace), i, op)
}
