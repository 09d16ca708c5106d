package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
	"github.com/ebbkv/ebb/kv"
)

// backup copies a snapshot of the store into a new file of the backup directory, while commands go
// on. A crash leaves:
//
//   - before the rename: a file that ends in .partial, and its log. The next backup deletes both.
//   - after it: the whole backup. Its Close has synced every row before the rename.
func (s *Server) backup() (path string, err error) {
	s.backups.Lock()
	defer s.backups.Unlock()
	dir := s.o.BackupDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	old, err := filepath.Glob(filepath.Join(dir, "ebbd-*.partial*"))
	for _, name := range old {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "ebbd-"+time.Now().UTC().Format("20060102T150405.000")+".ebb")
	partial := path + ".partial"
	if err := s.copyStore(partial); err != nil {
		return "", fmt.Errorf("backup to %s: %w", partial, err)
	}
	if err := os.Rename(partial, path); err != nil {
		return "", err
	}
	return path, syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// copyStore copies all live rows of a snapshot into a new store.
func (s *Server) copyStore(path string) (err error) {
	const copyCache = 32 << 20
	to, err := kv.Open(path, &kv.Options{
		PageSize: s.db.Stats().PageSize, CacheBytes: copyCache, Clock: s.o.Clock,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	err = s.db.View(func(tx *kv.Tx) error {
		names, err := tx.ListCFs()
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := to.EnsureCF(name, kv.CFOptions{}); err != nil && name != "default" {
				return err
			}
			if err := s.copyFamily(tx.CF(name), to, name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return retireOrphans(to, s.o.Databases)
}

// copyFamily copies the rows of a family in transactions of a bounded number of bytes.
func (s *Server) copyFamily(from *kv.CF, to *kv.DB, name string) error {
	const step = 4 << 20
	c := from.Cursor()
	for ok := c.First(); ok; {
		err := to.Update(func(tx *kv.Tx) error {
			tx.SetDurability(kv.NoSync)
			target := tx.CF(name)
			for size := 0; ok && size < step; ok = c.Next() {
				o := kv.PutOptions{}
				if at, expires := c.Expiry(); expires {
					o.ExpireAt = at
				}
				if _, err := target.PutWith(c.Key(), c.Value(), o); err != nil {
					return err
				}
				size += len(c.Key()) + len(c.Value())
			}
			return nil
		})
		if err != nil {
			return err
		}
		if s.isClosing() {
			return errors.New("the server ends")
		}
	}
	return c.Err()
}

// retireOrphans marks collections whose key had expired, and was not copied.
func retireOrphans(db *kv.DB, databases int) error {
	st := keyspace.NewStore(databases)
	if err := st.Setup(db); err != nil {
		return err
	}
	for n := range databases {
		for last := uint64(0); ; {
			err := db.Update(func(tx *kv.Tx) (err error) {
				var dead []uint64
				sp := st.Space(tx, n)
				if dead, last, err = sp.Sweep(last, sweepStep); err == nil {
					_, err = sp.RetireDead(dead)
				}
				return err
			})
			if err != nil {
				return err
			}
			if last == 0 {
				break
			}
		}
	}
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
