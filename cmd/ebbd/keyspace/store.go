package keyspace

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ebbkv/ebb/kv"
)

// Store is what the spaces of all transactions share: the families, and what has expired.
type Store struct {
	databases  int
	maxKeySize int // of the store, in bytes
	// Of write transactions: there is one at a time.
	writes int64  // by spaces
	turn   *kv.Tx // the transaction of Turn

	// Report says that TakeExpired is called.
	Report atomic.Bool

	mu      sync.Mutex
	names   []ExpiredKey
	fields  int64 // fields and keys that expired, since Open
	keys    int64
	retired map[int]bool // databases with rows that Reclaim deletes, or may have them
}

// ExpiredKey is a key that has expired and was deleted.
type ExpiredKey struct {
	DB  int
	Key []byte
}

// TakeExpired returns the keys that have expired and were deleted since the last call, in the order
// of deletion: those of the transaction of Turn before its commit, all others after it.
func (st *Store) TakeExpired() (keys []ExpiredKey) {
	if !st.Report.Load() {
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	keys, st.names = st.names, nil
	return keys
}

// NewStore returns the state of a store of that many databases. Its OnExpireTx belongs in kv.Options.
func NewStore(databases int) *Store {
	st := &Store{databases: databases, retired: make(map[int]bool)}
	for n := range databases {
		st.retired[n] = true // an earlier session may have left some
	}
	return st
}

// Databases returns the number of databases.
func (st *Store) Databases() int { return st.databases }

// Writes returns the number of writes that spaces have begun. It belongs to the goroutine of the
// present write transaction: a command that has failed with as many as before has changed nothing.
func (st *Store) Writes() int64 { return st.writes }

// Expired returns the numbers of keys and of hash fields that expired and were deleted.
func (st *Store) Expired() (keys, fields int64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.keys, st.fields
}

// Turn says that tx is the transaction whose expired keys the caller takes before its commit.
func (st *Store) Turn(tx *kv.Tx) { st.turn = tx }

// OnExpireTx deletes or retires the collection of a master row that has expired, in the transaction
// that deletes the row. It is kv.Options.OnExpireTx.
func (st *Store) OnExpireTx(tx *kv.Tx, cf string, key, value []byte) error {
	db, err := strconv.Atoi(cf[1:])
	if err != nil || len(key) == 0 {
		return nil // not a family of ours
	}
	if cf[0] != masterFamily {
		tx.OnCommit(func() { st.count(0, 1) })
		return nil
	}
	tx.OnCommit(func() { st.count(1, 0) })
	if st.Report.Load() {
		expired := ExpiredKey{db, bytes.Clone(key[1:])}
		if tx == st.turn {
			st.note(expired)
		} else {
			tx.OnCommit(func() { st.note(expired) })
		}
	}
	row, err := decodeRow(value)
	if err != nil || row.Type == TypeString {
		return nil // Check reports a row that does not decode.
	}
	return st.Space(tx, db).drop(&row)
}

func (st *Store) note(expired ExpiredKey) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.names = append(st.names, expired)
}

func (st *Store) count(keys, fields int64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.keys += keys
	st.fields += fields
}

const (
	masterFamily  byte = 'm'
	elementFamily byte = 'e'
)

var commonNames = func() (names [2][16]string) {
	for n := range names[0] {
		names[0][n] = string(masterFamily) + strconv.Itoa(n)
		names[1][n] = string(elementFamily) + strconv.Itoa(n)
	}
	return names
}()

func familyName(kind byte, db int) string {
	switch {
	case db >= len(commonNames[0]):
		return string(kind) + strconv.Itoa(db)
	case kind == masterFamily:
		return commonNames[0][db]
	}
	return commonNames[1][db]
}

// maxKey is the length of the longest key, maxElement that of the longest field or member, in bytes.
func (st *Store) maxKey() int     { return st.maxKeySize - 1 }
func (st *Store) maxElement() int { return st.maxKeySize - elementPrefix }

// Bind reads the limits of an existing store that is not to be changed.
func (st *Store) Bind(db *kv.DB) { st.maxKeySize = db.MaxKeySize() }

// Setup creates the families of all databases that do not exist.
func (st *Store) Setup(db *kv.DB) error {
	st.Bind(db)
	return db.Update(func(tx *kv.Tx) error {
		names, err := tx.ListCFs()
		if err != nil {
			return err
		}
		if err := foreign(names); err != nil {
			return err
		}
		for n := range st.databases {
			for _, kind := range []byte{masterFamily, elementFamily} {
				err := tx.EnsureCF(familyName(kind, n), kv.CFOptions{})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// foreign refuses a store that other programs have families in.
func foreign(names []string) error {
	for _, name := range names {
		if name == "default" {
			continue
		}
		n, err := strconv.Atoi(name[1:])
		if err != nil || n < 0 || !strings.ContainsRune("me", rune(name[0])) {
			return fmt.Errorf("the store has the family %q: it is no store of this server", name)
		}
	}
	return nil
}

// SwapDB exchanges two databases.
func (st *Store) SwapDB(tx *kv.Tx, a, b int) error {
	if a == b {
		return nil
	}
	st.writes++
	for _, kind := range []byte{masterFamily, elementFamily} {
		const meanwhile = "swap"
		first, second := familyName(kind, a), familyName(kind, b)
		err := errors.Join(
			tx.RenameCF(first, meanwhile),
			tx.RenameCF(second, first),
			tx.RenameCF(meanwhile, second),
		)
		if err != nil {
			return err
		}
	}
	st.setRetired(a, true)
	st.setRetired(b, true)
	return nil
}

// Space returns database db in tx.
func (st *Store) Space(tx *kv.Tx, db int) *Space {
	s := &Space{}
	st.Attach(s, tx, db)
	return s
}

// Attach makes s the space of database db in tx. It keeps the buffers of s.
func (st *Store) Attach(s *Space, tx *kv.Tx, db int) {
	s.store, s.tx, s.DB = st, tx, db
	s.Now = tx.Now().UnixMilli()
	s.master = tx.CF(familyName(masterFamily, db))
	s.elementRows = nil
}
