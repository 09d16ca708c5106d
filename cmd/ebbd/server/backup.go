package server

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// backup makes a new store of a snapshot in the backup directory, while commands go on. The store is
// complete and verified before it appears under its name. A crash before that leaves a file that ends
// in .new, which the next backup deletes.
func (s *Server) backup() (path string, err error) {
	s.backups.Lock()
	defer s.backups.Unlock()
	dir := s.o.BackupDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	old, err := filepath.Glob(filepath.Join(dir, "ebbd-*.ebb.new"))
	for _, name := range old {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "ebbd-"+time.Now().UTC().Format("20060102T150405.000")+".ebb")
	from, to := io.Pipe()
	go func() {
		_, err := s.db.Backup(s.ending, to, kv.BackupOptions{})
		to.CloseWithError(err)
	}()
	err = kv.Restore(s.ending, path, from)
	_ = from.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // never fails; ends Backup
	return path, err
}

// streamChunk bounds the bulk strings of a backup that is sent to a client.
const streamChunk = 256 << 10

// chunkWriter sends a stream as bulk strings on the client's connection.
type chunkWriter struct{ c *conn }

func (w chunkWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		chunk := p[:min(len(p), streamChunk)]
		w.c.w.Bulk(chunk)
		err = w.c.flush()
		p, n = p[len(chunk):], n+len(chunk)
	}
	return n, err
}

// streamBackupCommand sends a backup of the store to its client, for `ebbd backup`: bulk strings, an
// empty one at the end. An error reply in its place says that the backup is not complete.
func streamBackupCommand(r *request) error {
	c := r.c
	if c.reply != replyOn {
		return replyError("ERR EBB.BACKUP needs replies: see CLIENT REPLY")
	}
	info, err := r.s.db.Backup(r.s.ending, chunkWriter{c}, kv.BackupOptions{})
	if err != nil {
		return err
	}
	r.s.log.Info("backup sent", "client", c.id, "bytes", info.Bytes)
	c.w.Bulk(nil)
	return nil
}

// saveCommand is SAVE: a backup or, without a directory for backups, a sync of all commits. It stops
// its own connection only.
func saveCommand(r *request) error {
	if err := r.s.save(); err != nil {
		return replyError("ERR " + strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return r.ok(nil)
}

func bgsaveCommand(r *request) error {
	if len(r.args) > 2 || len(r.args) == 2 && !r.is(1, "schedule") {
		return errSyntax
	}
	s := r.s
	if !s.saving.CompareAndSwap(false, true) {
		return replyError("ERR Background save already in progress")
	}
	s.connections.Go(func() {
		defer s.saving.Store(false)
		if err := s.save(); err != nil {
			s.log.Error("backup", "error", err)
		}
	})
	r.w.Simple("Background saving started")
	return nil
}

func (s *Server) save() error {
	changes := s.changes.Load()
	err := s.db.Sync()
	if err == nil && s.o.BackupDir != "" {
		var path string
		if path, err = s.backup(); err == nil {
			s.log.Info("backup", "path", path)
		}
	}
	s.saveFailed.Store(err != nil)
	if err != nil {
		return err
	}
	s.lastSave.Store(time.Now().Unix())
	s.changes.Add(-changes)
	return nil
}
