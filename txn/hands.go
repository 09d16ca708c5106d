package txn

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/mapfault"
	"github.com/ebbkv/ebb/pager"
)

// Many changes of one tree, whose keys lie anywhere, are carried out by several hands on as many processors. The tree is cut below its root into parts
// (tree.Parts), each hand changes some of them as the writer would change the tree, and then the parts are one tree again. Of each part
// the changes are carried out in their order, so that those of one key stay in it.
//
// What hands have in common is little: the free space, memory for patches and the table of pages behind sharing, frames and
// slots behind locks of their own, and for each a keeper of the undo. The file and the log are the writer's: no hand writes to them, nor calls
// anything of the user's.

// Fewer changes, and changes of smaller trees, are not worth the time that it takes to wake another processor.
const (
	defaultManyFrom = 128
	defaultManyRows = 64 << 10
)

const (
	maxHands       = pager.MaxKeepers
	partsForHand   = tree.MaxParts / maxHands // so that one who comes late, or is slow, has less to do
	changesForHand = 256                      // as many as are worth a third hand, and each one more
)

// A helper that has nothing to do stays for idleHelper, since it takes that long to find a processor for another one: a batch has one tree
// after the other to change. Whoever waits for helpers stays awake for awakeWait.
const (
	idleHelper = 200 * time.Microsecond
	awakeWait  = 50 * time.Microsecond
)

// hands are those of the store's writer.
type hands struct {
	w       *writer
	of      [maxHands]worker // the first is the writer's
	sharing sync.Mutex

	parts   tree.Parts
	changes []Change
	was     []Info
	own     []Info                 // memory for was
	rows    [tree.MaxParts][]int32 // the changes of each part
	done    [tree.MaxParts]int     // so many of them are carried out
	left    []int32                // changes that are not, because frames were short

	useful bool         // the last ones had something to do
	there  atomic.Int32 // helpers
}

// worker is a hand, and what it has met.
type worker struct {
	hand       // of all but the first, which uses the writer's
	use  *hand // its own, or the writer's
	err  error
	died any // with what it panicked
	_    [64]byte
}

// round is one time that they work. Who comes when the others have done all of it finds nothing to do there.
type round struct {
	h     *hands
	count int32        // hands
	n     int32        // parts
	came  atomic.Int32 // hands that are taken
	next  atomic.Int32 // the part that nobody has begun yet
	left  atomic.Int32 // parts that are not finished
	fail  atomic.Bool  // one has failed, or frames are short: the others need not go on
	ended chan struct{}
}

// handsFor is how many hands so many changes are for; 1: only the writer's.
func (s *Store) handsFor(changes int) int {
	most := s.mostHands(changes)
	if s.o.Inline { // The crash bed is to see all of them.
		return 1 + int(s.stamps%uint64(most))
	}
	return most
}

func (s *Store) mostHands(changes int) int {
	switch {
	case changes < s.o.ManyFrom:
		return 1
	case s.o.Inline:
		return 4
	}
	return min(runtime.GOMAXPROCS(0), maxHands, max(changes/changesForHand, 2))
}

// handsPages is how many pages hands may take for so many changes beside what one would: branches that are cut, a few for each part, and
// what each of them has taken ahead.
func (s *Store) handsPages(changes int) uint64 {
	hands := s.mostHands(changes)
	if hands < 2 {
		return 0
	}
	return uint64(4*partsFor(hands) + cutSlack + hands*takeAhead)
}

// cutSlack is for branches that are cut.
const cutSlack = 64

// partsFor is how many parts so many hands take.
func partsFor(hands int) int { return min(hands*partsForHand, tree.MaxParts) }

// Expect says that so many changes are going to come, of a tree or of several. It is a hint: who can help with them may be on the way then.
func (tx *Tx) Expect(changes int) {
	if w := tx.w; w != nil && tx.check() == nil && w.hands != nil && w.hands.useful {
		w.hands.summon(tx.s.handsFor(changes))
	}
}

// summon has helpers come until there are so many hands, if there are processors for them.
func (h *hands) summon(count int) {
	more := count - 1 - int(h.there.Load())
	if more <= 0 || h.w.s.o.Inline {
		return
	}
	for range more {
		h.there.Add(1)
		go h.help()
	}
	// The goroutine that was started last stays with this processor for a while: a second one wakes another.
	go func() {}()
}

// help takes part in rounds until none has come for a while.
func (h *hands) help() {
	defer h.there.Add(-1)
	for since := time.Now(); time.Since(since) < idleHelper; runtime.Gosched() {
		if h.w.s.lend() {
			since = time.Now()
		}
	}
}

// lend takes part in the round of hands that is under way, if there is one, and says whether it found something to do. It is for helpers, and for a
// checkpoint between two pages: that has a processor which no helper can have meanwhile.
func (s *Store) lend() bool {
	r := s.round.Load()
	return r != nil && r.lend()
}

// applyByHands is Apply by several hands. done is false if it is not for them: then nothing has happened.
func (tx *Tx) applyByHands(id TreeID, changes []Change, was []Info) (done bool, err error) {
	w := tx.w
	if w == nil || tx.check() != nil || !tx.s.started || w.saved || w.silent || tx.s.handsFor(len(changes)) < 2 {
		return false, nil
	}
	if w, err = tx.change(); err != nil {
		return false, err
	}
	left, done, err := w.byHands(id, changes, was)
	if err != nil {
		return false, tx.broken(err)
	}
	if len(left) > 0 {
		err = tx.applyLeft(id, changes, was, slices.Clone(left))
	}
	return done, err
}

// byHands carries out changes, and says which are left because frames are short, in their order.
func (w *writer) byHands(id TreeID, changes []Change, was []Info) (left []int32, done bool, err error) {
	count := w.s.handsFor(len(changes))
	s, err := w.state(id)
	if err != nil || s.t.Rows < w.s.o.ManyRows || w.short() {
		return nil, false, err
	}
	h := w.hands
	if h == nil {
		h = &hands{w: w}
		h.of[0].use = &w.hand
		w.hands = h
	}
	if h.useful {
		h.summon(count)
	}
	h.useful = false
	size, longest, puts := 0, 0, false
	for i := range changes {
		c := &changes[i]
		size += len(c.Key) + len(c.Value)
		longest = max(longest, len(c.Value))
		puts = puts || !c.Delete
	}
	if longest > tree.MaxInline(w.PageSize()) || w.room(size) != nil {
		return nil, false, nil
	}
	if puts {
		w.within()
	}
	defer func() { // also after a panic
		h.changes, h.was = nil, nil
		h.parts.Forget()
	}()
	t := s.t
	n, err := h.parts.Cut(w, t, changes, partsFor(count))
	if err != nil || n < 2 {
		return nil, false, err
	}
	h.useful = true
	h.summon(count)
	h.divide(n, changes, was)
	if err := h.work(count, n); err != nil {
		return nil, false, err
	}
	h.findLeft(n)
	if err := h.parts.Join(w, &t); err != nil {
		return nil, false, err
	}
	w.set(id, t)
	return h.left, true, h.log(id)
}

// short says that frames are: the writer has to write pages early, which hands do not.
func (w *writer) short() bool { return w.s.pg.FrameBytes() > w.spillOver }

// divide finds the changes of each of n parts.
func (h *hands) divide(n int, changes []Change, was []Info) {
	if h.changes, h.was = changes, was; was == nil {
		h.own = slices.Grow(h.own[:0], len(changes))[:len(changes)]
		h.was = h.own
	}
	for i := range n {
		h.rows[i], h.done[i] = h.rows[i][:0], 0
	}
	for i := range changes {
		part := h.parts.Of(changes[i].Key)
		h.rows[part] = append(h.rows[part], int32(i))
	}
}

// work has so many hands carry out the changes of n parts, as far as frames suffice.
func (h *hands) work(count, n int) error {
	w := h.w
	undo := w.s.pg.Undo()
	var keepers []*pager.Keeper
	if w.InPlace() != nil {
		keepers = undo.Lend(count)
	}
	mayPatch := w.mayPatch
	w.mayPatch = mayPatch && w.s.mayPatch()
	over := w.s.pg.Overdraft(false)
	for i := range count {
		k := &h.of[i]
		k.err, k.died = nil, nil
		if i > 0 {
			k.use = &k.hand
			k.hand = hand{
				s: w.s, w: w, base: w.base, owner: w.owner, first: w.first, mayPatch: w.mayPatch,
				taken: k.taken, spare: k.spare[:0], freed: k.freed[:0], sparing: w.sparing, draft: k.draft,
			}
			if keepers != nil {
				k.keeper = keepers[i]
			}
		}
		k.use.sharing, k.use.touched = &h.sharing, touched{}
	}
	h.run(count, n)
	w.sharing, w.mayPatch = nil, mayPatch
	w.s.pg.Overdraft(over)
	if keepers != nil {
		undo.Gather()
	}
	for i := 1; i < count; i++ {
		k := &h.of[i]
		w.taken.pushAll(&k.taken)
		k.taken.reset()
		w.spare = append(w.spare, k.spare...)
		w.freed = append(w.freed, k.freed...)
	}
	for i := range count {
		if died := h.of[i].died; died != nil {
			panic(died)
		}
	}
	for i := range count {
		err := h.of[i].err
		var no *needed
		if errors.As(err, &no) {
			err = w.s.spaceError(no.err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// run returns when n parts have been worked on. This goroutine takes part, and does by itself what no processor is found for.
func (h *hands) run(count, n int) {
	r := &round{h: h, count: int32(count), n: int32(n), ended: make(chan struct{})}
	r.left.Store(r.n)
	if h.w.s.o.Inline {
		for r.left.Load() > 0 {
			r.one(r.next.Load() % r.count) // Each of them has its turn.
		}
		return
	}
	h.w.s.round.Store(r)
	r.lend()
	h.w.s.round.Store(nil)
	for since := time.Now(); r.left.Load() > 0 && time.Since(since) < awakeWait; {
		runtime.Gosched()
	}
	if r.left.Load() > 0 {
		<-r.ended
	}
}

// lend works on parts as long as there are some that nobody has begun, and says whether there was one.
func (r *round) lend() (any bool) {
	if r.next.Load() >= r.n {
		return false
	}
	no := r.came.Add(1) - 1
	if no >= r.count {
		return false
	}
	for r.one(no) {
		any = true
	}
	return any
}

// one has that hand work on the part that comes next, if there is one.
func (r *round) one(no int32) bool {
	i := r.next.Add(1) - 1
	if i >= r.n {
		return false
	}
	r.h.of[no].work(r, int(i))
	if r.left.Add(-1) == 0 {
		close(r.ended)
	}
	return true
}

// work carries out the changes of a part. What it meets, a fault of the map too, is left to the writer's goroutine.
func (k *worker) work(r *round, part int) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			if _, fault := mapfault.Address(p); !fault {
				p = fmt.Sprintf("%v\n\n%s", p, debug.Stack())
			}
			k.died = p
			r.fail.Store(true)
		}
	}()
	h := r.h
	var finger tree.Finger
	for rows := h.rows[part]; len(rows) > 0 && !r.fail.Load(); {
		if h.w.short() {
			r.fail.Store(true)
			return
		}
		n := min(len(rows), tree.MaxWays)
		if k.err = k.apply(h, part, &finger, rows[:n]); k.err != nil {
			r.fail.Store(true)
			return
		}
		h.done[part] += n
		rows = rows[n:]
	}
}

func (k *worker) apply(h *hands, part int, finger *tree.Finger, rows []int32) error {
	var some [tree.MaxWays]Change
	for i, row := range rows {
		some[i] = h.changes[row]
	}
	t := h.parts.Tree(part)
	var ways tree.Ways
	if err := ways.Find(k.use, *t, finger, some[:len(rows)]); err != nil {
		return err
	}
	for i, row := range rows {
		c := &some[i]
		k.use.over = c.Delete // what frees space is not refused
		info, err := ways.Apply(k.use, t, finger, i, c)
		if err != nil {
			return err
		}
		h.was[row] = info
	}
	return nil
}

// findLeft notes what has not been carried out, in its order.
func (h *hands) findLeft(n int) {
	h.left = h.left[:0]
	for i := range n {
		h.left = append(h.left, h.rows[i][h.done[i]:]...)
	}
	slices.Sort(h.left)
}

// log adds what was carried out to the redo, in the order in which it was asked for.
func (h *hands) log(id TreeID) error {
	w, left := h.w, h.left
	for i := range h.changes {
		if len(left) > 0 && int(left[0]) == i {
			left = left[1:]
			continue
		}
		if err := w.logChange(id, &h.changes[i], h.was[i].Found); err != nil {
			return err
		}
	}
	return nil
}

// applyLeft carries out what hands have left of changes, by others if they got anywhere.
func (tx *Tx) applyLeft(id TreeID, changes []Change, was []Info, left []int32) error {
	some := make([]Change, len(left))
	for i, at := range left {
		some[i] = changes[at]
	}
	var infos []Info
	if was != nil {
		infos = make([]Info, len(left))
	}
	apply := tx.Apply
	if len(left) == len(changes) {
		apply = tx.applyAll
	}
	err := apply(id, some, infos)
	for i := range infos {
		was[left[i]] = infos[i]
	}
	return err
}
