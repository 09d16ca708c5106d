package fiberstore_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/limiter"
	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/adapters/fiberstore"
	"github.com/ebbkv/ebb/kv"
)

func open(t *testing.T) (s *fiberstore.Store, sleep func(time.Duration)) {
	now := time.UnixMilli(1_800_000_000_000)
	db, err := kv.OpenMemory(&kv.Options{Clock: func() time.Time { return now }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s, err = fiberstore.New(db, "fiber")
	require.NoError(t, err)
	return s, func(d time.Duration) { now = now.Add(d) }
}

func TestTheContractOfAStorage(t *testing.T) {
	s, sleep := open(t)
	holds := func(key, want string) {
		t.Helper()
		got, err := s.Get(key)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		require.Equal(t, want == "", got == nil)
	}
	holds("absent", "")
	holds("", "")
	require.NoError(t, s.Set("", []byte("ignored"), 0))
	require.NoError(t, s.Set("empty", nil, 0))
	holds("empty", "")
	require.NoError(t, s.Set("for ever", []byte("1"), 0))
	require.NoError(t, s.Set("a minute", []byte("2"), time.Minute))
	holds("a minute", "2")
	sleep(time.Minute)
	holds("a minute", "")
	holds("for ever", "1")
	require.NoError(t, s.Delete("for ever"))
	require.NoError(t, s.Delete("for ever"))
	require.NoError(t, s.Delete(""))
	holds("for ever", "")
	require.NoError(t, s.Set("k", []byte("v"), 0))
	require.NoError(t, s.Reset())
	holds("k", "")
	require.NoError(t, s.Close())
	require.NoError(t, s.Set("k", []byte("v"), 0), "Close leaves the store open")
}

func TestFibersLimiterCounts(t *testing.T) {
	s, _ := open(t)
	app := fiber.New()
	app.Use(limiter.New(limiter.Config{Max: 2, Expiration: time.Hour, Storage: s}))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("ok") })
	for _, want := range []int{200, 200, 429, 429} {
		r, err := app.Test(httptest.NewRequest("GET", "/", nil))
		require.NoError(t, err)
		require.Equal(t, want, r.StatusCode)
	}
}
