package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// standard stands for standard input or output in place of a file.
const standard = "-"

func backupCommand(a *app) *cobra.Command {
	since := ""
	cmd := &cobra.Command{
		Use:   "backup STORE FILE|-",
		Short: "Back the whole store up, or what changed since an earlier backup",
		Long: `Backup writes a backup of the store to a new file, or with - to standard output.
With --since it is an increment: what changed after an earlier backup, given as its file. Restore
wants a full backup and the increments after it, in order. The store remembers its last 32 backups;
an increment on any other is refused: make a full one then.

The file appears under its name when it is complete and on the disk. A stream that was cut is
refused by restore. A program that has the store open backs it up itself: see Backup of package kv.`,
		Example: `  ebb backup my.ebb sunday.bak
  ebb backup my.ebb monday.bak --since sunday.bak`,
		Args: args(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := kv.BackupOptions{}
			if since != "" {
				info, err := readBackupInfo(since)
				if err != nil {
					return fmt.Errorf("backup: --since: %w", err)
				}
				o.Since = &info
			}
			info, err := a.backup(cmd.Context(), args[0], args[1], o)
			if err != nil {
				return fmt.Errorf("backup: %w", err)
			}
			to := io.Writer(a.out)
			if args[1] == standard {
				to = a.stderr
			}
			return printBackup(a, to, args[1], info)
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "only what changed after this backup, a file")
	cmd.AddCommand(verifyBackupCommand(a))
	return cmd
}

func verifyBackupCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE...",
		Short: "Prove that a full backup and its increments are whole and belong together",
		Long: `Verify reads a full backup and the increments after it, in order, as restore does,
and writes nothing. One of them may be - for standard input. The exit code is 1 if one of them is
damaged, cut, or does not build on the one before it.`,
		Example: `  ebb backup verify sunday.bak monday.bak`,
		Args:    args(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var info kv.BackupInfo
			err := a.readBackups(args, "verify", func(backups []io.Reader) (err error) {
				info, err = kv.VerifyBackup(cmd.Context(), backups...)
				return err
			})
			if err != nil {
				return fmt.Errorf("backup verify: %w", err)
			}
			return printBackup(a, a.out, args[len(args)-1], info)
		},
	}
}

func restoreCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "restore STORE FILE...",
		Short: "Make a store of a full backup and its increments",
		Long: `Restore makes the new store STORE of a full backup and the increments after it, in order. One
of them may be - for standard input. The store appears under its name when it is complete, verified
and on the disk; after an error there is none. A file that is there, or the log of one, is never
replaced.`,
		Example: `  ebb restore restored.ebb sunday.bak monday.bak
  zstd -d < app.zst | ebb restore copy.ebb -`,
		Args: args(2, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, files := args[0], args[1:]
			err := a.readBackups(files, "restore", func(backups []io.Reader) error {
				return kv.Restore(cmd.Context(), store, backups...)
			})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"store": store, "backups": len(files)})
			}
			fmt.Fprintf(a.out, "%s: restored from %s\n", store, plural(len(files), "backup"))
			return nil
		},
	}
}

func readBackupInfo(name string) (kv.BackupInfo, error) {
	f, err := os.Open(name)
	if err != nil {
		return kv.BackupInfo{}, backupError(err)
	}
	defer f.Close()
	info, err := kv.ReadBackupInfo(f)
	return info, backupError(err, name)
}

// backupError marks an error that is one of backups, for which the advice for stores is wrong.
func backupError(err error, files ...string) error {
	switch {
	case errors.Is(err, kv.ErrCorrupt):
		for _, name := range files {
			if is := recognized(err, name); errors.Is(is, errIsStore) {
				return is
			}
		}
		return marked{err, errBadBackup}
	case errors.Is(err, fs.ErrNotExist):
		return marked{err, errNoBackup}
	}
	return err
}

// backup backs a store up to a file or to standard output.
func (a *app) backup(
	ctx context.Context, store, file string, o kv.BackupOptions,
) (info kv.BackupInfo, err error) {
	to := io.Writer(a.out)
	if file != standard {
		f, openErr := newBackupFile(vfs.OS, file)
		if openErr != nil {
			return info, openErr
		}
		defer func() { err = f.close(err) }()
		to = f
	}
	db, err := a.openToWrite(ctx, store, true)
	if err != nil {
		return info, err
	}
	var p *progress
	before := int64(0)
	o.Progress = func(done, total int64) {
		if before == 0 {
			p = a.newProgress("backup", total, true)
		}
		p.add(done - before)
		before = done
	}
	info, err = db.Backup(ctx, to, o)
	p.end()
	return info, errors.Join(err, a.closeWritten(db, err != nil))
}

// backupFile is a backup under a temporary name.
//
//	crash or error ...     the directory holds
//	before the rename      FILE.part, in any state
//	after it               the whole backup, or FILE.part again until the directory is synced
type backupFile struct {
	fs   vfs.FS
	f    vfs.File
	name string
	end  int64
}

const partSuffix = ".part"

func newBackupFile(fsys vfs.FS, name string) (*backupFile, error) {
	if _, err := fsys.Stat(name); err == nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	f, err := fsys.Open(name+partSuffix, vfs.Write|vfs.Create)
	if err == nil {
		err = f.Truncate(0)
	}
	if err != nil {
		return nil, err
	}
	return &backupFile{fs: fsys, f: f, name: name}, nil
}

// Write appends to the file.
func (b *backupFile) Write(p []byte) (int, error) {
	if err := vfs.WriteFull(b.f, p, b.end); err != nil {
		return 0, err
	}
	b.end += int64(len(p))
	return len(p), nil
}

// close gives the file its name, unless err says that it is not complete.
func (b *backupFile) close(err error) error {
	if err == nil {
		err = b.f.Sync()
	}
	if err = errors.Join(err, b.f.Close()); err == nil {
		if err = b.fs.Rename(b.name+partSuffix, b.name); err == nil {
			return b.fs.SyncDir(filepath.Dir(b.name))
		}
	}
	return errors.Join(err, b.fs.Remove(b.name+partSuffix))
}

// readBackups calls fn with the files, and shows how far they are read.
func (a *app) readBackups(files []string, what string, fn func([]io.Reader) error) error {
	var backups []io.Reader
	total := int64(0)
	for _, name := range files {
		if name == standard {
			backups, total = append(backups, a.stdin), unknownTotal
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return backupError(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if total != unknownTotal {
			total += info.Size()
		}
		backups = append(backups, f)
	}
	p := a.newProgress(what, total, true)
	defer p.end()
	for i, r := range backups {
		backups[i] = counted{r, files[i], p}
	}
	return backupError(fn(backups), files...)
}

// counted is a backup file that shows how far it is read.
type counted struct {
	io.Reader
	name string
	p    *progress
}

// Name is what errors call the backup.
func (c counted) Name() string { return c.name }

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if n > 0 {
		c.p.add(int64(n))
	}
	return n, err
}

func printBackup(a *app, w io.Writer, file string, info kv.BackupInfo) error {
	if a.json {
		return encodeJSON(w, struct {
			File string `json:"file"`
			kv.BackupInfo
		}{file, info})
	}
	kind := "full backup"
	if info.Base != "" {
		kind = "increment on " + info.Base
	}
	_, err := fmt.Fprintf(w, "%s: %s, %s, of commit %d: %s\n", file, info.ID, kind, info.Seq,
		size(info.Bytes))
	return err
}
