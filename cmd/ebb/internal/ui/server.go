package ui

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

//go:embed page
var page embed.FS

// Options of a Server.
type Options struct {
	FS    vfs.FS           // nil: vfs.OS
	Path  string           // of the main file
	Clock func() time.Time // nil: the system's
}

// A Server is the handler of one store. Several goroutines may use it.
type Server struct {
	o     Options
	token string
	host  string // address and port, as requests name them
	port  string
	api   map[string]func(*http.Request) (any, error)

	// mu guards the fields below: one request at a time reads the store.
	mu    sync.Mutex
	state *state // nil: nothing was asked for yet
}

// Listen listens on an address of this machine that no other one can reach.
func Listen(addr string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("%s is no address of this machine alone: use 127.0.0.1 or ::1", addr)
	}
	return net.Listen("tcp", net.JoinHostPort(ip.String(), port))
}

// New makes the handler for requests that come to addr.
func New(o Options, addr net.Addr) *Server {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	random := make([]byte, 24)
	_, _ = rand.Read(random) // does not fail
	s := &Server{
		o: o, token: base64.RawURLEncoding.EncodeToString(random),
		host: addr.String(),
	}
	_, s.port, _ = net.SplitHostPort(s.host)
	s.api = map[string]func(*http.Request) (any, error){
		"store": s.apiStore, "expiry": s.apiExpiry, "rows": s.apiRows, "value": s.apiValue,
		"pages": s.apiPages, "page": s.apiPage, "trees": s.apiTrees, "log": s.apiLog,
	}
	return s
}

// URL is the address of the page, with the token behind #, which a browser sends nowhere: the page
// keeps it, and sends it with its calls.
func (s *Server) URL() string { return "http://" + s.host + "/#token=" + s.token }

// Token is what requests of programs carry, as "Authorization: Bearer TOKEN".
func (s *Server) Token() string { return s.token }

// Serve answers requests until the context ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		WriteTimeout: time.Minute, MaxHeaderBytes: 32 << 10,
	}
	stop := context.AfterFunc(ctx, func() {
		_ = server.Close() // Serve returns then.
	})
	defer stop()
	err := server.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, s.Close())
}

// Close closes the store. No request may run.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.state.close()
	s.state = nil
	return err
}

// headers keep a page of another origin from reading an answer, and this page from loading anything
// that is not of this server.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; " +
		"connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cache-Control":                "no-store",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cross-Origin-Opener-Policy":   "same-origin",
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	site, navigates := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Fetch-Mode") == "navigate"
	switch {
	case !s.isHost(r.Host): // a name that another site has pointed at this machine
		fail(w, http.StatusMisdirectedRequest, "the host of this page is "+s.host)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "GET only: nothing can be changed here")
	case site != "" && site != "same-origin" && site != "none" && !navigates:
		fail(w, http.StatusForbidden, "another site asks")
	case !strings.HasPrefix(r.URL.Path, "/api/"):
		serveFile(w, strings.TrimPrefix(r.URL.Path, "/"))
	case !s.authorized(r):
		fail(w, http.StatusUnauthorized, "no token, or a wrong one: open the address that `ebb ui` prints")
	default:
		s.serveAPI(w, r)
	}
}

// types are the files of the page.
var types = map[string]string{
	"index.html": "text/html; charset=utf-8", "app.js": "text/javascript; charset=utf-8",
	"style.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml",
}

func serveFile(w http.ResponseWriter, name string) {
	if name == "" {
		name = "index.html"
	}
	b, err := page.ReadFile("page/" + name)
	if err != nil || types[name] == "" {
		fail(w, http.StatusNotFound, "there is nothing here")
		return
	}
	w.Header().Set("Content-Type", types[name])
	_, _ = w.Write(b) // a client that has gone
}

func fail(w http.ResponseWriter, code int, text string) { http.Error(w, text, code) }

// isHost says whether a request names this server, by its address or as localhost.
func (s *Server) isHost(host string) bool { return host == s.host || host == "localhost:"+s.port }

// authorized says whether a request has the token. A cookie would not do: a browser sends it to every
// port of this machine, whichever user's program listens there.
func (s *Server) authorized(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && subtle.ConstantTimeCompare([]byte(given), []byte(s.token)) == 1
}

// badRequest is an argument that makes no sense.
type badRequest struct{ error }

func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	call := s.api[strings.TrimPrefix(r.URL.Path, "/api/")]
	if call == nil {
		fail(w, http.StatusNotFound, "no such call")
		return
	}
	s.mu.Lock()
	answer, err := call(r)
	s.mu.Unlock()
	code := http.StatusOK
	if err != nil {
		code, answer = http.StatusInternalServerError, map[string]string{"error": err.Error()}
		switch {
		case errors.As(err, new(badRequest)):
			code = http.StatusBadRequest
		case errors.Is(err, kv.ErrNotFound), errors.Is(err, kv.ErrCFNotFound):
			code = http.StatusNotFound
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer) // a client that has gone
}

// number is an argument from 0 to most; absent it is otherwise.
func number(r *http.Request, name string, otherwise, most int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, badRequest{fmt.Errorf("%s is %q, want a number from 0 to %d", name, text, most)}
	}
	return n, nil
}
