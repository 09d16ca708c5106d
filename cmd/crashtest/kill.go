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

	"github.com/ebbkv/ebb/kv"
)

// killReport is what a run of the mode kill has done.
type killReport struct {
	Seed     uint64 `json:"seed"`
	Kills    int    `json:"kills"`
	Stores   int    `json:"stores"`
	Commits  uint64 `json:"commits"`         // acknowledged, all rounds
	Durable  uint64 `json:"durable"`         // of these with Sync
	Replayed uint64 `json:"replayed"`        // commits that recovery found in logs
	InFlight int    `json:"in_flight"`       // kills that hit between the start of a commit and its acknowledgement
	Found    int    `json:"found_in_flight"` // of these, commits that were there all the same
	Purges   int    `json:"purges"`          // that came to their end
	Expired  int    `json:"expired"`         // keys that were gone for having expired, summed over all looks

	OutOfMemory int `json:"out_of_memory"` // with -memory: ended by the runtime
	Refused     int `json:"refused"`       // with -memory: ended by an error of the engine's that was refused memory

	Failures  []string `json:"failures"`
	Seconds   float64  `json:"seconds"`
	KeptStore string   `json:"kept_store,omitempty"`
}

// roundsPerStore kills hit one store before a new one is begun.
const roundsPerStore = 10

// kill runs real processes that write to a real store, kills them with SIGKILL at random moments, and holds what the
// store has afterwards against what they acknowledged through a pipe. A killed process loses nothing that it had given
// to the operating system: relaxed commits count too.
func kill(args []string, stdout, stderr io.Writer) error {
	f := flags("kill", stderr)
	n := f.Int("n", 20, "processes to kill")
	seed := f.Uint64("seed", uint64(time.Now().UnixNano()), "of all random choices but the scheduler's")
	dir := f.String("dir", "", "directory for the stores; default: a temporary one")
	memory := f.Bool("memory", false, "let the processes run out of memory instead (Linux)")
	asJSON := f.Bool("json", false, "print the report as JSON")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *n <= 0 {
		return errors.New("-n must be positive")
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
	for i := 0; i < *n && len(r.Failures) == 0; i++ {
		if i%roundsPerStore == 0 {
			k.path = filepath.Join(root, fmt.Sprintf("store-%d.ebb", r.Stores))
			k.model, k.seq, k.purged = newKillModel(*seed+uint64(r.Stores)), 0, 0
			r.Stores++
		}
		if err := k.round(); err != nil {
			r.Failures = append(r.Failures, fmt.Sprintf("kill %d, store %d, seed %d: %v", i, r.Stores-1, *seed, err))
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
	if len(r.Failures) > 0 {
		return errors.New(strings.Join(r.Failures, "; "))
	}
	return err
}

type killer struct {
	rnd    *rand.Rand
	report *killReport
	path   string
	model  *killModel // of the store at path after seq commits
	seq    uint64
	purged uint64 // commit after which a purge came to its end
	memory bool   // children are not killed, but run out of memory
}

// round starts one child, kills it, and looks at the store.
func (k *killer) round() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	delay := time.Duration(k.rnd.Int64N(int64(250 * time.Millisecond)))
	child := exec.Command(self, "kill-child", k.path, strconv.FormatUint(k.model.seed, 10), strconv.FormatUint(k.seq, 10))
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
	begun, acked := k.seq, k.seq
	killed := false
	in := bufio.NewScanner(pipe)
	for in.Scan() {
		if !killed && !k.memory {
			// The clock starts when the child is at work, so that short delays hit it too.
			killed = true
			time.AfterFunc(delay, func() { _ = child.Process.Kill() })
		}
		word, number, _ := strings.Cut(in.Text(), " ")
		no, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			_ = child.Process.Kill()
			_ = child.Wait()
			return fmt.Errorf("child said %q", in.Text())
		}
		switch word {
		case "begun":
			begun = no
		case "purged":
			k.report.Purges++
			k.purged = no
		case "durable":
			k.report.Durable++
			fallthrough
		case "relaxed":
			k.report.Commits++
			acked = no
		}
	}
	_ = child.Wait() // "signal: killed"
	switch {
	case k.memory:
		if err := k.report.starved(child.ProcessState, said.String()); err != nil {
			return err
		}
	case !killed || child.ProcessState.Exited():
		return fmt.Errorf("child ended by itself: %v", child.ProcessState)
	}
	k.report.Kills++
	return k.look(acked, begun)
}

// look opens the store and holds it against the model.
func (k *killer) look(acked, begun uint64) error {
	db, err := kv.Open(k.path, &kv.Options{Clock: func() time.Time { return longAgo }})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	k.report.Replayed += uint64(db.RecoveryInfo().CommitsReplayed)
	seq, err := storedSeq(db)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	if seq < acked || seq > begun {
		return errors.Join(fmt.Errorf("store is at commit %d, acknowledged %d, begun %d", seq, acked, begun), db.Close())
	}
	if begun > acked {
		k.report.InFlight++
		if seq == begun {
			k.report.Found++
		}
	}
	for k.seq < seq {
		k.seq++
		k.model.step(k.seq)
	}
	expired, err := k.model.compare(db, killTime(begun), killTime(k.purged))
	k.report.Expired += expired
	for p := range db.Check(context.Background()) {
		err = errors.Join(err, fmt.Errorf("check: %v", p))
	}
	return errors.Join(err, db.Close())
}

// killChild is the process that is killed: it commits until then, and says on standard output what it begins and what
// was acknowledged.
func killChild(args []string, stdout, _ io.Writer) error {
	if len(args) != 3 && len(args) != 5 {
		return errors.New("usage: kill-child STORE SEED SEQ [AFTER LEFT]; started by kill")
	}
	seed, err1 := strconv.ParseUint(args[1], 10, 64)
	seq, err2 := strconv.ParseUint(args[2], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	// Small segments and few frames: checkpoints, segment switches and spills happen all the time.
	o := &kv.Options{CacheBytes: 1 << 20, CheckpointBytes: 512 << 10, Clock: func() time.Time { return killTime(seq) }}
	db, err := kv.Open(args[0], o)
	if err != nil {
		return err
	}
	if len(args) == 5 {
		h, err := parseHunger(args[3:])
		if err != nil {
			return err
		}
		go func() { fmt.Fprintln(os.Stderr, "starve:", h.starve()) }()
	}
	m := newKillModel(seed)
	for {
		seq++
		p := m.plan(seq)
		word := "relaxed"
		fmt.Fprintf(stdout, "begun %d\n", seq)
		err := db.Update(func(tx *kv.Tx) error {
			tx.SetDurability(kv.NoSync)
			if p.durable {
				word = "durable"
				tx.SetDurability(kv.Sync)
			}
			return m.do(tx, seq, p.ops)
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s %d\n", word, seq)
		if _, err := db.Get([]byte(p.look)); err != nil && !errors.Is(err, kv.ErrNotFound) {
			return err
		}
		if p.purge {
			if _, err := db.PurgeExpired(context.Background(), kv.PurgeOptions{Batch: 64}); err != nil {
				return err
			}
			fmt.Fprintf(stdout, "purged %d\n", seq)
		}
		if p.checkpoint {
			if err := db.Checkpoint(context.Background()); err != nil {
				return err
			}
		}
		if p.reopen {
			if err := db.Close(); err != nil {
				return err
			}
			if db, err = kv.Open(args[0], o); err != nil {
				return err
			}
		}
	}
}
