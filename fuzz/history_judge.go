package fuzz

import (
	"cmp"
	"fmt"
	"slices"
)

// firstCommit is the number of the first commit that is not the store's own.
const firstCommit = 2

// Judge says whether the history is one that a store of the documented kind can have: every
// transaction has seen exactly the state that its number names, the numbers agree with the order of
// time, and a crash has taken no more than it may. The commit numbers give the order, so it takes
// about as long as sorting the events.
func (h *History) Judge() error {
	before, after := h.sessions()
	seen := lastSeen(before)
	made := commitsOf(
		before,
		func(e *Event) bool { return e.Fate == Done || e.Fate == Unknown && e.Relax && e.Seq <= seen },
	)
	if err := h.session(before, made, 0); err != nil || h.Crash == 0 {
		return err
	}
	if err := h.survived(before); err != nil {
		return fmt.Errorf("crash: %w", err)
	}
	left := commitsOf(
		before,
		func(e *Event) bool { return (e.Fate == Done || e.Fate == Unknown) && e.Seq <= h.Recovered },
	)
	if n := uint64(len(left)) + firstCommit - 1; h.Recovered > n {
		return fmt.Errorf("crash: it left commit %d, the last one that anybody began is %d", h.Recovered, n)
	}
	made = append(left, commitsOf(after, func(e *Event) bool { return e.Fate == Done })...)
	if err := h.session(after, made, h.Recovered); err != nil {
		return fmt.Errorf("after the crash: %w", err)
	}
	return nil
}

// sessions cuts the events at the crash.
func (h *History) sessions() (before, after []*Event) {
	for i := range h.Events {
		if e := &h.Events[i]; h.Crash == 0 || e.Begin < h.Crash {
			before = append(before, e)
		} else {
			after = append(after, e)
		}
	}
	return before, after
}

// commitsOf gives the events that made states, by number.
func commitsOf(events []*Event, made func(*Event) bool) (list []*Event) {
	for _, e := range events {
		if made(e) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *Event) int { return cmp.Compare(a.Seq, b.Seq) })
	return list
}

// lastSeen is the last commit that was reported, or that a reader saw. One up to it that did not wait for
// the disk, and whose fate is unknown, has been made, too: the log may fail when a later one has been
// told that both are written, or when a reader has seen it, and before it asks. One that waits is told
// what is durable, whatever has failed since.
func lastSeen(events []*Event) (seq uint64) {
	for _, e := range events {
		if e.Fate == Done || e.Fate == "" {
			seq = max(seq, e.Seq)
		}
	}
	return seq
}

// fates tells what became of the transactions that would have made a state.
func fates(events []*Event, seq uint64) (told string) {
	for _, e := range events {
		if e.Seq == seq && e.Fate != "" {
			told += fmt.Sprintf("; client %d, ticks %d-%d, relaxed %t: %s", e.Client, e.Begin,
				e.End, e.Relax, e.Fate)
		}
	}
	return told
}

// session judges the events between two opens. made are all commits up to its end, floor is the
// state that it began with.
func (h *History) session(events, made []*Event, floor uint64) error {
	m := historyModel{versions: make([][]version, h.Keys)}
	for i, e := range made {
		if e.Seq != uint64(i)+firstCommit {
			return fmt.Errorf(
				"commit %d (client %d) where %d belongs%s",
				e.Seq,
				e.Client,
				i+firstCommit,
				fates(events, uint64(i)+firstCommit),
			)
		}
		for _, w := range e.Writes {
			m.versions[w.Key] = append(m.versions[w.Key], version{e.Seq, w.Value})
		}
	}
	for _, e := range events {
		if (e.Fate == Void || e.Fate == Unknown) && e.Seq > uint64(len(made))+firstCommit {
			continue // It was built on a commit that failed before it: on a state that never came to be.
		}
		if err := m.saw(e); err != nil {
			return err
		}
	}
	return inOrder(events, made, floor)
}

type version struct{ seq, value uint64 }

// historyModel is every value that a key ever had.
type historyModel struct{ versions [][]version }

// at is the value of a key in the state seq.
func (m *historyModel) at(key int, seq uint64) uint64 {
	list := m.versions[key]
	i, _ := slices.BinarySearchFunc(
		list,
		seq+1,
		func(v version, seq uint64) int { return cmp.Compare(v.seq, seq) },
	)
	if i == 0 {
		return 0
	}
	return list[i-1].value
}

// saw holds what a transaction read against the state that it says it saw.
func (m *historyModel) saw(e *Event) error {
	seq := e.Seq
	if e.Fate != "" {
		seq-- // A write transaction is built on the state before its own.
	}
	for _, r := range e.Reads {
		if want := m.at(r.Key, seq); want != r.Value {
			return fmt.Errorf(
				"client %d, ticks %d-%d, state %d: key %d is %d, want %d",
				e.Client,
				e.Begin,
				e.End,
				seq,
				r.Key,
				r.Value,
				want,
			)
		}
	}
	return nil
}

// inOrder: what ended before something else began was before it. A later transaction sees at least
// what an earlier one saw or made; and no state is seen before a client began to make it.
func inOrder(events, made []*Event, floor uint64) error {
	var ends []*Event
	for _, e := range events {
		if e.Fate == "" || e.Fate == Done {
			ends = append(ends, e)
		}
	}
	begins := slices.Clone(events)
	slices.SortFunc(ends, func(a, b *Event) int { return cmp.Compare(a.End, b.End) })
	slices.SortFunc(begins, func(a, b *Event) int { return cmp.Compare(a.Begin, b.Begin) })
	next := 0
	for _, e := range begins {
		for ; next < len(ends) && ends[next].End < e.Begin; next++ {
			floor = max(floor, ends[next].Seq)
		}
		least := floor
		if e.Fate != "" {
			least++
		}
		if e.Seq < least {
			return fmt.Errorf(
				"client %d, ticks %d-%d: state %d, after state %d had been seen or made",
				e.Client,
				e.Begin,
				e.End,
				e.Seq,
				floor,
			)
		}
		if e.Fate != "" || e.Seq < firstCommit {
			continue
		}
		switch at := int(e.Seq - firstCommit); {
		case at >= len(made):
			return fmt.Errorf(
				"client %d, ticks %d-%d: saw state %d, which no client made",
				e.Client,
				e.Begin,
				e.End,
				e.Seq,
			)
		case made[at].Begin > e.End:
			return fmt.Errorf(
				"client %d, ticks %d-%d: saw state %d, which was begun at %d",
				e.Client,
				e.Begin,
				e.End,
				e.Seq,
				made[at].Begin,
			)
		}
	}
	return nil
}

// survived: what was acknowledged as durable is there after the crash. If only the process died,
// relaxed commits and all that any client has seen are there too. A commit of unknown fate that a
// client saw was refused before: no client made it.
func (h *History) survived(before []*Event) error {
	for _, e := range before {
		kept := e.Fate == Done && !e.Relax || h.Killed && (e.Fate == Done || e.Fate == "")
		if kept && e.Seq > h.Recovered {
			return fmt.Errorf(
				"client %d, ticks %d-%d, knew of commit %d, commit %d was left",
				e.Client,
				e.Begin,
				e.End,
				e.Seq,
				h.Recovered,
			)
		}
	}
	return nil
}
