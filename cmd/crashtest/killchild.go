package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// killChild is the process that is killed: it commits until then, and says on standard output what
// it begins and what was acknowledged. An interrupt from a terminal reaches it too; what comes of
// that is for its parent to say.
func killChild(_ context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) != 3 && len(args) != 5 {
		return usagef("usage: kill-child STORE SEED SEQ [AFTER LEFT]; started by kill and loopfs")
	}
	seed, err1 := strconv.ParseUint(args[1], 10, 64)
	seq, err2 := strconv.ParseUint(args[2], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	// Small segments and few frames: checkpoints, segment switches and spills happen all the time.
	o := &kv.Options{
		CacheBytes:      1 << 20,
		CheckpointBytes: 512 << 10,
		Clock:           func() time.Time { return killTime(seq) },
	}
	db, err := openKilled(args[0], seed, o)
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
		fmt.Fprintf(stdout, "begun %d\n", seq)
		if err := m.commit(db, seq, p); err != nil {
			return err
		}
		word := "relaxed"
		if p.durable {
			word = "durable"
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
			if db, err = openKilled(args[0], seed, o); err != nil {
				return err
			}
		}
	}
}

// commit executes what is planned for commit no.
func (m *killModel) commit(db *kv.DB, no uint64, p killPlan) error {
	if p.batch {
		return m.apply(db, no, p.ops)
	}
	return db.Update(func(tx *kv.Tx) error {
		tx.SetDurability(kv.NoSync)
		if p.durable {
			tx.SetDurability(kv.Sync)
		}
		return m.do(tx, no, p.ops)
	})
}

// openKilled opens a store of a seed. The free map of every other one has small groups.
func openKilled(path string, seed uint64, o *kv.Options) (*kv.DB, error) {
	return openfs.Open(vfs.OS, path, o, txn.Options{SmallGroups: seed%2 == 1})
}

// progress is what a child has said so far.
type progress struct {
	claims
	durable   uint64 // the last commit that was acknowledged with Sync
	commits   uint64 // acknowledged
	durables  uint64 // of these with Sync
	purges    int    // that ended
	sweptSure uint64 // the last purge before durable
}

// hear takes one line of a child's.
func (p *progress) hear(line string) error {
	word, number, _ := strings.Cut(line, " ")
	no, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return fmt.Errorf("child said %q", line)
	}
	switch word {
	case "begun":
		p.begun = no
	case "purged":
		p.purges++
		p.purged = no
	case "durable":
		p.durables++
		p.durable, p.sweptSure = no, p.purged
		fallthrough
	case "relaxed":
		p.commits++
		p.acked = no
	}
	return nil
}

// afterPowerCut gives what must be true of a store whose power was cut: relaxed commits may be
// gone, and so may be the evictions that left a purge nothing to do, unless a durable commit came
// after them.
func (p progress) afterPowerCut() claims {
	return claims{acked: p.durable, begun: p.begun, purged: p.sweptSure}
}
