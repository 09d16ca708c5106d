package server

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
	"github.com/ebbkv/ebb/kv"
)

// CheckReport is the result of Check.
type CheckReport struct {
	Databases []DatabaseReport // those that have keys
	Problems  []string         // damage of the store, and rows that contradict each other
	// Orphans are collections that no key names and that are not marked for reclaiming. A crash may
	// leave some when reads have found keys expired: the next start of the server marks them.
	Orphans int
}

// DatabaseReport counts what one database has.
type DatabaseReport struct {
	Number int
	Keys   int64
	Rows   int64 // of collections
}

// Check verifies the store in a directory without changing it: all pages, and that the rows of every
// key are those that its master row promises. No server may have it open.
func Check(ctx context.Context, dir string, databases int) (report CheckReport, err error) {
	path := filepath.Join(dir, StoreFile)
	db, err := kv.Open(path, &kv.Options{ReadOnly: true})
	if err != nil {
		return report, err
	}
	defer func() {
		if closed := db.Close(); err == nil {
			err = closed
		}
	}()
	for problem := range db.Check(ctx) {
		report.Problems = append(report.Problems, fmt.Sprint(problem))
	}
	if len(report.Problems) > 0 {
		return report, nil
	}
	st := keyspace.NewStore(databases)
	st.Bind(db)
	err = db.View(func(tx *kv.Tx) error {
		for n := range databases {
			if ok, err := st.Has(tx, n); err != nil || !ok {
				return err // the families of a store are those of the first databases
			}
			v, err := st.Space(tx, n).Verify(ctx)
			if err != nil {
				return fmt.Errorf("database %d: %w", n, err)
			}
			for _, problem := range v.Problems {
				report.Problems = append(report.Problems, fmt.Sprintf("database %d: %s", n, problem))
			}
			report.Orphans += v.Orphans
			if v.Keys > 0 {
				report.Databases = append(report.Databases, DatabaseReport{n, v.Keys, v.Rows})
			}
		}
		return nil
	})
	return report, err
}

// verify compares the rows of all keys while the server runs.
func (s *Server) verify(ctx context.Context) (problems []string, err error) {
	err = s.db.View(func(tx *kv.Tx) error {
		for n := range s.o.Databases {
			v, err := s.store.Space(tx, n).Verify(ctx)
			if err != nil {
				return err
			}
			problems = append(problems, v.Problems...)
		}
		return nil
	})
	return problems, err
}
