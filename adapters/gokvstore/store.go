package gokvstore

import (
	"errors"

	"github.com/philippgille/gokv"
	"github.com/philippgille/gokv/encoding"

	"github.com/ebbkv/ebb/kv"
)

// Store implements gokv.Store. It is safe for concurrent use.
type Store struct {
	family *kv.Family
	codec  encoding.Codec
}

var _ gokv.Store = (*Store)(nil)

// ErrNil is returned for a value, or for a pointer to one, that is nil.
var ErrNil = errors.New("gokvstore: nil is no value")

// New returns a store in a family of db, which it creates if absent. A nil codec is encoding.JSON.
func New(db *kv.DB, family string, codec encoding.Codec) (*Store, error) {
	if codec == nil {
		codec = encoding.JSON
	}
	return &Store{db.CF(family), codec}, db.EnsureCF(family, kv.CFOptions{})
}

// Set stores the value v under the key k, with the default ttl of the family. It is durable as the
// other writes of the store are.
func (s *Store) Set(k string, v any) error {
	if v == nil {
		return ErrNil
	}
	value, err := s.codec.Marshal(v)
	if err != nil {
		return err
	}
	return s.family.Put([]byte(k), value)
}

// Get decodes the value of the key k into what v points to. An absent or expired key is not found, and
// leaves v as it is.
func (s *Store) Get(k string, v any) (found bool, err error) {
	if v == nil {
		return false, ErrNil
	}
	value, err := s.family.Get([]byte(k))
	if errors.Is(err, kv.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, s.codec.Unmarshal(value, v)
}

// Delete removes a key. An absent one is no error.
func (s *Store) Delete(k string) error { return s.family.Delete([]byte(k)) }

// Close does nothing: the store belongs to its opener.
func (s *Store) Close() error { return nil }
