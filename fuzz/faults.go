package fuzz

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// A fault kind is one way in which calls of the disk fail.
type faultKind struct {
	name  string
	fault crashfs.Fault // without N and Sticky
}

// spell is the inverse of parseFault.
func (k faultKind) spell(n int, sticky bool) string {
	text := k.name + " " + strconv.Itoa(n)
	if sticky {
		text += " sticky"
	}
	return text
}

// errStopped is the error of a write that falls short.
var errStopped = errors.New("fuzz: write stopped half-way")

// spaceKinds are the calls that a full disk may refuse.
const spaceKinds = crashfs.KindWrite | crashfs.KindTruncate | crashfs.KindCreate | crashfs.KindReserve

// faultKinds are all errors that a disk may answer with, by the calls that may get them.
var faultKinds = []faultKind{
	{"read", crashfs.Fault{Kinds: crashfs.KindRead}},
	{"write", crashfs.Fault{Kinds: crashfs.KindWrite}},
	{"short", crashfs.Fault{Kinds: crashfs.KindWrite, Do: crashfs.Short}},
	{"short-error", crashfs.Fault{Kinds: crashfs.KindWrite, Do: crashfs.Short, Err: errStopped}},
	{"zero", crashfs.Fault{Kinds: crashfs.KindWrite, Do: crashfs.Zero}},
	{
		"space",
		crashfs.Fault{Kinds: spaceKinds, Err: vfs.ErrNoSpace},
	},
	{"truncate", crashfs.Fault{Kinds: crashfs.KindTruncate}},
	{"sync", crashfs.Fault{Kinds: crashfs.KindSyncs}},
	{"open", crashfs.Fault{Kinds: crashfs.KindOpen}},
	{"rename", crashfs.Fault{Kinds: crashfs.KindRename}},
	{"remove", crashfs.Fault{Kinds: crashfs.KindRemove}},
	{"list", crashfs.Fault{Kinds: crashfs.KindList}},
	{"stat", crashfs.Fault{Kinds: crashfs.KindStat | crashfs.KindSize}},
	{"writeback", crashfs.Fault{Kinds: crashfs.KindWriteBack}},
	{"close", crashfs.Fault{Kinds: crashfs.KindClose}},
	{"rofs", crashfs.Fault{Kinds: crashfs.KindChanges, Err: crashfs.ErrReadOnly}},
	{"gate", crashfs.Fault{Kinds: crashfs.KindSyncs, Do: crashfs.Gate}},
}

// parseFault reads "KIND N" and "KIND N sticky".
func parseFault(text string) (crashfs.Fault, error) {
	words := strings.Fields(text)
	for _, k := range faultKinds {
		if len(words) < 2 || k.name != words[0] {
			continue
		}
		n, err := strconv.Atoi(words[1])
		f := k.fault
		f.N, f.Sticky = n, len(words) > 2
		return f, err
	}
	return crashfs.Fault{}, fmt.Errorf("fault %q is not known", text)
}

// faulty runs the workload on a disk with a fault, and judges how the engine takes it: what the
// errors say, that readers go on, that a failed store writes nothing more, that one which did not
// fail works again when the fault is over, and what the store holds when it is opened again in the
// same boot. fired says whether the fault happened.
func (r *Run) faulty(f crashfs.Fault) (fired bool, err error) {
	in := r.Disk.Inject(f)
	r.fault = &f
	defer r.abandon()
	if err := r.survive(in, r.base); err != nil {
		return in.Fired() > 0, fmt.Errorf("base: %w", err)
	}
	for i, op := range r.Workload.Ops {
		if r.failedFor != nil {
			break
		}
		if err := r.survive(in, func() error { return r.apply(op) }); err != nil {
			return in.Fired() > 0, fmt.Errorf("operation %d, %s: %w", i, op, err)
		}
	}
	if r.failedFor == nil && r.db != nil {
		if err := r.survive(in, r.close); err != nil {
			return in.Fired() > 0, fmt.Errorf("close: %w", err)
		}
	}
	in.Disarm()
	if in.Fired() > 0 {
		return true, r.reopen()
	}
	return false, nil
}

// survive runs a part of the workload. An error that the fault made is judged; if the store stands,
// the part is run once more when the fault is over.
func (r *Run) survive(in *crashfs.Injection, part func() error) error {
	fired := in.Fired()
	err := part()
	if err == nil {
		return nil
	}
	if in.Fired() == 0 {
		return err
	}
	if err := r.judgeError(err); err != nil {
		return err
	}
	defer func() { r.attempt = nil }()
	r.noteFate(err)
	r.attempt = nil // The second try is another commit.
	if r.db == nil {
		in.Disarm()
		r.failedFor = err // Closing or opening failed. What it left is judged by opening again.
		return nil
	}
	if errors.Is(err, kv.ErrFailed) || errors.Is(err, kv.ErrCommitUnknown) ||
		errors.Is(err, kv.ErrFileReplaced) {
		r.failedFor = err
		return r.judgeFailed()
	}
	if r.fault.Do == crashfs.Gate {
		return wrong("a sync failed, and the store goes on: %v", err)
	}
	in.Disarm()
	if fired == in.Fired() {
		return wrong("nothing failed, but: %v", err)
	}
	if err := r.judgeReads(); err != nil {
		return err
	}
	if err := part(); err != nil {
		if errors.Is(err, kv.ErrFailed) && errors.Is(err, r.cause()) {
			if r.failedFor = err; r.db == nil { // as above
				return nil
			}
			return r.judgeFailed()
		}
		return fmt.Errorf("once the fault was over: %w", err)
	}
	return nil
}

// cause is the error that the fault gives.
func (r *Run) cause() error {
	switch {
	case r.fault.Err != nil:
		return r.fault.Err
	case r.fault.Do == crashfs.Zero || r.fault.Do == crashfs.Short:
		return errAny
	}
	return crashfs.ErrIO
}

// errAny stands for a cause that the engine finds words for itself.
var errAny = errors.New("any")

// judgeError says what is wrong with an error that the fault led to.
func (r *Run) judgeError(err error) error {
	switch {
	case errors.Is(err, errWrong):
		return err
	case errors.Is(err, kv.ErrCorrupt):
		return wrong("a failing disk is taken for damage: %v", err)
	case errors.Is(err, kv.ErrNotFound) && !errors.Is(r.cause(), kv.ErrNotFound):
		return wrong("a failing disk is taken for an absent key: %v", err)
	case r.cause() != errAny && !errors.Is(err, r.cause()):
		return wrong("the error does not tell its cause: %v", err)
	case errors.Is(r.cause(), vfs.ErrNoSpace) && !errors.Is(err, kv.ErrNoSpace):
		return wrong("a full disk is not ErrNoSpace: %v", err)
	}
	return nil
}

// noteFate takes note of what an error says about the commit in flight: P6.
func (r *Run) noteFate(err error) {
	if r.attempt == nil {
		return
	}
	next := uint64(len(r.States))
	if errors.Is(err, kv.ErrCommitUnknown) {
		r.unknown = r.attempt
		return
	}
	r.settle(0, next-1)
}

// judgeFailed looks at a store that takes no more writes: it says so, shows a right state, and
// writes nothing more.
func (r *Run) judgeFailed() error {
	written := r.Disk.Len()
	if err := r.db.Update(func(tx *kv.Tx) error { return tx.Put([]byte("k"), []byte("v")) }); !errors.Is(
		err,
		kv.ErrFailed,
	) {
		return wrong("a write after the failure gives %v", err)
	}
	if err := r.db.Sync(); !errors.Is(err, kv.ErrFailed) {
		return wrong("Sync after the failure gives %v", err)
	}
	if err := r.judgeReads(); err != nil {
		return err
	}
	if err := r.release(); err != nil {
		return err
	}
	db := r.db
	r.db = nil
	_ = db.Close() // It may say again what failed.
	if err := db.Close(); err != nil {
		return wrong("the second Close gives %v", err)
	}
	if r.Disk.Len() != written {
		trace := r.Disk.Trace()
		return wrong("a failed store wrote: %s", trace[written].String())
	}
	return nil
}

// judgeReads reads everything: every acknowledged commit is there, and nothing that was rolled
// back.
func (r *Run) judgeReads() error {
	back := r.clock.ms
	// The store follows the clock back to its time, and so does the model: Close may store that mark.
	defer func() { _ = r.moveClock(back) }()
	r.clock.ms = longAgo // What is stored, whatever has expired.
	r.clock.read()
	got, err := readContents(r.db)
	if err != nil {
		if r.fault.Kinds&crashfs.KindRead != 0 {
			return nil // The disk cannot be read: no matter of the writer.
		}
		return wrong("reading after a failure: %v", err)
	}
	// A durable commit that shares its fate with a relaxed one before it is shown only when it is
	// certain.
	lo, hi := r.newest(), r.newest()
	if r.failedFor != nil {
		lo = r.acked
	}
	if got.seq < lo || got.seq > hi || got.hash != r.States[got.seq].Stored {
		return wrong("after a failure readers see commit %d, want %d to %d", got.seq, lo, hi)
	}
	return nil
}

// reopen opens the store in the same boot. What it shows must be right, and stays: P1, P2, P6, and
// F8.
func (r *Run) reopen() error {
	r.Disk.SetPhase("reopen")
	r.reopenedAt = r.Disk.Len()
	lo, hi := r.newest(), r.newest()
	if r.fault.Do == crashfs.Gate {
		lo = r.acked
	}
	if r.unknown != nil {
		hi++
		r.States = append(r.States[:hi:hi], r.unknown.state())
	}
	lo, hi = max(lo, 1), max(hi, 1)
	if len(r.States) == 1 {
		r.States = append(r.States, newModel().state())
	}
	r.sessions++
	db, err := r.config.open(r.Disk, r.sessions+1000)
	if err != nil {
		return wrong("opening again: %v", err)
	}
	got, err := readContents(db)
	if r.acked > 0 && db.RecoveryInfo().Created {
		err = wrong("%v", errVanished)
	}
	if err == nil && (got.seq < lo || got.seq > hi || got.hash != r.States[got.seq].Stored) {
		err = wrong("opened again, the store holds commit %d, want %d to %d", got.seq, lo, hi)
	}
	if err == nil {
		err = sound(db)
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	r.settle(got.seq, got.seq)
	if err := db.Close(); err != nil {
		return wrong("closing what was opened again: %v", err)
	}
	if names := storeFiles(r.Disk); len(names) != 1 {
		return wrong("after the second Close there are %v", names)
	}
	return nil
}
