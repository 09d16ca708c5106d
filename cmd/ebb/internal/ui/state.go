package ui

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ebbkv/ebb/internal/live"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/txn"
)

// A state is the store at one instant: what requests show until they ask for a fresh one, or until a
// later checkpoint of another process has reused its pages.
type state struct {
	at      time.Time
	raw     *pager.RawFile
	meta    *pager.Meta    // nil: no valid meta page, so neither trees nor the use of pages are known
	used    *pager.UsedSet // pages in use by the free map
	known   *pager.UsedSet // pages of which the free map can be read
	db      *kv.DB         // nil: it cannot be opened
	openErr error
	walk    *walk
}

var errNoMeta = errors.New("neither meta page is valid")

const (
	cacheBytes = 64 << 20
	// mostTries bounds the opens of a store that another process checkpoints meanwhile.
	mostTries = 20
	// freshAfter is the age from which on a request for a fresh state gets one: an open may replay a
	// long log.
	freshAfter = 500 * time.Millisecond
)

// open opens the file and the store, without a lock.
func (s *Server) open(ctx context.Context) (*state, error) {
	fsys, path := live.Unlocked(s.o.FS), vfs.Follow(s.o.Path)
	var last *state
	for range mostTries {
		if last != nil {
			_ = last.close() // It was open to read.
			time.Sleep(5 * time.Millisecond)
		}
		raw, err := pager.OpenRaw(fsys, path, true)
		if err != nil {
			return nil, err
		}
		t := &state{at: s.o.Clock(), raw: raw}
		last = t
		t.meta, _ = raw.Meta()
		t.used, t.known = pager.NewUsedSet(raw.Pages()), pager.NewUsedSet(raw.Pages())
		if t.meta != nil && !t.meta.FreeDir.IsZero() {
			t.used, t.known = raw.FreeMap(t.meta.FreeDir)
		}
		options := kv.Options{ReadOnly: true, MustExist: true, CacheBytes: cacheBytes, Clock: s.o.Clock}
		t.db, t.openErr = openfs.Open(fsys, path, &options, txn.Options{})
		if t.openErr != nil && t.meta == nil {
			t.openErr = errNoMeta // Open takes such a file for none of ours
		}
		if t.openErr == nil && !s.moved(t) || t.openErr != nil && !s.changes(ctx, t) {
			t.walk = startWalk(fsys, path, t.meta, s.moved)
			return t, nil
		}
	}
	last.walk = startWalk(fsys, path, last.meta, s.moved)
	return last, nil
}

// changes says whether the store may become readable by itself: another process is at work on it.
func (s *Server) changes(ctx context.Context, t *state) bool {
	return ctx.Err() == nil && (s.moved(t) || vfs.HolderOf(vfs.Follow(s.o.Path)) != "")
}

// moved says whether a later checkpoint than that of the state is complete, or the file another one.
func (s *Server) moved(t *state) bool {
	now, err := pager.OpenLive(s.o.FS, vfs.Follow(s.o.Path))
	if err != nil {
		return false
	}
	defer now.Close()
	for range mostTries {
		if ok, err := now.ReadAgain(); err != nil || ok {
			break
		}
		time.Sleep(time.Millisecond)
	}
	m, _ := now.Meta()
	return m != nil && (t.meta == nil || m.Epoch != t.meta.Epoch || m.StoreID != t.meta.StoreID)
}

func (t *state) close() error {
	if t == nil {
		return nil
	}
	if t.walk != nil {
		t.walk.stop()
	}
	err := t.raw.Close()
	if t.db != nil {
		err = errors.Join(err, t.db.Close())
	}
	return err
}

// current gives the state that a request reads; one with fresh=1 has it opened again.
func (s *Server) current(r *http.Request) (*state, error) {
	if s.state == nil {
		return s.reopen(r.Context())
	}
	if r.URL.Query().Get("fresh") == "1" && s.o.Clock().Sub(s.state.at).Abs() > freshAfter {
		return s.reopen(r.Context())
	}
	return s.state, nil
}

func (s *Server) reopen(ctx context.Context) (*state, error) {
	t, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	_ = s.state.close() // It was open to read.
	s.state = t
	return t, nil
}

// read calls fn with the present state, and again with a later one if fn has found damage and another
// process has completed a checkpoint: then it may have been the pages that it reused.
func (s *Server) read(r *http.Request, fn func(*state) (damaged bool, err error)) error {
	t, err := s.current(r)
	for try := 0; err == nil; try++ {
		var damaged bool
		damaged, err = fn(t)
		if !damaged && !errors.Is(err, kv.ErrCorrupt) || try == 3 || !s.moved(t) {
			break
		}
		t, err = s.reopen(r.Context())
	}
	return err
}
