package fuzz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/kv"
)

// role is what an actor of an interleaving does. Roles change disjoint rows, so that the end is the
// same for every order, and each can tell from a snapshot how far it had come.
type role struct {
	name string
	run  func(s *stage, me int) error
}

var roles = []role{
	{"checkpoint", actCheckpoint},
	{"commit", actCommit},
	{"switch", actSwitch},
	{"purge", actPurge},
	{"drop", actDrop},
	{"reader", actReader},
}

// A stage is a store with two actors on it.
type stage struct {
	db    *kv.DB
	gate  *gate
	roles [2]string
}

// stageFiles is a closed store: rows in three families, some of them due, and one family to drop.
var stageFiles = sync.OnceValues(buildStage)

// stageRows are in each of its families.
const stageRows = 30

func buildStage() (map[string][]byte, error) {
	b := &bench{
		disk: crashfs.New(crashfs.Options{Direct: true}), salt: 7 << 32, rnd: rand.New(rand.NewPCG(7, 7)),
		spec: &Specimen{states: make([]shelf, 1)},
	}
	defer b.abandon()
	if err := b.open(); err != nil {
		return nil, err
	}
	err := b.update(kv.Sync, func(tx *kv.Tx) error {
		for _, name := range []string{"gone", "timed"} {
			if err := tx.CreateCF(name, kv.CFOptions{}); err != nil {
				return err
			}
		}
		for i := range stageRows {
			key := fmt.Appendf(nil, "row%03d", i)
			err := errors.Join(
				tx.Put(key, b.value(100)),
				tx.CF("gone").Put(key, b.value(200)),
				tx.CF("timed").PutTTL(key, b.value(50), time.Second),
			)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := b.close(); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, content := range b.disk.Files() {
		files[filepath.Base(name)] = content
	}
	return files, nil
}

func actCheckpoint(s *stage, _ int) error { return s.db.Checkpoint(context.Background()) }

// actCommit makes two commits, of which the second is relaxed.
func actCommit(s *stage, me int) error {
	for i, d := range []kv.Durability{kv.Sync, kv.NoSync} {
		s.gate.step("commit")
		err := s.db.Update(func(tx *kv.Tx) error {
			tx.SetDurability(d)
			return tx.Put(fmt.Appendf(nil, "commit%d-%d", me, i), []byte("v"))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// switchRows are more than what is left of a segment.
const switchRows = 16

func actSwitch(s *stage, me int) error {
	return s.db.Update(func(tx *kv.Tx) error {
		for i := range switchRows {
			if err := tx.Put(fmt.Appendf(nil, "switch%d-%02d", me, i), make([]byte, 700)); err != nil {
				return err
			}
		}
		return nil
	})
}

func actPurge(s *stage, _ int) error {
	_, err := s.db.PurgeExpired(context.Background(), kv.PurgeOptions{Batch: 12, Force: true})
	return err
}

func actDrop(s *stage, _ int) error {
	if err := s.db.DropCF("gone"); err != nil && !errors.Is(err, kv.ErrCFNotFound) {
		return err
	}
	return nil
}

// actReader looks at one snapshot three times.
func actReader(s *stage, _ int) error {
	return s.db.View(func(tx *kv.Tx) error {
		var first map[string]int
		for range 3 {
			rows, err := s.count(tx)
			if err != nil {
				return err
			}
			if first == nil {
				first = rows
			}
			if !maps.Equal(first, rows) {
				return fmt.Errorf("a snapshot changed from %v to %v", first, rows)
			}
			s.gate.step("read")
		}
		return s.whole(first)
	})
}

// count counts the rows that each role makes or takes away, in one snapshot.
func (s *stage) count(tx *kv.Tx) (map[string]int, error) {
	rows := map[string]int{}
	for key := range tx.All() {
		name, _, _ := bytes.Cut(key, []byte("-"))
		if bytes.HasPrefix(name, []byte("row")) {
			name = name[:3]
		}
		rows[string(name)]++
	}
	names, err := tx.ListCFs()
	if err == nil {
		err = tx.Err()
	}
	if err != nil {
		return nil, err
	}
	if slices.Contains(names, "gone") {
		for range tx.CF("gone").All() {
			rows["gone"]++
		}
	}
	n, err := tx.CF("timed").Count()
	rows["timed"] = int(n)
	return rows, errors.Join(err, tx.Err())
}

// whole says whether a snapshot holds no part of a commit.
func (s *stage) whole(rows map[string]int) error {
	for me, name := range s.roles {
		switch name {
		case "switch":
			if n := rows[fmt.Sprintf("switch%d", me)]; n != 0 && n != switchRows {
				return fmt.Errorf("%d rows of a commit of %d", n, switchRows)
			}
		case "commit":
			if n := rows[fmt.Sprintf("commit%d", me)]; n > 2 {
				return fmt.Errorf("%d rows of two commits", n)
			}
		}
	}
	if n := rows["gone"]; n != 0 && n != stageRows {
		return fmt.Errorf("%d rows of a dropped family of %d", n, stageRows)
	}
	if rows["row"] != stageRows {
		return fmt.Errorf("%d rows of the base, want %d", rows["row"], stageRows)
	}
	return nil
}

// end is what both actors leave.
func (s *stage) end(rows map[string]int) error {
	want := map[string]int{"row": stageRows, "timed": stageRows, "gone": stageRows}
	for me, name := range s.roles {
		switch name {
		case "switch":
			want[fmt.Sprintf("switch%d", me)] = switchRows
		case "commit":
			want[fmt.Sprintf("commit%d", me)] = 2
		case "purge":
			want["timed"] = 0
		case "drop":
			delete(want, "gone")
		}
	}
	if !maps.Equal(rows, want) {
		return fmt.Errorf("the end is %v, want %v", rows, want)
	}
	return nil
}
