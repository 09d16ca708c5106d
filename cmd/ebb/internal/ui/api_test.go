package ui

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/kv"
)

// storeAnswer is a part of what api/store gives.
type storeAnswer struct {
	Error    string         `json:"error"`
	Families []family       `json:"families"`
	Walk     progress       `json:"walk"`
	Metas    []metaPage     `json:"metas"`
	Pages    int            `json:"pages"`
	Used     int            `json:"used_pages"`
	Stats    map[string]any `json:"stats"`
}

type pagesAnswer struct {
	Pages []pageInfo `json:"pages"`
	All   int        `json:"all"`
}

type treesAnswer struct {
	Trees  []treeInfo `json:"trees"`
	Births []birth    `json:"births"`
}

// walked waits until the trees are read, and gives the store.
func walked(t *testing.T, s *Server) (a storeAnswer) {
	t.Helper()
	get(t, s, "store", &a)
	<-s.state.walk.ended
	a = storeAnswer{}
	get(t, s, "store", &a)
	require.True(t, a.Walk.Done)
	return a
}

const testRows = 1000

// filled makes a store with rows of each kind.
func filled(t *testing.T) string {
	t.Helper()
	return newStore(t, func(db *kv.DB) error {
		if err := db.CreateCF("metrics", kv.CFOptions{Retention: 48 * time.Hour}); err != nil {
			return err
		}
		if err := db.CreateCF("sessions", kv.CFOptions{DefaultTTL: time.Hour}); err != nil {
			return err
		}
		return db.Update(func(tx *kv.Tx) error {
			for i := range testRows {
				value := fmt.Appendf(nil, `{"n":%d,"big":12345678901234567890}`, i)
				if err := tx.Put(fmt.Appendf(nil, "key-%04d", i), value); err != nil {
					return err
				}
				ttl := time.Duration(i+1) * 30 * time.Second
				session := fmt.Appendf(nil, "s-%d", i)
				if err := tx.CF("sessions").PutTTL(session, []byte{0xff, byte(i)}, ttl); err != nil {
					return err
				}
				at := time.Now().Add(-time.Duration(i) * time.Minute)
				if err := tx.CF("metrics").Append(at, fmt.Appendf(nil, "m-%d", i%3), value); err != nil {
					return err
				}
			}
			return tx.Put([]byte("large"), bytes.Repeat([]byte("large value "), 20_000))
		})
	})
}

func TestStoreShowsFamilies(t *testing.T) {
	s := openTest(t, filled(t))
	a := walked(t, s)
	require.Empty(t, a.Error)
	require.Zero(t, a.Walk.Found)
	names := []string{}
	for _, f := range a.Families {
		names = append(names, f.Name)
		require.Empty(t, f.Error)
	}
	require.Equal(t, []string{"default", "metrics", "sessions"}, names)
	require.Equal(t, family{Name: "default", Rows: testRows + 1}, a.Families[0])
	require.True(t, a.Families[1].Partitioned)
	require.Equal(t, int64(testRows), a.Families[2].TTLRows)
	require.Equal(t, time.Hour.Milliseconds(), a.Families[2].DefaultTTL)
	require.InDelta(t, time.Now().UnixMilli(), a.Families[2].NextExpiry, 120_000)
	require.Greater(t, a.Pages, 10)
	require.Len(t, a.Metas, 2)
}

// TestRowsAreAllThere pages through each family: every row comes once, in order.
func TestRowsAreAllThere(t *testing.T) {
	s := openTest(t, filled(t))
	for _, name := range []string{"default", "metrics", "sessions"} {
		seen, query := map[string]bool{}, "rows?family="+name
		for pages := 0; ; pages++ {
			require.Less(t, pages, 20)
			var p rowsPage
			get(t, s, query, &p)
			require.LessOrEqual(t, len(p.Rows), mostRows)
			for _, r := range p.Rows {
				at := int64(0)
				if name == "metrics" {
					at = *r.Time
				}
				id := fmt.Sprintf("%s at %d", r.Key, at)
				require.False(t, seen[id], "%s comes twice", id)
				seen[id] = true
				switch {
				case string(r.Key) == "large":
					require.True(t, r.Unread)
					require.Equal(t, 240_000, r.Size)
				case name == "sessions":
					require.NotZero(t, r.Expiry)
				default:
					require.Contains(t, string(r.Value), `{"n":`)
				}
			}
			if !p.More {
				break
			}
			query = fmt.Sprintf("rows?family=%s&after=%x", name, p.After)
			if name == "metrics" {
				query += fmt.Sprintf("&after_time=%d", p.AfterTime)
			}
		}
		want := testRows
		if name == "default" {
			want++
		}
		require.Len(t, seen, want, name)
	}
	var p rowsPage
	get(t, s, "rows?family=default&prefix="+hex.EncodeToString([]byte("key-001")), &p)
	require.Len(t, p.Rows, 10)
	require.False(t, p.More)
	p = rowsPage{}
	get(t, s, "rows?family=metrics&prefix="+hex.EncodeToString([]byte("m-2")), &p)
	require.Len(t, p.Rows, mostRows)
	require.Equal(t, "m-2", string(p.Rows[7].Key))
}

// TestValuesAreCut: an answer has a bounded part of a value, and its size; JSON keeps its digits.
func TestValuesAreCut(t *testing.T) {
	s := openTest(t, filled(t))
	var v struct {
		Size  int    `json:"size"`
		Value []byte `json:"value"`
		JSON  string `json:"json"`
	}
	get(t, s, fmt.Sprintf("value?family=default&key=%x", "large"), &v)
	require.Equal(t, 240_000, v.Size)
	require.Len(t, v.Value, valueChunk)
	get(t, s, fmt.Sprintf("value?family=default&key=%x&offset=239999", "large"), &v)
	require.Equal(t, " ", string(v.Value))
	v.Value = nil
	get(t, s, fmt.Sprintf("value?family=default&key=%x&offset=2000000", "large"), &v)
	require.Empty(t, v.Value)
	get(t, s, fmt.Sprintf("value?family=default&key=%x", "key-0001"), &v)
	require.Contains(t, v.JSON, "\n  \"big\": 12345678901234567890\n")
	for _, bad := range []string{
		"value?family=default&key=zz", "value?family=default&key=00&offset=-1",
		"rows?family=default&prefix=0",
		"rows?family=metrics&after_time=x",
		"pages?n=100000", "pages?from=x", "page?id=99999999", "page?id=1e3",
	} {
		code, _, _ := ask(t, s, "/api/"+bad, nil)
		require.Equal(t, http.StatusBadRequest, code, bad)
	}
	for _, absent := range []string{"rows?family=none", "expiry?family=none", "value?family=default&key=00"} {
		code, _, _ := ask(t, s, "/api/"+absent, nil)
		require.Equal(t, http.StatusNotFound, code, absent)
	}
}

// TestExpiryCountsWhatIsToCome by a clock of the test: 2 keys a minute.
func TestExpiryCountsWhatIsToCome(t *testing.T) {
	path := filled(t)
	began := time.Now()
	s := openTest(t, path)
	s.o.Clock = func() time.Time { return began.Add(10 * time.Minute) }
	for _, name := range []string{"sessions", "metrics", "default"} {
		var a struct {
			Due    int64  `json:"due"`
			Minute []bin  `json:"minute"`
			Hour   []bin  `json:"hour"`
			Day    []bin  `json:"day"`
			Soon   []soon `json:"soon"`
		}
		get(t, s, "expiry?family="+name, &a)
		sum := func(bins []bin) (n int64) {
			for i, b := range bins {
				n += b.Keys
				require.True(t, i == 0 || bins[i-1].To == b.From)
			}
			return n
		}
		if name != "sessions" {
			require.Zero(t, a.Due+sum(a.Minute)+sum(a.Hour))
			require.Empty(t, a.Soon)
			continue
		}
		require.InDelta(t, 20, a.Due, 1)
		require.InDelta(t, 2, sum(a.Minute), 1)
		require.InDelta(t, 120, sum(a.Hour), 2)
		require.Equal(t, testRows-a.Due, sum(a.Day))
		require.Len(t, a.Soon, mostSoon)
		require.InDelta(t, s.o.Clock().UnixMilli(), a.Soon[0].At, 31_000)
	}
}

// TestPagesAndTreesAddUp: each page in use belongs to a tree, or to the free map, or is a meta page.
func TestPagesAndTreesAddUp(t *testing.T) {
	s := openTest(t, filled(t))
	store := walked(t, s)
	var map1, map2 pagesAnswer
	get(t, s, "pages?n=4096", &map1)
	require.Len(t, map1.Pages, store.Pages)
	get(t, s, "pages?from=7&n=5", &map2)
	require.Equal(t, map1.Pages[7:12], map2.Pages)
	var trees treesAnswer
	get(t, s, "trees", &trees)
	byTree, kinds, used := map[int]int64{}, map[string]int{}, 0
	for i, p := range map1.Pages {
		require.Equal(t, uint64(i), p.Pgid)
		require.NotEqual(t, pageBad, p.State, "%+v", p)
		if p.State == pageFree {
			require.Equal(t, -1, p.Tree, "%+v", p)
			continue
		}
		used++
		kinds[p.Kind]++
		if p.Tree >= 0 {
			byTree[p.Tree]++
		} else {
			require.Contains(t, []string{"meta", "free map", "free directory"}, p.Kind)
		}
	}
	require.Equal(t, store.Used, used)
	require.Greater(t, kinds["leaf"], 10)
	require.Equal(t, 1, kinds["overflow"])
	require.Equal(t, 58, kinds["overflow, continued"])
	roles, births := map[string]bool{}, int64(0)
	for i, tree := range trees.Trees {
		pages, entries := tree.ExtentPages, int64(0)
		for _, l := range tree.Levels {
			pages += l.Pages
		}
		if len(tree.Levels) > 0 {
			entries = tree.Levels[0].Rows
		}
		require.Equal(t, byTree[i], pages, "%+v", tree)
		require.Equal(t, int64(tree.Rows), entries, "%+v", tree)
		roles[tree.Family+" "+strings.Fields(tree.Role)[0]] = true
		births += pages - tree.ExtentPages
	}
	require.Subset(t, roles, map[string]bool{
		"default data": true, "sessions key": true, "sessions expiry": true,
		"metrics partition": true, " catalog": true,
	})
	for _, b := range trees.Births {
		births -= b.Pages
	}
	require.Zero(t, births)
}

// TestPageShowsItsContents of each kind.
func TestPageShowsItsContents(t *testing.T) {
	s := openTest(t, filled(t))
	walked(t, s)
	var all pagesAnswer
	get(t, s, "pages?n=4096", &all)
	seen := map[string]bool{}
	for _, p := range all.Pages {
		var a struct {
			Page    pageInfo  `json:"page"`
			Bytes   []byte    `json:"bytes"`
			Tree    string    `json:"tree"`
			Entries []entry   `json:"entries"`
			Meta    *metaPage `json:"meta"`
			Size    int       `json:"value_size"`
		}
		get(t, s, fmt.Sprintf("page?id=%d", p.Pgid), &a)
		require.Equal(t, p, a.Page)
		require.Len(t, a.Bytes, 4096)
		if p.State != pageUsed {
			continue
		}
		seen[p.Kind] = true
		switch p.Kind {
		case "leaf", "branch":
			require.Len(t, a.Entries, min(int(p.Count), mostEntries))
			require.NotEmpty(t, a.Tree)
			require.Equal(t, p.Kind == "branch", a.Entries[0].Child != 0)
		case "meta":
			require.True(t, a.Meta.Valid)
		case "overflow":
			require.Equal(t, 240_000, a.Size)
		}
	}
	require.Len(t, seen, 7, "%v", seen)
}

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
	for i := range racetest.Sample(80, 20) {
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
	require.Greater(t, changed, 5)
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

// TestAbsentFile is an error, and becomes a store when there is one.
func TestAbsentFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "absent.ebb")
	s := openTest(t, path)
	code, body, _ := ask(t, s, "/api/store", nil)
	require.Equal(t, http.StatusInternalServerError, code)
	require.Contains(t, body, "no such file")
	_, err := os.Stat(path)
	require.True(t, errors.Is(err, os.ErrNotExist), "nothing is created")
	db, err := kv.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	get(t, s, "store", &storeAnswer{})
}
