package fuzz

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/ebbkv/ebb/internal/vfs"
)

// A gate makes two goroutines take turns: each stops before every call of the disk that changes
// something, and where its own code says so, until it is let through. Which of the two is let
// through is what an interleaving is.
//
// Nothing is timed. Between two turns the gate waits until each goroutine has stopped here, has
// ended, or is blocked by something of the engine, such as a lock that the other one holds: the
// runtime's own list of goroutines tells.
type gate struct {
	mu     sync.Mutex // guards the fields below and those of the actors
	actors []*actor
}

// An actor is one of the goroutines.
type actor struct {
	name  string
	id    uint64 // of the goroutine; 0 before it runs
	stops int    // so often it has stopped
	at    string // what it is about to do; "" if it has not stopped
	pass  chan struct{}
	ended bool
}

// manyLooks in a row that find all actors blocked are a deadlock.
const manyLooks = 2000

// mostStops is how often an actor is stopped; after that it is let through.
const mostStops = 6

// step stops the calling goroutine, if it is an actor.
func (g *gate) step(what string) {
	id := goroutineID()
	g.mu.Lock()
	a := g.actor(id)
	if a == nil || a.stops >= mostStops {
		g.mu.Unlock()
		return
	}
	a.stops++
	a.at = what
	g.mu.Unlock()
	<-a.pass
}

func (g *gate) actor(id uint64) *actor {
	for _, a := range g.actors {
		if a.id == id {
			return a
		}
	}
	return nil
}

// start runs fn as an actor. It has stopped once before fn begins.
func (g *gate) start(name string, done *sync.WaitGroup, fn func()) {
	a := &actor{name: name, at: "begin", pass: make(chan struct{})}
	g.actors = append(g.actors, a)
	done.Go(func() {
		id := goroutineID()
		g.mu.Lock()
		a.id = id
		g.mu.Unlock()
		<-a.pass
		fn()
		g.mu.Lock()
		a.ended = true
		g.mu.Unlock()
	})
}

// let lets a stopped actor through.
func (g *gate) let(a *actor) {
	g.mu.Lock()
	a.at = ""
	g.mu.Unlock()
	a.pass <- struct{}{}
}

// settle waits until no actor can go on by itself, and gives those that have stopped. It fails if
// some have neither stopped nor ended and no actor is left to let through: they wait for each other.
func (g *gate) settle() (stopped []*actor, err error) {
	for still := 0; ; {
		before := g.picture()
		dump := goroutines()
		g.mu.Lock()
		moving := false
		stopped = stopped[:0]
		blocked := ""
		for _, a := range g.actors {
			switch {
			case a.ended:
			case a.at != "":
				stopped = append(stopped, a)
			case a.id == 0 || !waits(dump[a.id]):
				moving = true
			default:
				blocked += fmt.Sprintf(" %s (%s)", a.name, dump[a.id])
			}
		}
		g.mu.Unlock()
		if moving || before != g.picture() {
			runtime.Gosched()
			continue
		}
		if len(stopped) > 0 || blocked == "" {
			return stopped, nil
		}
		// Something outside may hold what they wait for, for a moment: the runtime has locks of its
		// own.
		if still++; still == manyLooks {
			return nil, fmt.Errorf("deadlock:%s", blocked)
		}
		runtime.Gosched()
	}
}

// picture is what settle must find unchanged after it has looked at the goroutines.
func (g *gate) picture() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var b strings.Builder
	for _, a := range g.actors {
		fmt.Fprintf(&b, "%d %d %s %v;", a.id, a.stops, a.at, a.ended)
	}
	return b.String()
}

// waits says whether a goroutine in this state needs another one to go on. "semacquire" is the
// runtime's own: it waits for the reader of goroutine stacks.
func waits(state string) bool {
	for _, s := range []string{"chan receive", "chan send", "select", "sync.Mutex", "sync.RWMutex",
		"sync.Cond", "sync.WaitGroup"} {
		if strings.HasPrefix(state, s) {
			return true
		}
	}
	return false
}

// goroutineID reads the number of the calling goroutine from the head of its stack.
func goroutineID() uint64 {
	var b [64]byte
	head := b[:runtime.Stack(b[:], false)]
	id, _, _ := bytes.Cut(bytes.TrimPrefix(head, []byte("goroutine ")), []byte(" "))
	n, _ := strconv.ParseUint(string(id), 10, 64)
	return n
}

// goroutines gives the state of every goroutine, all of one moment.
func goroutines() map[uint64]string {
	b := make([]byte, 32<<10)
	n := runtime.Stack(b, true)
	for ; n == len(b); n = runtime.Stack(b, true) {
		b = make([]byte, 2*len(b))
	}
	states := map[uint64]string{}
	for line := range bytes.Lines(b[:n]) {
		var id uint64
		rest, ok := bytes.CutPrefix(line, []byte("goroutine "))
		if !ok {
			continue
		}
		number, state, _ := bytes.Cut(rest, []byte(" ["))
		id, err := strconv.ParseUint(string(number), 10, 64)
		if err == nil {
			states[id] = string(bytes.TrimRight(state, "]:\n"))
		}
	}
	return states
}

// gatedFS is a file system whose changes go through a gate.
type gatedFS struct {
	vfs.FS
	gate *gate
}

func (g gatedFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	if flag&vfs.Create != 0 {
		g.gate.step("create")
	}
	f, err := g.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return &gatedFile{f, g.gate}, nil
}

func (g gatedFS) Remove(name string) error {
	g.gate.step("remove")
	return g.FS.Remove(name)
}

func (g gatedFS) Rename(from, to string) error {
	g.gate.step("rename")
	return g.FS.Rename(from, to)
}

func (g gatedFS) SyncDir(dir string) error {
	g.gate.step("syncdir")
	return g.FS.SyncDir(dir)
}

func (g gatedFS) Stat(name string) (vfs.FileInfo, error) { return g.FS.Stat(name) }

type gatedFile struct {
	vfs.File
	gate *gate
}

func (f *gatedFile) WriteAt(p []byte, off int64) (int, error) {
	f.gate.step("write")
	return f.File.WriteAt(p, off)
}

func (f *gatedFile) StartWriteAt(p []byte, off int64) vfs.Pending { return vfs.WriteNow(f, p, off) }

func (f *gatedFile) WriteMapped(p []byte, off int64) error {
	f.gate.step("copy")
	return f.File.WriteMapped(p, off)
}

func (f *gatedFile) Truncate(size int64) error {
	f.gate.step("truncate")
	return f.File.Truncate(size)
}

func (f *gatedFile) Sync() error {
	f.gate.step("sync")
	return f.File.Sync()
}

func (f *gatedFile) SyncData() error {
	f.gate.step("syncdata")
	return f.File.SyncData()
}
