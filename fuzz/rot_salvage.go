package fuzz

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/salvage"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/txn"
)

// shelfRows are hashes of rows with their expiries: by family, and of all families without their
// names.
type shelfRows struct {
	families map[string]map[uint64]bool
	all      map[uint64]int
}

func readRows(db *kv.DB) (s shelfRows, err error) {
	s = shelfRows{map[string]map[uint64]bool{}, map[uint64]int{}}
	err = db.View(func(tx *kv.Tx) error {
		names, err := tx.ListCFs()
		if err != nil {
			return err
		}
		for _, name := range names {
			rows := map[uint64]bool{}
			s.families[name] = rows
			c := tx.CF(name).Cursor()
			for ok := c.First(); ok; ok = c.Next() {
				expiry := int64(0)
				if at, timed := c.Expiry(); timed {
					expiry = at.UnixMilli()
				}
				rows[timedHash(familyHash(name), c.Key(), c.Value(), expiry)] = true
				s.all[timedHash(0, c.Key(), c.Value(), expiry)]++
			}
			if err := c.Err(); err != nil {
				return err
			}
		}
		return nil
	})
	return s, err
}

// missing counts the rows of s that t lacks.
func (s shelfRows) missing(t shelfRows) (n int) {
	for row, times := range s.all {
		n += max(0, times-t.all[row])
	}
	return n
}

// A Salvaged is what salvage made of a damaged specimen.
type Salvaged struct {
	Report *salvage.Report
	// Lost are the rows of the last checkpoint that are missing, and Most is how many may be.
	Lost, Most int
	rows       shelfRows
}

// Salvage salvages the specimen with one damage, with the commits of its log or without. It fails
// if a row comes out that the row's family had in no committed state, if more rows are missing than
// the damage hit or than the report says, or if the new store is not sound.
func (s *Specimen) Salvage(r Rot, log bool) (out Salvaged, err error) {
	files, err := s.apply(r)
	if err != nil {
		return out, err
	}
	_, err = s.bounded(files, func() (finding, error) {
		return finding{}, guard(func() (err error) {
			out, err = s.salvage(files, log, false)
			return err
		})
	})
	if err == nil {
		out.Most, err = s.mayLose(r, out.Lost)
		err = errors.Join(err, out.judge(s, log))
	}
	return out, err
}

// salvageBoth salvages with the log and without.
func (s *Specimen) salvageBoth(r Rot) error {
	_, err := s.Salvage(r, false)
	_, logErr := s.Salvage(r, true)
	return errors.Join(err, logErr)
}

func (s *Specimen) salvage(files map[string][]byte, log, stale bool) (out Salvaged, err error) {
	fsys, err := specimenDisk(files)
	if err != nil {
		return out, err
	}
	to := filepath.Join(filepath.Dir(path), "salvaged.ebb")
	engine := txn.Options{NoMap: true, Inline: true, SegmentSize: specimenSegment, CacheBytes: 1 << 20}
	o := salvage.Options{FS: fsys, Log: log, Stale: stale, Engine: engine}
	out.Report, err = salvage.Run(context.Background(), path, to, o)
	if errors.Is(err, pager.ErrNotStore) && len(files[mainFile()]) < 4*specimenPage {
		return out, nil // no two pages are left
	}
	if err != nil {
		return out, err
	}
	for name, content := range files {
		f, err := fsys.Open(filepath.Join(filepath.Dir(path), name), 0)
		if err != nil {
			return out, err
		}
		if size, err := f.Size(); err != nil || size != int64(len(content)) {
			return out, fmt.Errorf("%s has %d bytes, had %d (%v)", name, size, len(content), err)
		}
		_ = f.Close()
	}
	look := &kv.Options{ReadOnly: true, MustExist: true, Clock: specimenClock}
	db, err := openfs.Open(fsys, to, look, engine)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for p := range db.Check(context.Background()) {
		return out, fmt.Errorf("the new store: %v", p)
	}
	out.rows, err = readRows(db)
	out.Lost = s.rows[s.base].missing(out.rows)
	return out, err
}

// judge holds the rows that were saved against all states that were committed.
func (o *Salvaged) judge(s *Specimen, log bool) error {
	if o.Report == nil {
		return nil
	}
	for name, rows := range o.rows.families {
		renamed := strings.HasPrefix(name, "tree-") || strings.HasPrefix(name, "lost+found-")
		for row := range rows {
			if !renamed && !slices.ContainsFunc(s.rows,
				func(t shelfRows) bool { return t.families[name][row] }) {
				return fmt.Errorf("family %q has a row that it had in no committed state", name)
			}
		}
	}
	for row := range o.rows.all {
		if !slices.ContainsFunc(s.rows, func(t shelfRows) bool { return t.all[row] > 0 }) {
			return errors.New("a row is saved that was in no committed state")
		}
	}
	switch {
	case !log && o.Lost > o.Most:
		return fmt.Errorf("%d rows of the last checkpoint are missing, at most %d were hit", o.Lost, o.Most)
	case !log && o.Lost > 0 && o.Report.Whole:
		return fmt.Errorf("%d rows are missing, and the report says none", o.Lost)
	}
	return nil
}

// mayLose is how many rows of the last checkpoint a damage may take with it: those of the pages that
// it hits.
func (s *Specimen) mayLose(r Rot, lost int) (most int, err error) {
	if r.File != mainFile() || r.How == "grow" {
		return 0, nil
	}
	main := s.files[mainFile()]
	first, n := r.At, max(r.Arg, 1)
	switch r.How {
	case "zero":
	case "old":
		if first < 2 {
			return lost, nil // an older state, and nothing in the file tells
		}
		n = 1
	case "other", "write", "swap":
		n = 1
	case "flip":
		first, n = r.At/specimenPage, 1
	default:
		return lost, nil // cut: that much of the file is gone
	}
	pages := []int64{}
	for at := first; at < first+n; at++ {
		pages = append(pages, at)
	}
	if r.How == "swap" {
		pages = append(pages, r.Arg)
	}
	table, err := s.tablePage()
	for _, at := range pages {
		at = s.owner[at]
		switch h := pager.ReadHeader(page(main, at)); {
		case at == table: // roots are found by their rows
		case h.Kind == pager.KindLeaf:
			most += int(h.Count)
		case h.Kind == pager.KindOverflow:
			most++
		}
	}
	return most, err
}

// tablePage is the page of the tree table, which is one leaf in a specimen.
func (s *Specimen) tablePage() (int64, error) {
	fsys, err := specimenDisk(s.files)
	if err != nil {
		return 0, err
	}
	raw, err := pager.OpenRaw(fsys, path, false)
	if err != nil {
		return 0, err
	}
	m, _ := raw.Meta()
	return int64(m.Root.Pgid), raw.Close()
}
