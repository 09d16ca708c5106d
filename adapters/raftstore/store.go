package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ebbkv/ebb/kv"
)

// Store implements raft.LogStore and raft.StableStore. It is safe for concurrent use.
type Store struct {
	db          *kv.DB
	log, stable string
}

var (
	_ raft.LogStore    = (*Store)(nil)
	_ raft.StableStore = (*Store)(nil)
)

// ErrKeyNotFound is the error of Get and GetUint64 for an absent key. Raft compares its text.
var ErrKeyNotFound = errors.New("not found")

// New returns a store in the families family+".log" and family+".stable" of db, which it creates if
// absent.
func New(db *kv.DB, family string) (*Store, error) {
	s := &Store{db, family + ".log", family + ".stable"}
	return s, db.Update(func(tx *kv.Tx) error {
		return errors.Join(tx.EnsureCF(s.log, kv.CFOptions{}), tx.EnsureCF(s.stable, kv.CFOptions{}))
	})
}

// FirstIndex returns the index of the first entry, 0 if there is none.
func (s *Store) FirstIndex() (uint64, error) { return s.end((*kv.Cursor).First) }

// LastIndex returns the index of the last entry, 0 if there is none.
func (s *Store) LastIndex() (uint64, error) { return s.end((*kv.Cursor).Last) }

func (s *Store) end(move func(*kv.Cursor) bool) (index uint64, err error) {
	err = s.db.View(func(tx *kv.Tx) error {
		c := tx.CF(s.log).CursorIn(kv.ScanOptions{KeysOnly: true})
		if move(c) {
			index, err = kv.Uint64.Decode(c.Key())
		}
		return errors.Join(err, c.Err())
	})
	return index, err
}

// GetLog reads an entry, or returns raft.ErrLogNotFound.
func (s *Store) GetLog(index uint64, entry *raft.Log) error {
	err := s.db.View(func(tx *kv.Tx) error {
		b, err := tx.CF(s.log).Get(key(index))
		if err != nil {
			return err
		}
		*entry = raft.Log{Index: index}
		return decode(b, entry)
	})
	if errors.Is(err, kv.ErrNotFound) {
		return raft.ErrLogNotFound
	}
	return err
}

// StoreLog stores an entry.
func (s *Store) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

// StoreLogs stores entries, all or none.
func (s *Store) StoreLogs(entries []*raft.Log) error {
	return s.db.Update(func(tx *kv.Tx) error {
		log := tx.CF(s.log)
		var b []byte
		for _, entry := range entries {
			b = encode(b[:0], entry)
			if err := log.Put(key(entry.Index), b); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteRange deletes the entries from first to last, both included, without reading them.
func (s *Store) DeleteRange(first, last uint64) error {
	behind := key(last + 1)
	if last+1 == 0 {
		behind = nil // unbounded
	}
	return s.db.CF(s.log).DeleteRange(key(first), behind)
}

// Set stores a value.
func (s *Store) Set(k, value []byte) error { return s.db.CF(s.stable).Put(k, value) }

// Get returns a value, or ErrKeyNotFound.
func (s *Store) Get(k []byte) ([]byte, error) {
	value, err := s.db.CF(s.stable).Get(k)
	if errors.Is(err, kv.ErrNotFound) {
		return nil, ErrKeyNotFound
	}
	return value, err
}

// SetUint64 stores a number.
func (s *Store) SetUint64(k []byte, n uint64) error { return s.Set(k, key(n)) }

// GetUint64 returns a number, or ErrKeyNotFound.
func (s *Store) GetUint64(k []byte) (uint64, error) {
	value, err := s.Get(k)
	if err != nil {
		return 0, err
	}
	return kv.Uint64.Decode(value)
}

func key(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// An entry is its type (u8), term and time of appending (both varint, the time in Unix nanoseconds,
// 0: none), the size of its data (varint), the data, and the extensions.
func encode(b []byte, entry *raft.Log) []byte {
	var appended int64
	if !entry.AppendedAt.IsZero() {
		appended = entry.AppendedAt.UnixNano()
	}
	b = append(b, byte(entry.Type))
	b = binary.AppendUvarint(b, entry.Term)
	b = binary.AppendVarint(b, appended)
	b = binary.AppendUvarint(b, uint64(len(entry.Data)))
	return append(append(b, entry.Data...), entry.Extensions...)
}

var errEntry = errors.New("raftstore: not an entry of this package")

// decode sets all fields but the index.
func decode(b []byte, entry *raft.Log) error {
	if len(b) == 0 {
		return errEntry
	}
	entry.Type, b = raft.LogType(b[0]), b[1:]
	term, n := binary.Uvarint(b)
	if n <= 0 {
		return errEntry
	}
	appended, m := binary.Varint(b[n:])
	if m <= 0 {
		return errEntry
	}
	b = b[n+m:]
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return fmt.Errorf("%w: %d bytes of data in %d", errEntry, size, len(b))
	}
	entry.Term = term
	if appended != 0 {
		entry.AppendedAt = time.Unix(0, appended)
	}
	b = b[n:]
	entry.Data = append([]byte(nil), b[:size]...)
	entry.Extensions = append([]byte(nil), b[size:]...)
	return nil
}
