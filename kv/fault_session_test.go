package kv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// A session is the same list of operations on the same store each time, call by call: what went
// wrong with one of the calls can be told from what would have come of it.
type session struct {
	db    *kv.DB
	clock *testClock
	acked uint64 // commits that returned, the first one of Open included
	begun uint64
	step  string // the one that runs, or failed
}

// sessionStep is one operation: at most one commit.
type sessionStep struct {
	name    string
	commits bool
	do      func(s *session) error
}

func commit(name string, do func(tx *kv.Tx) error) sessionStep {
	return sessionStep{name, true, func(s *session) error { return s.db.Update(do) }}
}

func relaxed(name string, do func(tx *kv.Tx) error) sessionStep {
	return commit(name, func(tx *kv.Tx) error {
		tx.SetDurability(kv.NoSync)
		return do(tx)
	})
}

func upkeep(name string, do func(s *session) error) sessionStep { return sessionStep{name, false, do} }

func checkpoint(s *session) error { return s.db.Checkpoint(context.Background()) }

// putMany writes rows of some 100 bytes each.
func putMany(family, prefix string, n int) func(tx *kv.Tx) error {
	return func(tx *kv.Tx) error {
		for i := range n {
			if err := tx.CF(family).Put(fmt.Appendf(nil, "%s-%03d", prefix, i),
				bytes.Repeat([]byte(prefix), 90)); err != nil {
				return err
			}
		}
		return nil
	}
}

// sessionSteps go through commits of each kind, segments that fill up, checkpoints that recycle
// them, pages that are freed and used again, and Close.
var sessionSteps = []sessionStep{
	commit("put", putMany(defaultCF, "a", 3)),
	relaxed("relaxed_put", putMany(defaultCF, "b", 3)),
	commit("large_value", func(tx *kv.Tx) error { return tx.Put([]byte("large"), make([]byte, 9000)) }),
	commit("create_family",
		func(tx *kv.Tx) error { return tx.CreateCF("f", kv.CFOptions{DefaultTTL: time.Hour}) }),
	commit("put_with_expiry", putMany("f", "c", 20)),
	upkeep("checkpoint", checkpoint),
	commit("many_rows", putMany(defaultCF, "d", 120)),
	commit("fill_a_segment", putMany(defaultCF, "e", 120)),
	upkeep("checkpoint_again", checkpoint),
	commit("overwrite", putMany(defaultCF, "a", 60)),
	commit("delete_range", func(tx *kv.Tx) error { return tx.DeletePrefix([]byte("d")) }),
	upkeep("sync", func(s *session) error { return s.db.Sync() }),
	upkeep("recycling_checkpoint", checkpoint),
	{"purge", true, func(s *session) error {
		s.clock.move(2 * time.Hour)
		_, err := s.db.PurgeExpired(context.Background(), kv.PurgeOptions{})
		return err
	}},
	commit("put_after_the_purge", putMany(defaultCF, "g", 60)),
	upkeep("large_value_rolled_back", func(s *session) error {
		err := s.db.Update(func(tx *kv.Tx) error {
			return errors.Join(tx.Put([]byte("large"), bytes.Repeat([]byte("x"), 13000)), errRolledBack)
		})
		if errors.Is(err, errRolledBack) {
			return nil
		}
		return err
	}),
	commit("drop_family", func(tx *kv.Tx) error { return tx.DropCF("f") }),
	commit("new_large_value", func(tx *kv.Tx) error { return tx.Put([]byte("large"), make([]byte, 13000)) }),
	relaxed("last_put", putMany(defaultCF, "h", 3)),
	upkeep("close", func(s *session) error { return s.db.Close() }),
}

// errRolledBack is the error of a step that changes nothing.
var errRolledBack = errors.New("rolled back")

const defaultCF = "default"

// openSession begins a session on a file system.
func openSession(fsys vfs.FS) (*session, error) {
	s := &session{clock: newClock(), begun: 1}
	db, err := reopenAt(fsys, s.clock, nil)
	s.db, s.acked = db, 1
	return s, err
}

// reopenAt opens a store of a session.
func reopenAt(fsys vfs.FS, clock *testClock, o *kv.Options) (*kv.DB, error) {
	if o == nil {
		o = new(kv.Options)
	}
	o.Clock = clock.now
	salt := uint64(7)
	return openfs.Open(fsys, path, o, txn.Options{
		SegmentSize: 16 << 10, NoMap: true, Inline: true,
		Rand: func() uint64 { salt = salt*6364136223846793005 + 1442695040888963407; return salt },
	})
}

// run carries all steps out, up to the first error.
func (s *session) run() error {
	for _, step := range sessionSteps {
		s.step = step.name
		if step.commits {
			s.begun++
		}
		if err := step.do(s); err != nil {
			return err
		}
		s.acked = s.begun
	}
	return nil
}

// stored is the number of the newest commit, and everything in the store: each tree of each family.
func stored(db *kv.DB) (seq uint64, all string, err error) {
	var text strings.Builder
	err = db.View(func(tx *kv.Tx) error {
		seq = tx.Seq()
		names, err := tx.ListCFs()
		if err != nil {
			return err
		}
		for _, name := range names {
			trees, err := kv.RawTrees(tx, name)
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, "%s %q\n", name, trees)
		}
		return nil
	})
	return seq, text.String(), err
}

// sessionStates are the contents after each commit of an undisturbed session, by its number.
func sessionStates(t *testing.T) map[uint64]string {
	t.Helper()
	fsys := vfs.NewMemory()
	s, err := openSession(fsys)
	require.NoError(t, err)
	states := map[uint64]string{}
	look := func() {
		seq, all, err := stored(s.db)
		require.NoError(t, err)
		require.Equal(t, s.begun, seq, "one commit for each step")
		states[seq] = all
	}
	look()
	for _, step := range sessionSteps[:len(sessionSteps)-1] {
		if step.commits {
			s.begun++
		}
		require.NoError(t, step.do(s), step.name)
		look()
	}
	checkStore(t, s.db)
	require.Greater(t, s.db.Stats().Checkpoints, uint64(2))
	require.NoError(t, s.db.Close())
	return states
}

// requireState opens a store and requires one of the states from lo to hi, and that it is sound.
func requireState(t *testing.T, fsys vfs.FS, states map[uint64]string, lo, hi uint64, why string) {
	t.Helper()
	db, err := reopenAt(fsys, newClock(), nil)
	require.NoError(t, err, why)
	seq, all, err := stored(db)
	require.NoError(t, err, why)
	require.True(t, lo <= seq && seq <= hi, "%s: the store is at commit %d, want %d to %d", why, seq, lo, hi)
	require.True(t, states[seq] == all, "%s: commit %d holds something else", why, seq)
	checkStore(t, db)
	require.NoError(t, db.Close(), why)
}

// hookFS asks a function before each call that reaches the file system below: an error of it is the
// call's, a panic goes on through the engine. It is for one goroutine at a time, as a store is that
// has Tuning.Inline.
type hookFS struct {
	vfs.FS
	hook func(call, name string) error
}

// changingCalls are the names of the calls that change or sync a file or a directory.
var changingCalls = []string{
	"create", "remove", "rename", "syncdir", "write", "truncate", "grow", "sync", "syncdata",
}

func changes(call string) bool { return slices.Contains(changingCalls, call) }

func (h *hookFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	call := "open"
	if flag&vfs.Write != 0 {
		call = "open_for_writing"
	}
	if _, err := h.FS.Stat(name); flag&vfs.Create != 0 && errors.Is(err, fs.ErrNotExist) {
		call = "create"
	}
	if err := h.hook(call, name); err != nil {
		return nil, err
	}
	f, err := h.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return &hookFile{f, h, name}, nil
}

func (h *hookFS) Remove(name string) error {
	if err := h.hook("remove", name); err != nil {
		return err
	}
	return h.FS.Remove(name)
}

func (h *hookFS) Rename(oldName, newName string) error {
	if err := h.hook("rename", oldName); err != nil {
		return err
	}
	return h.FS.Rename(oldName, newName)
}

func (h *hookFS) List(dir string) ([]string, error) {
	if err := h.hook("list", dir); err != nil {
		return nil, err
	}
	return h.FS.List(dir)
}

func (h *hookFS) SyncDir(dir string) error {
	if err := h.hook("syncdir", dir); err != nil {
		return err
	}
	return h.FS.SyncDir(dir)
}

func (h *hookFS) Stat(name string) (vfs.FileInfo, error) {
	if err := h.hook("stat", name); err != nil {
		return vfs.FileInfo{}, err
	}
	return h.FS.Stat(name)
}

type hookFile struct {
	vfs.File
	fs   *hookFS
	name string
}

func (f *hookFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.hook("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *hookFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.hook("write", f.name); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *hookFile) WriteMapped(p []byte, off int64) error { return vfs.WriteFull(f, p, off) }

// StartWriteAt asks when a write is started, and when it is waited for.
func (f *hookFile) StartWriteAt(p []byte, off int64) vfs.Pending {
	if err := f.fs.hook("start_write", f.name); err != nil {
		return hookWrite{f: f, err: err}
	}
	return hookWrite{f: f, begun: f.File.StartWriteAt(p, off)}
}

type hookWrite struct {
	f     *hookFile
	begun vfs.Pending
	err   error
}

func (w hookWrite) Wait() (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.begun.Wait()
	return n, errors.Join(err, w.f.fs.hook("end_write", w.f.name))
}

func (f *hookFile) Truncate(size int64) error {
	if err := f.fs.hook("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *hookFile) Grow(size int64) error {
	if err := f.fs.hook("grow", f.name); err != nil {
		return err
	}
	return f.File.Grow(size)
}

func (f *hookFile) Sync() error {
	if err := f.fs.hook("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *hookFile) SyncData() error {
	if err := f.fs.hook("syncdata", f.name); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f *hookFile) Size() (int64, error) {
	if err := f.fs.hook("size", f.name); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f *hookFile) Lock(exclusive bool) error {
	if err := f.fs.hook("lock", f.name); err != nil {
		return err
	}
	return f.File.Lock(exclusive)
}

// Close closes in any case: as with the operating system, an error of it leaves nothing open.
func (f *hookFile) Close() error { return errors.Join(f.fs.hook("close", f.name), f.File.Close()) }
