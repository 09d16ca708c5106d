package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// calls are all calls that a page makes, of a store as filled makes it.
func calls(pages int) []string {
	list := []string{
		"store", "store?fresh=1", "trees", "log", fmt.Sprintf("value?family=default&key=%x", "large"),
		fmt.Sprintf("pages?n=%d", min(pages, mostPages)),
	}
	for _, name := range []string{"default", "metrics", "sessions"} {
		list = append(list, "rows?family="+name, "expiry?family="+name)
	}
	for id := range pages {
		if id < 12 || id%9 == 0 {
			list = append(list, fmt.Sprintf("page?id=%d", id))
		}
	}
	return list
}

// TestEveryPageDamaged flips a byte in each page in turn, at a random place. Every call ends in an
// answer; a page in use is bad on the map, and nothing else is.
func TestEveryPageDamaged(t *testing.T) {
	racetest.OneGoroutine(t)
	sound, err := os.ReadFile(filled(t))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "damaged.ebb")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pages := len(sound) / 4096
	found := 0
	for id := 0; id < pages; id += racetest.Sample(1, 7) {
		b := bytes.Clone(sound)
		b[id*4096+random.IntN(4096)] ^= 1 << random.IntN(8)
		require.NoError(t, os.WriteFile(path, b, 0o600))
		s := New(Options{Path: path}, place(testHost))
		answer := storeAnswer{}
		get(t, s, "store", &answer)
		<-s.state.walk.ended
		for _, call := range calls(pages) {
			code, body, _ := ask(t, s, "/api/"+call, nil)
			require.Contains(t, []int{200, 400, 404, 500}, code, call)
			require.True(t, json.Valid([]byte(body)), call)
		}
		var all pagesAnswer
		get(t, s, "pages?n=4096", &all)
		for _, p := range all.Pages {
			hit := p.Pgid == uint64(id)
			if p.Kind == "overflow" && id > int(p.Pgid) && id < int(p.Pgid)+59 {
				hit = true // the checksum of a large value is in its first page
			}
			require.False(t, p.State == pageBad && !hit, "page %d is damaged: %+v", id, p)
			if p.State == pageBad {
				found++
			}
		}
		require.NoError(t, s.Close())
	}
	require.Greater(t, found, pages/racetest.Sample(1, 7)/2)
}

// TestFilesThatAreCutShort, without meta pages, or with bytes of chance, end in an answer, too.
func TestFilesThatAreCutShort(t *testing.T) {
	racetest.OneGoroutine(t)
	sound, err := os.ReadFile(filled(t))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "damaged.ebb")
	noise := rand.New(rand.NewPCG(1, 2))
	for name, change := range map[string]func([]byte) []byte{
		"cut at a page":     func(b []byte) []byte { return b[:40*4096] },
		"cut inside a page": func(b []byte) []byte { return b[:40*4096+77] },
		"no meta pages":     func(b []byte) []byte { clear(b[:8192]); return b },
		"noise": func(b []byte) []byte {
			for range 3000 {
				b[8192+noise.IntN(len(b)-8192)] = byte(noise.Uint32())
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, change(bytes.Clone(sound)), 0o600))
			s := openTest(t, path)
			a := walked(t, s)
			require.True(t, a.Error != "" || a.Walk.Found > 0, "%+v", a)
			for _, call := range calls(a.Pages) {
				code, body, _ := ask(t, s, "/api/"+call, nil)
				require.Contains(t, []int{200, 400, 404, 500}, code, call)
				require.True(t, json.Valid([]byte(body)), call)
			}
		})
	}
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("no store", 5000)), 0o600))
	code, body, _ := ask(t, openTest(t, path), "/api/store", nil)
	require.Equal(t, http.StatusInternalServerError, code, body)
}

// TestForgedPages changes bytes of a page in use and makes its checksum right again: what no accident
// does. Every call ends in an answer, soon and in bounded memory.
func TestForgedPages(t *testing.T) {
	racetest.OneGoroutine(t)
	path := filled(t)
	s := New(Options{Path: path}, place(testHost))
	var all pagesAnswer
	walked(t, s)
	get(t, s, "pages?n=4096", &all)
	salt := pager.Salt(s.state.meta.StoreID)
	require.NoError(t, s.Close())
	sound, err := os.ReadFile(path)
	require.NoError(t, err)
	var tree []uint64
	for _, p := range all.Pages {
		if p.State == pageUsed && p.Pgid >= 2 && p.Kind != continued {
			tree = append(tree, p.Pgid)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range racetest.Sample(150, 30) {
		b := bytes.Clone(sound)
		for range 1 + random.IntN(3) {
			id := tree[random.IntN(len(tree))]
			forged := b[id*4096 : (id+1)*4096]
			for range 1 + random.IntN(4) {
				at := 8 + random.IntN(120) // header, and heads, slots or children
				if random.IntN(3) == 0 {
					at = 8 + random.IntN(4088)
				}
				forged[at] = []byte{0, 1, 0x7f, 0x80, 0xff, byte(random.Uint32())}[random.IntN(6)]
			}
			pager.SetChecksum(forged, salt)
		}
		require.NoError(t, os.WriteFile(path, b, 0o600))
		done := bound.Hold(t, 1<<30)
		s := New(Options{Path: path}, place(testHost))
		get(t, s, "store", &storeAnswer{})
		<-s.state.walk.ended
		for _, call := range calls(len(all.Pages)) {
			code, body, _ := ask(t, s, "/api/"+call, nil)
			require.Contains(t, []int{200, 400, 404, 500}, code, call)
			require.True(t, json.Valid([]byte(body)), call)
			require.Less(t, len(body), 4<<20, call)
		}
		require.NoError(t, s.Close())
		done()
	}
}
