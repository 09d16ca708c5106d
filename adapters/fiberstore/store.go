package fiberstore

import (
	"context"
	"errors"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/ebbkv/ebb/kv"
)

// Store implements fiber.Storage. It is safe for concurrent use.
type Store struct {
	db     *kv.DB
	family string
}

var _ fiber.Storage = (*Store)(nil)

// New returns a storage in a family of db, which it creates if absent.
func New(db *kv.DB, family string) (*Store, error) {
	return &Store{db, family}, db.EnsureCF(family, kv.CFOptions{})
}

// Get returns a value, or nil and no error if the key is absent or expired.
func (s *Store) Get(key string) ([]byte, error) {
	if key == "" {
		return nil, nil
	}
	value, err := s.db.CF(s.family).Get([]byte(key))
	if errors.Is(err, kv.ErrNotFound) {
		return nil, nil
	}
	return value, err
}

// GetWithContext is Get. A read never waits.
func (s *Store) GetWithContext(_ context.Context, key string) ([]byte, error) { return s.Get(key) }

// Set stores a value for that long, 0: for ever. Empty keys and values are ignored.
func (s *Store) Set(key string, value []byte, ttl time.Duration) error {
	return s.SetWithContext(context.Background(), key, value, ttl)
}

// SetWithContext is Set; ctx bounds the wait for other writers.
func (s *Store) SetWithContext(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if key == "" || len(value) == 0 {
		return nil
	}
	return s.update(ctx, func(f *kv.CF) error {
		if ttl == 0 {
			return f.Put([]byte(key), value)
		}
		return f.PutTTL([]byte(key), value, ttl)
	})
}

// Delete removes a key. An absent one is no error.
func (s *Store) Delete(key string) error { return s.DeleteWithContext(context.Background(), key) }

// DeleteWithContext is Delete; ctx bounds the wait for other writers.
func (s *Store) DeleteWithContext(ctx context.Context, key string) error {
	if key == "" {
		return nil
	}
	return s.update(ctx, func(f *kv.CF) error { return f.Delete([]byte(key)) })
}

// Reset removes all keys of the family.
func (s *Store) Reset() error { return s.ResetWithContext(context.Background()) }

// ResetWithContext is Reset; ctx bounds the wait for other writers.
func (s *Store) ResetWithContext(ctx context.Context) error { return s.update(ctx, (*kv.CF).Clear) }

// Close does nothing: the opener of the store closes it.
func (s *Store) Close() error { return nil }

func (s *Store) update(ctx context.Context, f func(*kv.CF) error) error {
	return s.db.UpdateContext(ctx, func(tx *kv.Tx) error { return f(tx.CF(s.family)) })
}
