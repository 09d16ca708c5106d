package ui

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/kv"
)

// TestLiveStore looks while another opener writes, takes no lock, and shows each commit that was
// made before it was asked for a fresh state; rows of one commit are never mixed with another's.
func TestLiveStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "live.ebb")
	db, err := kv.Open(path, &kv.Options{Durability: kv.NoSync, CheckpointBytes: 256 << 10})
	require.NoError(t, err)
	write := func(n int) error {
		return db.Update(func(tx *kv.Tx) error {
			for i := range 50 {
				value := append(fmt.Appendf(nil, "%08d", n), make([]byte, (n+i)*37%2000)...)
				if err := tx.Put(fmt.Appendf(nil, "row-%02d", i), value); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, write(0))
	s := openTest(t, path)
	var tick time.Duration
	s.o.Clock = func() time.Time { tick += time.Second; return time.Now().Add(tick) }
	stop := make(chan struct{})
	var writer sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); writer.Wait() })
	defer end()
	writer.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
				if err := write(n); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	last, changed := "", 0
	looks := racetest.Sample(40, 16)
	if racetest.Enabled {
		looks = 8
	}
	for i := range looks {
		call := "rows?family=default"
		if i%2 == 0 {
			call += "&fresh=1"
		}
		var p rowsPage
		get(t, s, call, &p)
		require.Len(t, p.Rows, 50)
		first := string(p.Rows[0].Value[:8])
		for _, r := range p.Rows {
			require.Nil(t, r.Gap)
			require.Equal(t, first, string(r.Value[:8]))
		}
		require.GreaterOrEqual(t, first, last)
		if first != last {
			changed++
		}
		last = first
		for _, other := range []string{"store", "trees", "log", "pages?n=200"} {
			code, body, _ := ask(t, s, "/api/"+other, nil)
			require.Equal(t, http.StatusOK, code, "%s: %s", other, body)
		}
	}
	end()
	require.Greater(t, changed, 2)
	require.NoError(t, db.Put([]byte("last"), []byte("it is in the log only")))
	var p rowsPage
	get(t, s, "rows?family=default&fresh=1&prefix="+hex.EncodeToString([]byte("last")), &p)
	require.Len(t, p.Rows, 1)
	require.NoError(t, db.Close(), "the server holds no lock")
	db, err = kv.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.Zero(t, walked(t, s).Walk.Found)
}
