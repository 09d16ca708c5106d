package fuzz

import (
	"path/filepath"
	"strings"

	"github.com/ebbkv/ebb/internal/vfs"
)

// fs is the disk as the store of the run sees it. Where the workload has commits in the middle of a
// checkpoint, writes to the main file are the place where they come in; elsewhere it is the disk
// itself, so that sites keep their names.
func (r *Run) fs() vfs.FS {
	for _, op := range r.Workload.Ops {
		if operations[op.Kind].name == "beside" {
			return &besideFS{r.Disk, r}
		}
	}
	return r.Disk
}

type besideFS struct {
	vfs.FS
	r *Run
}

func (fs *besideFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	f, err := fs.FS.Open(name, flag)
	if err != nil || !strings.HasSuffix(filepath.Base(name), ".ebb") {
		return f, err
	}
	return &besideFile{f, fs.r}, nil
}

type besideFile struct {
	vfs.File
	r *Run
}

// WriteAt lets commits in that wait for a checkpoint. The main file is written without a lock that
// they need.
func (f *besideFile) WriteAt(p []byte, off int64) (int, error) {
	if f.r.beside != nil && off >= 8192 {
		fn := f.r.beside
		f.r.beside = nil
		if err := fn(); err != nil {
			return 0, err
		}
	}
	return f.File.WriteAt(p, off)
}

func (f *besideFile) StartWriteAt(p []byte, off int64) vfs.Pending { return vfs.WriteNow(f, p, off) }
