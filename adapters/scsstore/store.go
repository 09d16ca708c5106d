package scsstore

import (
	"context"
	"errors"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/ebbkv/ebb/kv"
)

// Store implements scs.CtxStore and scs.IterableCtxStore. It is safe for concurrent use.
type Store struct {
	db     *kv.DB
	family string
}

var (
	_ scs.CtxStore         = (*Store)(nil)
	_ scs.IterableStore    = (*Store)(nil)
	_ scs.IterableCtxStore = (*Store)(nil)
)

// New returns a session store in a family of db, which it creates if absent.
func New(db *kv.DB, family string) (*Store, error) {
	return &Store{db, family}, db.EnsureCF(family, kv.CFOptions{})
}

// Find returns the data of a session.
func (s *Store) Find(token string) (data []byte, found bool, err error) {
	if token == "" || len(token) > s.db.MaxKeySize() {
		return nil, false, nil // a malformed token is of no session
	}
	data, err = s.db.CF(s.family).Get([]byte(token))
	if errors.Is(err, kv.ErrNotFound) {
		return nil, false, nil
	}
	return data, err == nil, err
}

// FindCtx is Find. A read never waits.
func (s *Store) FindCtx(_ context.Context, token string) ([]byte, bool, error) { return s.Find(token) }

// Commit stores the data of a session until expiry.
func (s *Store) Commit(token string, data []byte, expiry time.Time) error {
	return s.CommitCtx(context.Background(), token, data, expiry)
}

// CommitCtx is Commit; ctx bounds the wait for other writers.
func (s *Store) CommitCtx(ctx context.Context, token string, data []byte, expiry time.Time) error {
	return s.db.UpdateContext(ctx, func(tx *kv.Tx) error {
		return tx.CF(s.family).PutExpireAt([]byte(token), data, expiry)
	})
}

// Delete removes a session. An absent one is no error.
func (s *Store) Delete(token string) error { return s.DeleteCtx(context.Background(), token) }

// DeleteCtx is Delete; ctx bounds the wait for other writers.
func (s *Store) DeleteCtx(ctx context.Context, token string) error {
	return s.db.UpdateContext(ctx, func(tx *kv.Tx) error {
		return tx.CF(s.family).Delete([]byte(token))
	})
}

// All returns the data of all sessions, of one snapshot.
func (s *Store) All() (map[string][]byte, error) { return s.AllCtx(context.Background()) }

// AllCtx is All; it stops when ctx ends.
func (s *Store) AllCtx(ctx context.Context) (map[string][]byte, error) {
	sessions := make(map[string][]byte)
	err := s.db.View(func(tx *kv.Tx) error {
		for token, data := range tx.CF(s.family).All() {
			if err := ctx.Err(); err != nil {
				return err
			}
			sessions[string(token)] = append([]byte{}, data...)
		}
		return nil
	})
	return sessions, err
}
