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
	Seed      uint64   `json:"seed"`
	Kills     int      `json:"kills"`
	Stores    int      `json:"stores"`
	Commits   uint64   `json:"commits"`         // acknowledged, all rounds
	Durable   uint64   `json:"durable"`         // of these with Sync
	Replayed  uint64   `json:"replayed"`        // commits that recovery found in logs
	InFlight  int      `json:"in_flight"`       // kills that hit between the start of a commit and its acknowledgement
	Found     int      `json:"found_in_flight"` // of these, commits that were there all the same
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
	asJSON := f.Bool("json", false, "print the report as JSON")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *n <= 0 {
		return errors.New("-n must be positive")
	}
	root, err := os.MkdirTemp(*dir, "ebb-kill-")
	if err != nil {
		return err
	}
	r := &killReport{Seed: *seed, Failures: []string{}}
	k := &killer{rnd: rand.New(rand.NewPCG(*seed, 1)), report: r}
	began := time.Now()
	for i := 0; i < *n && len(r.Failures) == 0; i++ {
		if i%roundsPerStore == 0 {
			k.path = filepath.Join(root, fmt.Sprintf("store-%d.ebb", r.Stores))
			k.model, k.seq = newKillModel(*seed+uint64(r.Stores)), 0
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
}

// round starts one child, kills it, and looks at the store.
func (k *killer) round() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(self, "kill-child", k.path, strconv.FormatUint(k.model.seed, 10), strconv.FormatUint(k.seq, 10))
	child.Stderr = os.Stderr
	pipe, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	delay := time.Duration(k.rnd.Int64N(int64(250 * time.Millisecond)))
	begun, acked := k.seq, k.seq
	killed := false
	in := bufio.NewScanner(pipe)
	for in.Scan() {
		if !killed {
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
		case "durable":
			k.report.Durable++
			fallthrough
		case "relaxed":
			k.report.Commits++
			acked = no
		}
	}
	_ = child.Wait() // "signal: killed"
	if !killed || child.ProcessState.Exited() {
		return fmt.Errorf("child ended by itself: %v", child.ProcessState)
	}
	k.report.Kills++
	return k.look(acked, begun)
}

// look opens the store and holds it against the model.
func (k *killer) look(acked, begun uint64) error {
	db, err := kv.Open(k.path, nil)
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
	err = k.model.compare(db)
	for p := range db.Check(context.Background()) {
		err = errors.Join(err, fmt.Errorf("check: %v", p))
	}
	return errors.Join(err, db.Close())
}

// storedSeq reads the number that each of the child's commits leaves behind.
func storedSeq(db *kv.DB) (uint64, error) {
	v, err := db.Get([]byte(seqKey))
	if errors.Is(err, kv.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(v), 10, 64)
}

const seqKey = "!seq"

// killModel computes what each commit does, from its number alone: the child does it to the store, the parent to maps.
type killModel struct {
	seed     uint64
	families map[string]map[string]string
}

func newKillModel(seed uint64) *killModel {
	return &killModel{seed: seed, families: map[string]map[string]string{"default": {}}}
}

// killOp is one operation; value "" deletes, drop drops the family.
type killOp struct {
	family, key, value string
	drop               bool
}

// plan lists the operations of commit no, and says whether it is durable and whether a checkpoint or a reopening
// follows it.
func (m *killModel) plan(no uint64) (ops []killOp, durable, checkpoint, reopen bool) {
	rnd := rand.New(rand.NewPCG(m.seed, no))
	for range 1 + rnd.IntN(1+rnd.IntN(80)) {
		op := killOp{family: []string{"default", "a", "b"}[rnd.IntN(3)], key: fmt.Sprintf("key-%04d", rnd.IntN(3000))}
		switch n := rnd.IntN(100); {
		case n < 20:
		case n == 20 && op.family != "default":
			op.drop = true
		case n < 24:
			op.value = strings.Repeat(fmt.Sprintf("%08x", rnd.Uint32()), 1+rnd.IntN(5000))
		default:
			op.value = strings.Repeat(fmt.Sprintf("%08x", rnd.Uint32()), 1+rnd.IntN(30))
		}
		ops = append(ops, op)
	}
	return ops, rnd.IntN(4) > 0, rnd.IntN(60) == 0, rnd.IntN(150) == 0
}

// step does commit no to the maps.
func (m *killModel) step(no uint64) {
	ops, _, _, _ := m.plan(no)
	for _, op := range ops {
		rows := m.families[op.family]
		switch {
		case op.drop:
			delete(m.families, op.family)
			continue
		case rows == nil:
			rows = map[string]string{}
			m.families[op.family] = rows
		}
		if op.value == "" {
			delete(rows, op.key)
		} else {
			rows[op.key] = op.value
		}
	}
	m.families["default"][seqKey] = strconv.FormatUint(no, 10)
}

// do does commit no to the store.
func (m *killModel) do(tx *kv.Tx, no uint64, ops []killOp) error {
	for _, op := range ops {
		if op.drop {
			if err := tx.DropCF(op.family); err != nil && !errors.Is(err, kv.ErrCFNotFound) {
				return err
			}
			continue
		}
		if err := tx.EnsureCF(op.family, kv.CFOptions{}); err != nil {
			return err
		}
		var err error
		if op.value == "" {
			err = tx.CF(op.family).Delete([]byte(op.key))
		} else {
			err = tx.CF(op.family).Put([]byte(op.key), []byte(op.value))
		}
		if err != nil {
			return err
		}
	}
	return tx.Put([]byte(seqKey), []byte(strconv.FormatUint(no, 10)))
}

// compare reads the whole store.
func (m *killModel) compare(db *kv.DB) error {
	names, err := db.ListCFs()
	if err != nil {
		return err
	}
	if len(names) != len(m.families) {
		return fmt.Errorf("families %v, want %d", names, len(m.families))
	}
	return db.View(func(tx *kv.Tx) error {
		for name, rows := range m.families {
			n := 0
			for key, value := range tx.CF(name).All() {
				n++
				if rows[string(key)] != string(value) {
					return fmt.Errorf("family %s, key %q: %d bytes, want %d, or others", name, key, len(value), len(rows[string(key)]))
				}
			}
			if tx.Err() == nil && n != len(rows) {
				return fmt.Errorf("family %s: %d rows, want %d", name, n, len(rows))
			}
		}
		return nil
	})
}

// killChild is the process that is killed: it commits until then, and says on standard output what it begins and what
// was acknowledged.
func killChild(args []string, stdout, _ io.Writer) error {
	if len(args) != 3 {
		return errors.New("usage: kill-child STORE SEED SEQ; started by kill")
	}
	seed, err1 := strconv.ParseUint(args[1], 10, 64)
	seq, err2 := strconv.ParseUint(args[2], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	// Small segments and few frames: checkpoints, segment switches and spills happen all the time.
	o := &kv.Options{CacheBytes: 1 << 20, CheckpointBytes: 512 << 10}
	db, err := kv.Open(args[0], o)
	if err != nil {
		return err
	}
	m := newKillModel(seed)
	for {
		seq++
		ops, durable, checkpoint, reopen := m.plan(seq)
		word := "relaxed"
		fmt.Fprintf(stdout, "begun %d\n", seq)
		err := db.Update(func(tx *kv.Tx) error {
			tx.SetDurability(kv.NoSync)
			if durable {
				word = "durable"
				tx.SetDurability(kv.Sync)
			}
			return m.do(tx, seq, ops)
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s %d\n", word, seq)
		if checkpoint {
			if err := db.Checkpoint(context.Background()); err != nil {
				return err
			}
		}
		if reopen {
			if err := db.Close(); err != nil {
				return err
			}
			if db, err = kv.Open(args[0], o); err != nil {
				return err
			}
		}
	}
}
