package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ebbkv/ebb/cmd/bench/workload"
)

// fixtures are the stores that runs begin from: one directory for each fixture and engine, copied
// for each run.
type fixtures struct {
	*bench
	root     string
	failures map[string]string // by directory: why it could not be built
}

// prepare makes dir the beginning of a run: empty, or a copy of the workload's fixture. A fixture
// that an engine cannot build is a failure of its runs.
func (f *fixtures) prepare(
	ctx context.Context,
	w *workload.Workload,
	name, dir string,
) (failure string, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if name == limitEngine || !w.Fixture.Loaded {
		return "", nil
	}
	from := filepath.Join(f.root, w.Fixture.Name()+"-"+name)
	if failure, known := f.failures[from]; known {
		return failure, nil
	}
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		if err := f.build(ctx, w, name, from); err != nil {
			if f.failures == nil {
				f.failures = map[string]string{}
			}
			f.failures[from] = "build what it begins with: " + err.Error()
			return f.failures[from], nil
		}
	}
	return "", copyDir(dir, from)
}

func (f *fixtures) build(ctx context.Context, w *workload.Workload, name, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	out, err := command(ctx, job{Engine: name, Workload: w.Name, N: f.n, Dir: dir, Build: true}, nil)
	if len(out) > 0 {
		var r workload.Result
		if jsonErr := json.Unmarshal(out, &r); jsonErr == nil && r.Failure != "" {
			return errors.New(r.Failure)
		}
	}
	var exit *exec.ExitError
	if w.Fixture.Killed && errors.As(err, &exit) && exit.ExitCode() == -1 && ctx.Err() == nil {
		return nil // It has killed itself, as it should.
	}
	return err
}

// drop removes all that were built.
func (f *fixtures) drop() error {
	f.failures = nil
	entries, err := os.ReadDir(f.root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(f.root, e.Name())))
	}
	return err
}
