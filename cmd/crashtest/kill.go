package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// killReport is what a run of the mode kill has done.
type killReport struct {
	Seed     uint64 `json:"seed"`
	Kills    int    `json:"kills"`
	Stores   int    `json:"stores"`
	Commits  uint64 `json:"commits"`         // acknowledged, all rounds
	Durable  uint64 `json:"durable"`         // of these with Sync
	Replayed uint64 `json:"replayed"`        // commits that recovery found in logs
	InFlight int    `json:"in_flight"`       // kills between the start of a commit and its acknowledgement
	Found    int    `json:"found_in_flight"` // of these, commits that were there all the same
	Purges   int    `json:"purges"`          // that came to their end
	Expired  int    `json:"expired"`         // keys that were gone for having expired, summed over all looks

	OutOfMemory int `json:"out_of_memory"` // with -memory: ended by the runtime
	Refused     int `json:"refused"`       // with -memory: ended by an error of the engine

	Failures  []string `json:"failures"`
	Seconds   float64  `json:"seconds"`
	KeptStore string   `json:"kept_store,omitempty"`
}

// roundsPerStore kills hit one store before a new one is begun.
const roundsPerStore = 10

// kill runs real processes that write to a real store, kills them with SIGKILL at random moments,
// and holds what the store has afterwards against what they acknowledged through a pipe. A killed
// process loses nothing that it had given to the operating system: relaxed commits count too.
func kill(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flags("kill [flags]")
	n := f.Int("n", 20, "processes to kill")
	seed := f.Uint64("seed", uint64(time.Now().UnixNano()), "of all random choices but the scheduler's")
	dir := f.String("dir", "", "directory for the stores; default: a temporary one")
	memory := f.Bool("memory", false, "let the processes run out of memory instead (Linux)")
	least := f.Uint64("min", 1, "fail with fewer acknowledged commits than this")
	asJSON := f.Bool("json", false, "print the report as JSON")
	if err := parseFlags(f, args, stdout, 0, "n"); err != nil {
		return err
	}
	if *memory && !starves {
		return fmt.Errorf("-memory: %w", errors.ErrUnsupported)
	}
	root, err := os.MkdirTemp(*dir, "ebb-kill-")
	if err != nil {
		return err
	}
	r := &killReport{Seed: *seed, Failures: []string{}}
	k := &killer{rnd: rand.New(rand.NewPCG(*seed, 1)), report: r, memory: *memory}
	began := time.Now()
	for i := 0; i < *n && len(r.Failures) == 0 && ctx.Err() == nil; i++ {
		if i%roundsPerStore == 0 {
			k.path = filepath.Join(root, fmt.Sprintf("store-%d.ebb", r.Stores))
			k.model, k.purged = newKillModel(*seed+uint64(r.Stores)), 0
			r.Stores++
		}
		// A round cut short shows nothing.
		if err := k.round(ctx); err != nil && !errors.Is(err, context.Canceled) {
			r.Failures = append(r.Failures,
				fmt.Sprintf("kill %d, store %d, seed %d: %v", i, r.Stores-1, *seed, err))
			r.KeptStore = k.path
		}
		fmt.Fprintf(stderr, "%4d of %d killed, %d commits acknowledged\n", r.Kills, *n, r.Commits)
	}
	r.Seconds = time.Since(began).Seconds()
	if len(r.Failures) == 0 {
		err = os.RemoveAll(root)
	}
	if *asJSON {
		err = errors.Join(err, json.NewEncoder(stdout).Encode(r))
	}
	switch {
	case len(r.Failures) > 0:
		return errors.New(strings.Join(r.Failures, "; "))
	case err == nil && ctx.Err() != nil:
		return errInterrupted
	case err == nil && r.Commits < *least:
		return fmt.Errorf("%d commits acknowledged, want at least %d", r.Commits, *least)
	}
	return err
}

type killer struct {
	rnd    *rand.Rand
	report *killReport
	path   string
	model  *killModel // of the store at path
	purged uint64     // commit after which a purge ended
	memory bool       // children are not killed, but run out of memory
}

// round starts one child, kills it, and looks at the store. Interrupted before that look, it
// returns context.Canceled.
func (k *killer) round(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	delay := time.Duration(k.rnd.Int64N(int64(250 * time.Millisecond)))
	child := exec.CommandContext(
		ctx,
		self,
		"kill-child",
		k.path,
		strconv.FormatUint(k.model.seed, 10),
		strconv.FormatUint(k.model.seq, 10),
	)
	child.Stderr = os.Stderr
	var said head
	if k.memory {
		child.Args = append(child.Args, hunger{delay, k.rnd.Uint64N(mostLeft)}.args()...)
		child.Stderr = &said
	}
	pipe, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	heard := progress{claims: claims{acked: k.model.seq, begun: k.model.seq, purged: k.purged}}
	killed := false
	in := bufio.NewScanner(pipe)
	for in.Scan() {
		if !killed && !k.memory {
			// The clock starts when the child is at work, so that short delays hit it too.
			killed = true
			time.AfterFunc(delay, func() { _ = child.Process.Kill() })
		}
		if err := heard.hear(in.Text()); err != nil {
			_ = child.Process.Kill()
			_ = child.Wait()
			return err
		}
	}
	_ = child.Wait() // "signal: killed"
	if err := k.end(ctx, child.ProcessState, killed, said.String()); err != nil {
		return err
	}
	k.report.Kills++
	k.report.Commits += heard.commits
	k.report.Durable += heard.durables
	k.report.Purges += heard.purges
	k.purged = heard.purged
	f, err := k.model.look(k.path, heard.claims)
	k.report.Replayed += uint64(f.replayed)
	k.report.Expired += f.expired
	if f.inFlight {
		k.report.InFlight++
	}
	if f.there {
		k.report.Found++
	}
	return err
}

// end says what is wrong with the end that a child came to. It gives context.Canceled where we were
// interrupted: a terminal interrupts the child too, which may die of it before our own signal arrives.
func (k *killer) end(ctx context.Context, state *os.ProcessState, killed bool, said string) error {
	switch {
	case ctx.Err() != nil || state.String() == "signal: interrupt" || state.String() == "signal: terminated":
		return context.Canceled
	case k.memory:
		return k.report.starved(state, said)
	case !killed || state.Exited():
		return fmt.Errorf("child ended by itself: %v", state)
	}
	return nil
}
