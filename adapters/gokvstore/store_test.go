package gokvstore_test

import (
	"testing"
	"time"

	"github.com/philippgille/gokv/encoding"
	gokvtest "github.com/philippgille/gokv/test"
	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/adapters/gokvstore"
	"github.com/ebbkv/ebb/kv"
)

func open(t *testing.T, codec encoding.Codec) (*kv.DB, *gokvstore.Store) {
	t.Helper()
	db, err := kv.OpenMemory(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s, err := gokvstore.New(db, "objects", codec)
	require.NoError(t, err)
	return db, s
}

// TestTheSuiteOfGokv runs the tests that gokv has for its own stores.
func TestTheSuiteOfGokv(t *testing.T) {
	codecs := map[string]encoding.Codec{"default": nil, "json": encoding.JSON, "gob": encoding.Gob}
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			_, s := open(t, codec)
			t.Run("store", func(t *testing.T) { gokvtest.TestStore(s, t) })
			t.Run("types", func(t *testing.T) { gokvtest.TestTypes(s, t) })
			t.Run("concurrent", func(t *testing.T) { gokvtest.TestConcurrentInteractions(t, 50, s) })
			require.NoError(t, s.Close())
		})
	}
}

func TestWhatIsNoKeyOrValueIsAnError(t *testing.T) {
	_, s := open(t, nil)
	require.ErrorIs(t, s.Set("", "v"), kv.ErrKeyEmpty)
	require.ErrorIs(t, s.Delete(""), kv.ErrKeyEmpty)
	_, err := s.Get("", new(string))
	require.ErrorIs(t, err, kv.ErrKeyEmpty)
	require.ErrorIs(t, s.Set("k", nil), gokvstore.ErrNil)
	_, err = s.Get("k", nil)
	require.ErrorIs(t, err, gokvstore.ErrNil)
	require.Error(t, s.Set("k", func() {}), "JSON has no functions")
	found, err := s.Get("k", new(string))
	require.NoError(t, err)
	require.False(t, found)
}

// TestValuesAreThereInTheFamily for a program that reads them without gokv, and expire with its ttl.
func TestValuesAreThereInTheFamily(t *testing.T) {
	db, s := open(t, nil)
	require.NoError(t, s.Set("k", map[string]int{"n": 1}))
	value, err := db.CF("objects").Get([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, `{"n":1}`, string(value))
	require.NoError(t, db.AlterCF("objects", kv.CFOptions{DefaultTTL: time.Hour}))
	require.NoError(t, s.Set("k", 2))
	ttl, err := db.CF("objects").TTL([]byte("k"))
	require.NoError(t, err)
	require.Greater(t, ttl, 59*time.Minute)
}
