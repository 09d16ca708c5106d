package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ebbkv/ebb/cmd/bench/engine"
	"github.com/ebbkv/ebb/cmd/bench/workload"
	"github.com/ebbkv/ebb/internal/memgroup"
)

// childTime is when a child is given up: no job takes that long, even with ten million rows.
const childTime = 15 * time.Minute

// bench runs all children.
type bench struct {
	engines []engine.Engine
	chosen  []workload.Workload
	n       int
	rounds  int
	dir     string
	profile string
	log     io.Writer

	began       time.Time
	done, total int
}

// all measures everything and returns the results in the order in which they came. A failure is a
// result; an error means that the benchmark could not go on, and comes with what there is.
func (b *bench) all(ctx context.Context) (results []workload.Result, err error) {
	b.began, b.done, b.total = time.Now(), 0, 0
	b.skipUnlimited()
	for i := range b.chosen {
		b.total += b.rounds * len(b.entrants(&b.chosen[i]))
	}
	root, err := os.MkdirTemp(b.dir, "ebb-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()

	f := fixtures{bench: b, root: root}
	for i := range b.chosen {
		w := &b.chosen[i]
		for round := range b.rounds {
			names := b.entrants(w)
			// Each round begins with another engine, so that none always comes after the same one.
			for k := range names {
				name := names[(k+round)%len(names)]
				r, err := b.one(ctx, &f, w, name, round)
				if err != nil {
					return results, err
				}
				results = append(results, r)
			}
		}
		if i+1 == len(b.chosen) || b.chosen[i+1].Fixture != w.Fixture {
			if err := f.drop(); err != nil { // They are large; the next workload needs others.
				return results, err
			}
		}
	}
	return results, nil
}

// entrants are the names of the engines that take part in a workload, and the limit if it has one.
func (b *bench) entrants(w *workload.Workload) (names []string) {
	for _, e := range b.engines {
		if w.Takes(e) {
			names = append(names, e.Name)
		}
	}
	if w.Limit != nil {
		names = append(names, limitEngine)
	}
	return names
}

// one runs a workload once on an engine.
func (b *bench) one(
	ctx context.Context,
	f *fixtures,
	w *workload.Workload,
	name string,
	round int,
) (workload.Result, error) {
	j := job{Engine: name, Workload: w.Name, Round: round, N: b.n, Dir: filepath.Join(f.root, "run")}
	if b.profile != "" {
		j.Profile = fmt.Sprintf("%s.%s.%s.%d", b.profile, name, w.Name, round)
	}
	result := workload.Result{Engine: name, Workload: w.Name, Round: round}
	failure, err := f.prepare(ctx, w, name, j.Dir)
	if err != nil {
		return result, err
	}
	if failure == "" {
		warmMemory(b.n)
		if result, err = startLimited(ctx, j, w.Memory); err != nil {
			result.Engine, result.Workload, result.Round, failure = name, w.Name, round, err.Error()
		}
	}
	if ctx.Err() != nil {
		return result, errors.Join(ctx.Err(), os.RemoveAll(j.Dir))
	}
	if failure != "" {
		result.Failure = failure
	}
	b.tell(w, &result)
	return result, os.RemoveAll(j.Dir)
}

// skipUnlimited leaves the rows out that need a limit of memory, if there is no way to set one.
func (b *bench) skipUnlimited() {
	limited := func(w workload.Workload) bool { return w.Memory > 0 }
	if !slices.ContainsFunc(b.chosen, limited) {
		return
	}
	g, err := memgroup.New(1 << 30)
	if err == nil {
		err = g.Close()
	}
	if err != nil {
		b.chosen = slices.DeleteFunc(b.chosen, limited)
		fmt.Fprintf(b.log, "rows with a limit of memory are skipped: %v\n", err)
	}
}

// startLimited is start in a control group with so much memory, page cache included; 0: no limit.
func startLimited(ctx context.Context, j job, memory int64) (r workload.Result, err error) {
	if memory == 0 {
		return start(ctx, j, nil)
	}
	if err := dropCache(j.Dir); err != nil {
		return r, err
	}
	g, err := memgroup.New(memory)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	r, err = start(ctx, j, g.Wrap)
	if n := g.Kills(); n > 0 {
		err = errors.Join(fmt.Errorf("killed for want of memory, %d times", n), err)
	}
	return r, err
}

// tell reports progress.
func (b *bench) tell(w *workload.Workload, r *workload.Result) {
	b.done++
	spent := time.Since(b.began)
	left := spent / time.Duration(b.done) * time.Duration(b.total-b.done)
	what := fmt.Sprintf("%.4g %s, %.3g us of CPU each", r.Value, w.Unit, r.CPU)
	if r.CloseSeconds > 0 {
		what += fmt.Sprintf(", open %.3g s, close %.3g s, %.3g major faults each",
			r.OpenSeconds, r.CloseSeconds, r.Faults)
	}
	if r.Failure != "" {
		what = "FAILED: " + r.Failure
	}
	fmt.Fprintf(
		b.log,
		"%d/%d %s, %d rows, round %d, %s: %s (%v spent, about %v left)\n",
		b.done,
		b.total,
		r.Workload,
		b.n,
		r.Round+1,
		r.Engine,
		what,
		spent.Round(time.Second),
		left.Round(time.Second),
	)
}

// start runs a child and returns what it printed.
func start(ctx context.Context, j job, wrap func(*exec.Cmd)) (r workload.Result, err error) {
	out, err := command(ctx, j, wrap)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, fmt.Errorf("child printed %q: %w", out, err)
	}
	return r, nil
}

// command runs a child to its end, as wrap, which may be nil, has it run. Its error says how the
// child ended, with what it wrote to stderr.
func command(ctx context.Context, j job, wrap func(*exec.Cmd)) (stdout []byte, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, childTime)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self, childCommand, string(text))
	cmd.Stderr = &stderr
	if wrap != nil {
		wrap(cmd)
	}
	stdout, err = cmd.Output()
	if err != nil {
		last := stderr.String()
		return stdout, fmt.Errorf("child: %w: %s", err, strings.TrimSpace(last[max(0, len(last)-500):]))
	}
	return stdout, nil
}
