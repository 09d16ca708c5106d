package engine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Engine is one store that takes part.
type Engine struct {
	Name        string
	Module      string // whose version the report names; "" for ours
	Expires     bool   // its writers are ExpiringWriters
	Purges      bool   // its clients are Purgers
	Checkpoints bool   // its Store is a Checkpointer
	Copies      bool   // a get puts a large value together from its pages, however little of it is looked at
	OnlyTTL     bool   // takes part in the rows about expiry only
	Open        func(Config) (Store, error)
}

// Config is what an expert would know of the job when choosing options.
type Config struct {
	Dir     string
	Durable bool             // each commit survives a power cut; if not, it survives the end of the process
	Sorted  bool             // keys will arrive in ascending order
	KeepLog bool             // a log of 64 MiB must not be checkpointed or flushed on the way
	Clients int              // goroutines at a time
	Bytes   int64            // of keys and values, about
	Now     func() time.Time // for the engines that can be told the time
}

// Store is an open store.
type Store interface {
	Client() (Client, error)
	Close() error
}

// Client is one goroutine's access to a store. Slices that are handed in stay unchanged until the
// call that took them, or the Batch around it, returns: no engine is made to copy what its own
// users need not copy.
type Client interface {
	// Put is a transaction of its own.
	Put(key, value []byte) error
	// Batch commits all that fn writes, or nothing.
	Batch(fn func(Writer) error) error
	// Get is a transaction of its own. use sees the value without a copy where the engine offers
	// that, until it returns.
	Get(key []byte, use func(value []byte)) (found bool, err error)
	// View runs fn on one state of the store.
	View(fn func(Reader) error) error
	Close() error
}

// Updater is a Client whose write transactions are another thing than its Batch.
type Updater interface {
	// Update commits all that fn writes, or nothing.
	Update(fn func(Writer) error) error
}

// Reader reads one state.
type Reader interface {
	Get(key []byte, use func(value []byte)) (found bool, err error)
	// Scan adds the rows of r to t. The loop is the engine's own, so that no call per row stands
	// between it and the figure.
	Scan(r Range, t *Tally) error
}

// Writer is a batch under way.
type Writer interface {
	Put(key, value []byte) error
	Delete(key []byte) error
}

// ExpiringWriter is a Writer of an engine with expiry.
type ExpiringWriter interface {
	Writer
	PutTTL(key, value []byte, ttl time.Duration) error
}

// Purger is a Client that can delete all expired rows, durably if the store is, at most batch of
// them in a transaction.
type Purger interface {
	Purge(batch int) (rows int, err error)
}

// Checkpointer is a Store with a call that moves what its log holds to where it stays.
type Checkpointer interface {
	Checkpoint() error
}

// BulkLoader is a Store with a way to fill it from sorted rows that is faster than batches. next
// returns slices that are valid until it is called again.
type BulkLoader interface {
	BulkLoad(rows int, next func(i int) (key, value []byte)) error
}

// Settler is a Store that pays for reads with work in the background: Settle waits until that is
// done.
type Settler interface {
	Settle() error
}

// Range is [Lo, Hi); nil does not bound.
type Range struct {
	Lo, Hi  []byte
	Reverse bool
}

// Tally proves which rows were read, and in which order. Values begin with 16 bytes that depend on
// key and version.
type Tally struct {
	Rows int
	Sum  uint64
}

// Add is small enough to be inlined into each engine's loop, and reads the line of the key and that
// of the value.
func (t *Tally) Add(key, value []byte) {
	t.Rows++
	t.Sum = t.Sum*31 + binary.LittleEndian.Uint64(
		key[8:],
	) + binary.LittleEndian.Uint64(
		value,
	) + binary.LittleEndian.Uint64(
		value[8:],
	)
}

var all = map[string]Engine{}

// register is called by the init of each engine's file: those behind a build tag are there only
// with it.
func register(e Engine) { all[e.Name] = e }

// Names of all engines, ours first.
func Names() []string {
	names := []string{"ebb"}
	for name := range all {
		if name != "ebb" {
			names = append(names, name)
		}
	}
	slices.Sort(names[1:])
	return names
}

// Select returns the engines named in a list with commas, each once: an engine that is named
// twice would be measured twice, and the report would take that for more rounds. "" selects all.
func Select(list string) (chosen []Engine, err error) {
	names := Names()
	if list != "" {
		names = strings.Split(list, ",")
	}
	for _, name := range names {
		e, err := ByName(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(chosen, func(c Engine) bool { return c.Name == e.Name }) {
			chosen = append(chosen, e)
		}
	}
	return chosen, nil
}

// ByName finds an engine.
func ByName(name string) (Engine, error) {
	if e, ok := all[name]; ok {
		return e, nil
	}
	return Engine{}, fmt.Errorf("no engine %q; there are %s", name, strings.Join(Names(), ", "))
}
