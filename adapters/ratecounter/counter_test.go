package ratecounter_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/adapters/ratecounter"
	"github.com/ebbkv/ebb/kv"
)

func TestCountsAreOfTheirWindowAndExpire(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	db, err := kv.OpenMemory(&kv.Options{Clock: func() time.Time { return now }})
	require.NoError(t, err)
	defer db.Close()
	c, err := ratecounter.New(db, "limits")
	require.NoError(t, err)
	c.Config(10, time.Minute)
	first, second := now, now.Add(time.Minute)
	require.NoError(t, c.Increment("ann", first))
	require.NoError(t, c.IncrementBy("ann", first, 4))
	require.NoError(t, c.Increment("bob", first))
	require.NoError(t, c.Increment("ann", second))
	current, previous, err := c.Get("ann", second, first)
	require.NoError(t, err)
	require.Equal(t, [2]int{1, 5}, [2]int{current, previous})

	now = now.Add(2 * time.Minute)
	current, previous, err = c.Get("ann", first, second)
	require.NoError(t, err)
	require.Equal(t, [2]int{0, 0}, [2]int{current, previous})
}

func TestALimitOutlivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.ebb")
	// Windows are of the system's clock: one of a hundred years does not end meanwhile.
	const window = 100 * 365 * 24 * time.Hour
	for _, want := range [][]int{{200, 200}, {200, 429}} {
		db, err := kv.Open(path, nil)
		require.NoError(t, err)
		c, err := ratecounter.New(db, "limits")
		require.NoError(t, err)
		limit := httprate.LimitBy(3, window, httprate.Key("*"), httprate.WithLimitCounter(c))
		server := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for _, code := range want {
			w := httptest.NewRecorder()
			server.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			require.Equal(t, code, w.Code)
		}
		require.NoError(t, db.Close())
	}
}
