package ui

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/leak"
	"github.com/ebbkv/ebb/kv"
)

// TestMain fails if a test leaves a goroutine or an open file.
func TestMain(m *testing.M) { leak.Main(m) }

// place is an address as a listener has it.
type place string

func (place) Network() string  { return "tcp" }
func (p place) String() string { return string(p) }

const testHost = "127.0.0.1:4711"

// openTest serves the store at path; no request leaves the process.
func openTest(t *testing.T, path string) *Server {
	t.Helper()
	s := New(Options{Path: path}, place(testHost))
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// ask sends a request, which change may alter, and gives code and body.
func ask(t *testing.T, s *Server, target string, change func(*http.Request)) (int, string, http.Header) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	r.Host = testHost
	r.Header.Set("Authorization", "Bearer "+s.Token())
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String(), w.Header()
}

// get calls the API, which must succeed, and decodes the answer.
func get(t *testing.T, s *Server, call string, into any) {
	t.Helper()
	code, body, _ := ask(t, s, "/api/"+call, nil)
	require.Equal(t, http.StatusOK, code, "%s: %s", call, body)
	require.NoError(t, json.Unmarshal([]byte(body), into), "%s", call)
}

// newStore makes a store of what fill writes, and closes it.
func newStore(t *testing.T, fill func(*kv.DB) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.ebb")
	db, err := kv.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, fill(db))
	require.NoError(t, db.Close())
	return path
}

func empty(*kv.DB) error { return nil }

// TestOnlyTheHolderOfTheTokenGetsAnAnswer makes each call without the token, and with it in all the
// wrong ways.
func TestOnlyTheHolderOfTheTokenGetsAnAnswer(t *testing.T) {
	s := openTest(t, newStore(t, empty))
	paths := []string{"/api/none", "/api/"}
	for call := range s.api {
		paths = append(paths, "/api/"+call)
	}
	require.Greater(t, len(paths), 8)
	header := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", value) }
	}
	for _, path := range paths {
		for name, change := range map[string]func(*http.Request){
			"none":         func(r *http.Request) { r.Header.Del("Authorization") },
			"wrong":        header("Bearer " + strings.Repeat("x", 32)),
			"cut":          header("Bearer " + s.Token()[:31]),
			"other scheme": header("Basic " + s.Token()),
			"empty":        header("Bearer "),
			"a cookie": func(r *http.Request) {
				r.Header.Del("Authorization")
				r.AddCookie(&http.Cookie{Name: "token", Value: s.Token()})
			},
			"in the address": func(r *http.Request) {
				r.Header.Del("Authorization")
				r.URL.RawQuery = "token=" + s.Token()
			},
		} {
			code, body, _ := ask(t, s, path, change)
			require.Equal(t, http.StatusUnauthorized, code, "%s, %s", path, name)
			require.NotContains(t, body, s.Token())
			require.NotContains(t, body, "test.ebb")
		}
	}
}

// TestFilesOfThePageTellNothing: they are the same for every store, and need no token.
func TestFilesOfThePageTellNothing(t *testing.T) {
	s := openTest(t, newStore(t, empty))
	require.Equal(t, "http://"+testHost+"/#token="+s.Token(), s.URL())
	require.NotEqual(t, s.Token(), openTest(t, s.o.Path).Token())
	for name, kind := range types {
		code, body, header := ask(t, s, "/"+name, func(r *http.Request) { r.Header.Del("Authorization") })
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, kind, header.Get("Content-Type"))
		b, err := page.ReadFile("page/" + name)
		require.NoError(t, err)
		require.Equal(t, string(b), body)
		require.Empty(t, header.Get("Set-Cookie"))
	}
	for _, name := range []string{"/page", "/page/app.js", "/../server.go", "/index.html/", "//", "/none"} {
		code, _, _ := ask(t, s, name, nil)
		require.Equal(t, http.StatusNotFound, code, name)
	}
}

// TestOtherHostsAreRefused: a site whose name leads to this machine has the visitor's browser ask.
func TestOtherHostsAreRefused(t *testing.T) {
	s := openTest(t, newStore(t, empty))
	for _, host := range []string{
		"evil.example", "evil.example:4711", "127.0.0.1", "127.0.0.1:80", "localhost", "",
	} {
		code, _, _ := ask(t, s, "/api/store", func(r *http.Request) { r.Host = host })
		require.Equal(t, http.StatusMisdirectedRequest, code, "%q", host)
	}
	code, _, _ := ask(t, s, "/api/store", func(r *http.Request) { r.Host = "localhost:4711" })
	require.Equal(t, http.StatusOK, code, "a forwarded port")
}

func TestOnlyReadsAreServed(t *testing.T) {
	s := openTest(t, newStore(t, empty))
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"} {
		code, _, _ := ask(t, s, "/api/store", func(r *http.Request) { r.Method = method })
		require.Equal(t, http.StatusMethodNotAllowed, code, method)
	}
	for site, want := range map[string]int{
		"cross-site": http.StatusForbidden, "same-site": http.StatusForbidden,
		"same-origin": http.StatusOK, "none": http.StatusOK,
	} {
		code, _, _ := ask(t, s, "/api/store", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", site) })
		require.Equal(t, want, code, site)
	}
}

// TestEveryAnswerHasTheHeaders, also one that refuses.
func TestEveryAnswerHasTheHeaders(t *testing.T) {
	s := openTest(t, newStore(t, empty))
	for _, path := range []string{"/", "/app.js", "/api/store", "/api/none", "/none"} {
		for _, token := range []string{s.Token(), "wrong"} {
			_, _, header := ask(t, s, path, func(r *http.Request) {
				r.Header.Set("Authorization", "Bearer "+token)
			})
			for name, value := range headers {
				require.Equal(t, value, header.Get(name), "%s: %s", path, name)
			}
			require.Empty(t, header.Get("Access-Control-Allow-Origin"))
		}
	}
}

// TestPageLoadsNothingFromElsewhere: neither the policy nor the files name another origin, and no
// text of the store is ever markup.
func TestPageLoadsNothingFromElsewhere(t *testing.T) {
	require.NotContains(t, headers["Content-Security-Policy"], "unsafe")
	lines := 0
	for _, name := range []string{"index.html", "app.js", "style.css", "icon.svg"} {
		b, err := page.ReadFile("page/" + name)
		require.NoError(t, err)
		text := strings.ReplaceAll(string(b), "http://www.w3.org/2000/svg", "")
		for _, forbidden := range []string{
			`(?i)https?:|//[a-z0-9.-]+\.[a-z]{2,}/|@import|url\(`,
			`(?i)innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function`,
			`(?i)<[^>]*\s(on\w+|style)=`,
		} {
			require.NotRegexp(t, regexp.MustCompile(forbidden), text, name)
		}
		lines += strings.Count(text, "\n")
	}
	require.Less(t, lines, 700)
}

func TestListensOnThisMachineOnly(t *testing.T) {
	for _, addr := range []string{
		"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.0.0.1", "127.0.0.1.evil.example:0",
	} {
		_, err := Listen(addr)
		require.Error(t, err, addr)
	}
	for _, addr := range []string{"127.0.0.1:0", "localhost:0"} {
		l, err := Listen(addr)
		require.NoError(t, err, addr)
		require.Contains(t, l.Addr().String(), "127.0.0.1:")
		require.NoError(t, l.Close())
	}
}

// TestServeEndsWithItsContext: TestMain looks for what it leaves.
func TestServeEndsWithItsContext(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	s := New(Options{Path: newStore(t, empty)}, l.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, l) }()
	client := http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.host+"/api/store", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+s.Token())
	answer, err := client.Do(r)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	cancel()
	require.NoError(t, <-ended)
}
