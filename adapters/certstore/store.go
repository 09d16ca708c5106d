package certstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/ebbkv/ebb/kv"
)

// Store implements certmagic.Storage, and the TryLocker of certmagic's newer releases. It is safe for
// concurrent use.
//
// One process at a time has a store open. So the locks are in memory: none is left over by a crash.
type Store struct {
	db     *kv.DB
	family string

	mu    sync.Mutex
	locks map[string]chan struct{} // names that are locked; closed by Unlock
}

var _ certmagic.Storage = (*Store)(nil)

// New returns a certificate store in a family of db, which it creates if absent.
func New(db *kv.DB, family string) (*Store, error) {
	return &Store{db: db, family: family, locks: make(map[string]chan struct{})},
		db.EnsureCF(family, kv.CFOptions{})
}

// A value is the instant at which it was stored, in Unix milliseconds, then its bytes.
const stampSize = 8

// Store puts a value.
func (s *Store) Store(ctx context.Context, key string, value []byte) error {
	return s.db.UpdateContext(ctx, func(tx *kv.Tx) error {
		stamp := binary.BigEndian.AppendUint64(nil, uint64(tx.Now().UnixMilli()))
		return tx.CF(s.family).Put([]byte(clean(key)), append(stamp, value...))
	})
}

// Load returns a value, or fs.ErrNotExist.
func (s *Store) Load(ctx context.Context, key string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	value, err := s.db.CF(s.family).Get([]byte(clean(key)))
	if err != nil {
		return nil, err
	}
	if len(value) < stampSize {
		return nil, fmt.Errorf("certstore: %q: not a value of this package", key)
	}
	return value[stampSize:], nil
}

// Delete removes a key, or a directory with all that is in it. An absent one is no error.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.db.UpdateContext(ctx, func(tx *kv.Tx) error {
		f := tx.CF(s.family)
		if err := f.Delete([]byte(clean(key))); err != nil {
			return err
		}
		return f.DeletePrefix([]byte(clean(key) + "/"))
	})
}

// Exists says whether there is such a key or directory.
func (s *Store) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	return err == nil
}

// Stat describes a key or directory, or returns fs.ErrNotExist.
func (s *Store) Stat(ctx context.Context, key string) (info certmagic.KeyInfo, err error) {
	info.Key = key
	if err := ctx.Err(); err != nil {
		return info, err
	}
	err = s.db.View(func(tx *kv.Tx) error {
		f := tx.CF(s.family)
		for range f.Scan(kv.ScanOptions{Prefix: []byte(clean(key) + "/"), KeysOnly: true, Limit: 1}) {
			return nil
		}
		value, err := f.Get([]byte(clean(key)))
		if err == nil && len(value) >= stampSize {
			info.IsTerminal = true
			info.Size = int64(len(value) - stampSize)
			info.Modified = time.UnixMilli(int64(binary.BigEndian.Uint64(value)))
		}
		return err
	})
	return info, err
}

// List returns the keys in a directory: with recursive all below it, else its own keys and the names
// of its directories. There is no directory without keys: an empty result is fs.ErrNotExist.
func (s *Store) List(ctx context.Context, path string, recursive bool) (keys []string, err error) {
	prefix := clean(path)
	if prefix != "" {
		prefix += "/"
	}
	err = s.db.View(func(tx *kv.Tx) error {
		c := tx.CF(s.family).CursorIn(kv.ScanOptions{Prefix: []byte(prefix), KeysOnly: true})
		for ok := c.First(); ok; {
			if err := ctx.Err(); err != nil {
				return err
			}
			key := string(c.Key())
			name, _, below := strings.Cut(key[len(prefix):], "/")
			if recursive || !below {
				keys = append(keys, key)
				ok = c.Next()
				continue
			}
			keys = append(keys, prefix+name)
			ok = c.Seek([]byte(prefix + name + "0")) // '0' follows '/': behind all keys of this directory
		}
		return c.Err()
	})
	if err == nil && len(keys) == 0 {
		err = kv.ErrNotFound // it is fs.ErrNotExist
	}
	return keys, err
}

// Lock waits until the name is unlocked or ctx ends, and locks it.
func (s *Store) Lock(ctx context.Context, name string) error {
	for {
		unlocked := s.lock(name)
		if unlocked == nil {
			return nil
		}
		select {
		case <-unlocked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TryLock locks the name if it is not locked.
func (s *Store) TryLock(ctx context.Context, name string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	return s.lock(name) == nil, nil
}

// lock locks the name and returns nil, or returns what the present holder's Unlock closes.
func (s *Store) lock(name string) (unlocked chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.locks[name]; held != nil {
		return held
	}
	s.locks[name] = make(chan struct{})
	return nil
}

// Unlock unlocks a name.
func (s *Store) Unlock(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.locks[name]
	if held == nil {
		return fmt.Errorf("certstore: lock %q is not held", name)
	}
	delete(s.locks, name)
	close(held)
	return nil
}

// clean is the form in which keys are stored: without slashes at either end.
func clean(key string) string { return strings.Trim(key, "/") }
