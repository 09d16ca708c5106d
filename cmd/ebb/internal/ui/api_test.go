package ui

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	for _, absent := range []string{
		"rows?family=none", "expiry?family=none", "value?family=default&key=00",
	} {
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
