package kv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// Problem is one finding of Check. Kind is one of page, tree, leak, twice, rows, log, meta,
// catalog, expiry, incomplete and closed. The Detail of kind expiry begins with the invariant of
// ttl.Rows that is broken: I1 to I4.
type Problem struct {
	Kind   string `json:"kind"`
	Family string `json:"family,omitempty"` // "" if none, or unknown
	File   string `json:"file,omitempty"`
	Page   uint64 `json:"page"`   // 0 if unknown
	Offset int64  `json:"offset"` // in the file; -1 if unknown
	Detail string `json:"detail"`
}

// String puts the finding on one line.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Kind)
	if p.Family != "" {
		fmt.Fprintf(&b, ": family %q", p.Family)
	}
	if p.File != "" {
		fmt.Fprintf(&b, ": file %s", p.File)
	}
	if p.Page != 0 {
		fmt.Fprintf(&b, ": page %d", p.Page)
	}
	if p.Offset >= 0 {
		fmt.Fprintf(&b, ": offset %d", p.Offset)
	}
	if p.Detail != "" {
		b.WriteString(": " + p.Detail)
	}
	return b.String()
}

// Check verifies the whole store while readers and writers run: structure and checksum of every
// page, that each page is either used once or free once, the counts, the catalog, and that data and
// expiry indexes of each family agree. It yields each finding; a sound store has none. If ctx ends,
// the last Problem is of kind "incomplete"; on a closed store there is one of kind "closed".
//
// It takes the writer lock for a moment. Checkpoints wait until it ends, and writers may wait for them:
// so the body of the loop must not write to the store.
func (db *DB) Check(ctx context.Context) iter.Seq[Problem] {
	ctx = background(ctx)
	return func(yield func(Problem) bool) {
		defer db.notifyShutdown()
		more := true
		visit := func(p Problem) bool {
			more = yield(p)
			return more
		}
		err := db.guarded(func() error {
			db.check(ctx, visit)
			return nil
		})
		if err != nil && more {
			yield(Problem{Kind: "page", File: db.store.Path(), Offset: -1, Detail: err.Error()})
		}
	}
}

func (db *DB) check(ctx context.Context, visit func(Problem) bool) {
	names, more := db.checkCatalog(ctx, visit)
	if !more || !db.checkExpiry(ctx, visit) {
		return
	}
	db.store.Check(ctx, func(b txn.Problem) bool {
		p := Problem{Kind: b.Kind, File: b.File, Page: b.Page, Offset: b.Offset, Detail: b.Detail}
		if b.Tree > txn.CatalogTree {
			p.Family = names[b.Tree]
		}
		return visit(p)
	})
}

// checkCatalog verifies the catalog, and returns the names of the families that own the trees. more is
// false if the caller or the store has stopped.
func (db *DB) checkCatalog(
	ctx context.Context, yield func(Problem) bool,
) (names map[txn.TreeID]string, more bool) {
	if db.stopping.Load() {
		yield(Problem{Kind: "closed", Offset: -1, Detail: ErrClosed.Error()})
		return nil, false
	}
	tx, err := db.store.Begin(ctx, false)
	if err != nil {
		kind := "incomplete"
		if errors.Is(err, txn.ErrClosed) {
			kind = "closed"
		}
		yield(Problem{Kind: kind, Offset: -1, Detail: err.Error()})
		return nil, false
	}
	defer tx.Rollback()
	names, more = make(map[txn.TreeID]string), true
	// Up to the first unreadable page, catalog and partition directories still name the trees.
	_ = cf.Each(tx, func(f *cf.Family) bool {
		_ = cf.EachTree(tx, f, func(id txn.TreeID) { names[id] = f.Name })
		return true
	})
	cf.Check(tx, func(family string, err error) bool {
		p := Problem{Kind: "catalog", Family: family, Offset: -1, Detail: err.Error()}
		var bad *badfile.Error
		if errors.As(err, &bad) {
			p.File, p.Page, p.Offset, p.Detail = bad.File, bad.Pgid, bad.Off, bad.Detail
		}
		more = yield(p)
		return more
	})
	return names, more
}

// checkExpiry verifies the expiry indexes. It leaves unreadable trees to the check of the pages.
func (db *DB) checkExpiry(ctx context.Context, yield func(Problem) bool) (more bool) {
	tx, err := db.store.Begin(ctx, false)
	if err != nil {
		return true
	}
	defer tx.Rollback()
	more = true
	_ = cf.Each(tx, func(f *cf.Family) bool {
		_ = ttl.Check(ctx, tx, f, func(bad *badfile.Error) bool {
			more = yield(
				Problem{Kind: "expiry", Family: f.Name, File: db.store.Path(), Offset: -1,
					Detail: bad.Detail},
			)
			return more
		})
		return more
	})
	return more
}
