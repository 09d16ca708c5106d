package fuzz

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ebbkv/ebb/pager"
)

// A closing is a Close that may change the clock mark of the newest commit: it stores what reads
// have used since. From its begin on images may hold that mark, and from its end on they must,
// unless it is never.
type closing struct {
	begin, end int // lengths of the trace
	seq        uint64
	state      State // of that commit, with the mark of the Close
}

// never is the end of a Close that failed, or need not store the mark.
const never = math.MaxInt

// marked gives the states of a commit that an image of a crash point may hold: they differ in their
// marks.
func (r *Run) marked(seq uint64, point int) []State {
	states := []State{r.States[seq]}
	for _, c := range r.closings {
		if c.seq != seq || point < c.begin {
			continue
		}
		if point >= c.end {
			states = states[:0]
		}
		states = append(states, c.state)
	}
	return states
}

// closingMark is the mark that a Close stores from now on, and whether it must: the session has a
// log, or a read would be contradicted without it.
func (r *Run) closingMark() (mark int64, must bool) {
	mark = r.clock.mark
	if mark <= 0 {
		return r.model.mark, true
	}
	hidden := func(expiry int64) bool {
		return expiry <= mark &&
			(expiry > r.model.mark || mark < r.model.mark)
	}
	for _, f := range r.model.families {
		for _, expiry := range f.expiry {
			must = must || hidden(expiry)
		}
	}
	if s := r.model.series; s != nil {
		for k := range s.rows {
			must = must || hidden(k.ms+s.retention)
		}
	}
	return mark, must || len(storeFiles(r.Disk)) > 1
}

// storedMark is what the newest meta page of the main file says.
func (r *Run) storedMark() (mark int64) {
	const page, atEpoch, atMark = 4096, 16, 160 // docs/format.md
	newest := uint32(0)
	for b := r.Disk.Files()[path][:2*page]; len(b) > 0; b = b[page:] {
		if epoch := binary.LittleEndian.Uint32(b[atEpoch:]); pager.ReadHeader(b).Kind == pager.KindMeta &&
			epoch > newest {
			newest, mark = epoch, int64(binary.LittleEndian.Uint64(b[atMark:]))
		}
	}
	return mark
}

// began notes a Close that begins, and gives what is to be called when it has returned. Everything
// has been read by the clock of this moment.
func (r *Run) began() (ended func() error) {
	mark, must := r.closingMark()
	m := r.model.clone()
	m.mark = mark
	r.closings = append(r.closings,
		closing{begin: r.Disk.Len(), end: never, seq: r.newest(), state: m.state()})
	return func() error {
		if !r.closed {
			return nil
		}
		switch got := r.storedMark(); {
		case got != mark && (must || got != r.model.mark):
			return wrong("Close has stored the mark %d, want %d; the last commit has %d", got, mark,
				r.model.mark)
		case got == mark:
			r.closings[len(r.closings)-1].end = r.Disk.Len()
			r.model = m
		}
		return nil
	}
}

// takeMark takes over the mark that a store was opened with: that of its newest commit, or of a
// Close behind it.
func (r *Run) takeMark() error {
	mark := r.storedMark()
	if !slices.ContainsFunc(
		r.marked(r.newest(), r.Disk.Len()),
		func(s State) bool { return s.Mark == mark || s.Mark == longAgo && mark == 0 },
	) {
		return wrong(
			"opened, the store has the mark %d, want that of commit %d or of the Close after it",
			mark,
			r.newest(),
		)
	}
	r.model = r.model.clone()
	r.model.mark = mark
	r.clock.opened(mark)
	return nil
}

// opLook is a session that only reads: keys expire, the store is closed, the clock goes back by no
// more than MaxClockStep, and the next session must not have them back.
func opLook(r *Run, rnd *rand.Rand) error {
	if err := opReopen(r, rnd); err != nil {
		return err
	}
	at := r.clock.read()
	if expiry, ok := r.model.nextExpiry(at); ok {
		at = expiry + rnd.Int64N(maxStepMs/2)
	}
	if err := r.moveClock(at); err != nil {
		return err
	}
	got, err := readContents(r.db)
	if err != nil {
		return err
	}
	if want := r.now(); got != want {
		return wrong("with the clock at %d the store shows something else than commit %d", at, want.seq)
	}
	if err := r.close(); err != nil {
		return err
	}
	r.clock.ms = at - rnd.Int64N(maxStepMs)
	return r.open()
}

// nextExpiry is the earliest expiry after now.
func (m *Model) nextExpiry(now int64) (next int64, ok bool) {
	for _, f := range m.families {
		for _, expiry := range f.expiry {
			if expiry > now && (!ok || expiry < next) {
				next, ok = expiry, true
			}
		}
	}
	if s := m.series; s != nil {
		for k := range s.rows {
			if expiry := k.ms + s.retention; expiry > now && (!ok || expiry < next) {
				next, ok = expiry, true
			}
		}
	}
	return next, ok
}
