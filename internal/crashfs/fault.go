package crashfs

import "errors"

// ErrIO is the error of faults that name none. ErrReadOnly is what changes of a read-only disk
// give.
var (
	ErrIO       = errors.New("crashfs: input/output error")
	ErrReadOnly = errors.New("crashfs: read-only file system")
)

// Action is what a Fault does to the operation it picks.
type Action uint8

// The actions. Early, Swap and EarlyUnlink only move entries within the trace; the caller sees
// nothing of them.
const (
	Fail  Action = iota // nothing happens but the error (Close closes)
	Short               // a write writes about half, and returns that count with Err, which may be nil
	Zero                // a write writes nothing and returns 0 with Err, which may be nil
	// a sync fails; what was pending stays readable but never persists; the next sync succeeds
	Gate
	Swallow     // Gate, but the caller gets nil: an engine that ignores this error
	Ignore      // a sync does nothing and returns nil: an engine without this sync
	Early       // a sync took place before the changes that it makes durable
	Swap        // a write took place before the write that directly precedes it
	Drop        // a write does nothing and claims success
	EarlyUnlink // a removal took place before the sync that precedes it
)

// applies is the set of kinds that an action can do something to.
func (a Action) applies() Kind {
	switch a {
	case Short, Zero, Swap, Drop:
		return KindWrite
	case Gate, Swallow, Ignore, Early:
		return KindSyncs
	case EarlyUnlink:
		return KindRemove
	}
	return KindAll
}

// Fault picks operations and says what happens to them. The zero Fault fails the next operation of
// any kind.
type Fault struct {
	Do     Action
	Kinds  Kind   // which kinds count; 0 is all that Do applies to
	Site   string // which calling site counts, as Op.Site and Sites spell it; "" is any
	Phase  string // which phase counts; "" is any
	N      int    // how many operations that count pass before the fault
	Sticky bool   // all later ones that count, too
	Err    error  // nil is ErrIO where Do needs an error
}

// Injection is a Fault that was armed.
type Injection struct {
	fault Fault
	d     *Disk
	seen  int // guarded by d.mu, as fired
	fired int
	off   bool
}

// Inject arms f. Several faults may be armed; the one armed first goes first.
func (d *Disk) Inject(f Fault) *Injection {
	if f.Kinds == 0 {
		f.Kinds = KindAll
	}
	f.Kinds &= f.Do.applies()
	in := &Injection{fault: f, d: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append(d.faults, in)
	d.siteFaults = d.siteFaults || f.Site != ""
	return in
}

// Fired reports how many operations were hit so far.
func (in *Injection) Fired() int {
	in.d.mu.Lock()
	defer in.d.mu.Unlock()
	return in.fired
}

// Seen reports how many operations counted so far, hit or not.
func (in *Injection) Seen() int {
	in.d.mu.Lock()
	defer in.d.mu.Unlock()
	return in.seen
}

// Disarm ends the fault.
func (in *Injection) Disarm() {
	in.d.mu.Lock()
	defer in.d.mu.Unlock()
	in.off = true
}

func (in *Injection) err() error {
	if in.fault.Err != nil {
		return in.fault.Err
	}
	return ErrIO
}

// began counts an operation and gives the fault that hits it, or nil. Called with d.mu held.
func (d *Disk) began(kinds Kind, s *site) *Injection {
	d.ops++
	for i := range d.counts {
		if kinds&(1<<i) != 0 {
			d.counts[i]++
		}
	}
	var hit *Injection
	for _, in := range d.faults {
		f := &in.fault
		if in.off || f.Kinds&kinds == 0 || f.Phase != "" && f.Phase != d.phase {
			continue
		}
		if f.Site != "" && (s == nil || f.Site != s.id(f.Kinds&kinds)) {
			continue
		}
		n := in.seen
		in.seen++
		if hit == nil && (n == f.N || f.Sticky && n > f.N) {
			in.fired++
			hit = in
		}
	}
	return hit
}

// Ops is how many operations of any kind the disk has seen.
func (d *Disk) Ops() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ops
}

// Count is how many operations of the given kinds the disk has seen; one of two kinds counts twice.
func (d *Disk) Count(kinds Kind) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for i, c := range d.counts {
		if kinds&(1<<i) != 0 {
			n += c
		}
	}
	return n
}
