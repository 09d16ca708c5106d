package scsstore_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/alexedwards/scs/v2"
	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/adapters/scsstore"
	"github.com/ebbkv/ebb/kv"
)

func open(t *testing.T) (s *scsstore.Store, sleep func(time.Duration)) {
	now := time.UnixMilli(1_800_000_000_000)
	db, err := kv.OpenMemory(&kv.Options{Clock: func() time.Time { return now }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s, err = scsstore.New(db, "sessions")
	require.NoError(t, err)
	return s, func(d time.Duration) { now = now.Add(d) }
}

func TestASessionIsAbsentFromItsExpiryOn(t *testing.T) {
	s, sleep := open(t)
	expiry := time.UnixMilli(1_800_000_000_000).Add(time.Minute)
	require.NoError(t, s.Commit("a", []byte("of a"), expiry))
	require.NoError(t, s.Commit("b", []byte("of b"), expiry.Add(time.Minute)))
	require.NoError(t, s.Commit("b", []byte("new"), expiry.Add(time.Hour)))
	all, err := s.All()
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"a": []byte("of a"), "b": []byte("new")}, all)

	sleep(time.Minute)
	_, found, err := s.Find("a")
	require.NoError(t, err)
	require.False(t, found)
	data, found, err := s.Find("b")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "new", string(data))
	require.NoError(t, s.Delete("b"))
	require.NoError(t, s.Delete("b"))
	all, err = s.All()
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{}, all)
}

func TestAMalformedTokenIsOfNoSession(t *testing.T) {
	s, _ := open(t)
	for _, token := range []string{"", string(make([]byte, 100_000))} {
		_, found, err := s.FindCtx(context.Background(), token)
		require.NoError(t, err)
		require.False(t, found)
	}
}

func TestASessionManagerKeepsWhatAClientPuts(t *testing.T) {
	manager := scs.New()
	store, _ := open(t)
	manager.Store = store
	// the system's clock; max-age is an int, of 32 bits on some processors
	manager.Lifetime = 50 * 365 * 24 * time.Hour
	mux := http.NewServeMux()
	mux.HandleFunc("/put", func(_ http.ResponseWriter, r *http.Request) {
		manager.Put(r.Context(), "user", r.URL.Query().Get("user"))
	})
	mux.HandleFunc("/get", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, manager.GetString(r.Context(), "user"))
	})
	server := httptest.NewServer(manager.LoadAndSave(mux))
	defer server.Close()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}
	get := func(path string) string {
		r, err := client.Get(server.URL + path)
		require.NoError(t, err)
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return string(b)
	}
	require.Equal(t, "", get("/get"))
	get("/put?user=ann")
	require.Equal(t, "ann", get("/get"))
}
