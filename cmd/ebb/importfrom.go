package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

// An import of a store of another kind: rows, their expiries and sequences. The source is read in
// one snapshot; rows are put in durable transactions of about --batch-bytes.

// foreignRow is a row of another store. Its slices are valid until the source has ended.
type foreignRow struct {
	family     string
	key, value []byte
	expiry     time.Time // zero: none
	metadata   bool      // the source has more of the row than is kept
}

// foreignSource reads a store of another kind. put is called for each row, sequence for each family,
// also an empty one, with the last number that its sequence has given.
type foreignSource func(
	path string, wait time.Duration,
	put func(foreignRow) error, sequence func(family string, last uint64) error,
) error

var foreignSources = map[string]foreignSource{"bolt": readBolt, "badger": readBadger}

// foreignSummary describes what such an import did.
type foreignSummary struct {
	Families     int     `json:"families"`
	Rows         int64   `json:"rows"`
	Bytes        int64   `json:"bytes"` // of keys and values
	Expiring     int64   `json:"expiring"`
	Expired      int64   `json:"expired"`  // not stored: they expired meanwhile
	Metadata     int64   `json:"metadata"` // rows whose metadata was not kept
	Transactions int     `json:"transactions"`
	Seconds      float64 `json:"seconds"`
}

// foreignImport is one import.
type foreignImport struct {
	app        *app
	ctx        context.Context
	db         *kv.DB
	batchBytes int64
	progress   *progress

	summary  foreignSummary
	families map[string]bool
	rows     []foreignRow // that are not stored yet
	bytes    int64
}

func (a *app) importFrom(cmd *cobra.Command, from, store, path string, batchBytes int64) error {
	read := foreignSources[from]
	if read == nil {
		return usageError{cmd, fmt.Errorf("--from is %q, want bolt or badger", from)}
	}
	for _, flag := range []string{"prefix", "resume", "expiries", "rest"} {
		if err := exclusive(cmd, "from", flag); err != nil {
			return err
		}
	}
	if from == "bolt" {
		if err := exclusive(cmd, "from", "family"); err != nil {
			return fmt.Errorf("%w: the buckets name the families", err)
		}
	}
	db, err := a.openToWrite(cmd.Context(), store, false)
	if err != nil {
		return err
	}
	began := time.Now()
	im := &foreignImport{
		app: a, ctx: cmd.Context(), db: db, batchBytes: batchBytes, families: map[string]bool{},
		progress: a.newProgress("import", unknownTotal, false),
	}
	err = read(path, a.wait, im.put, im.sequence)
	im.progress.end()
	if err := errors.Join(err, a.closeWritten(db, err != nil)); err != nil {
		if im.summary.Rows > 0 {
			err = fmt.Errorf("after %s, which are durable: %w; run it again from the start",
				plural(im.summary.Rows, "row"), err)
		}
		return fmt.Errorf("import: %w", err)
	}
	im.summary.Families, im.summary.Seconds = len(im.families), time.Since(began).Seconds()
	return printForeign(a, im.summary)
}

// put adds a row to the next transaction, and commits it when it is large.
func (im *foreignImport) put(r foreignRow) error {
	if r.family == "" {
		r.family = im.app.family
	}
	im.rows = append(im.rows, r)
	if im.bytes += int64(len(r.key) + len(r.value)); im.bytes < im.batchBytes {
		return nil
	}
	return im.commit()
}

// commit stores the rows that wait.
func (im *foreignImport) commit() error {
	if len(im.rows) == 0 {
		return nil
	}
	done := im.summary
	err := im.db.UpdateContext(im.ctx, func(tx *kv.Tx) error {
		done = im.summary
		for _, r := range im.rows {
			if err := im.store(tx, r, &done); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	im.progress.add(done.Rows - im.summary.Rows)
	im.summary = done
	im.summary.Transactions++
	im.rows, im.bytes = im.rows[:0], 0
	return nil
}

func (im *foreignImport) store(tx *kv.Tx, r foreignRow, done *foreignSummary) error {
	if err := im.ctx.Err(); err != nil {
		return err
	}
	if err := im.ensure(tx, r.family); err != nil {
		return err
	}
	var err error
	if family := tx.CF(r.family); r.expiry.IsZero() {
		_, err = family.PutWith(r.key, r.value, kv.PutOptions{NoExpiry: true})
	} else if err = family.PutExpireAt(r.key, r.value, r.expiry); errors.Is(err, kv.ErrInvalidTTL) {
		done.Expired++
		return nil
	} else {
		done.Expiring++
	}
	if err != nil {
		return fmt.Errorf("family %s: key %s: %w", im.app.show([]byte(r.family)),
			im.app.show(shortened(r.key)), err)
	}
	done.Rows++
	done.Bytes += int64(len(r.key) + len(r.value))
	if r.metadata {
		done.Metadata++
	}
	return nil
}

// shortened is a key that may be too long for a store, and for a line.
func shortened(key []byte) []byte { return key[:min(len(key), 64)] }

func (im *foreignImport) ensure(tx *kv.Tx, family string) error {
	if im.families[family] {
		return nil
	}
	if err := tx.EnsureCF(family, kv.CFOptions{}); err != nil {
		return fmt.Errorf("family %s: %w", im.app.show([]byte(family)), err)
	}
	im.families[family] = true
	return nil
}

// sequence stores what waits, and the sequence of a family unless that is ahead already.
func (im *foreignImport) sequence(family string, last uint64) error {
	if family == "" {
		family = im.app.family
	}
	if err := im.commit(); err != nil {
		return err
	}
	return im.db.UpdateContext(im.ctx, func(tx *kv.Tx) error {
		if err := im.ensure(tx, family); err != nil {
			return err
		}
		now, err := tx.CF(family).Sequence()
		if err != nil || now >= last {
			return err
		}
		return tx.CF(family).SetSequence(last)
	})
}

func printForeign(a *app, s foreignSummary) error {
	if a.json {
		return a.printJSON(s)
	}
	fmt.Fprintf(a.out, "stored %s, %s, in %s and %s\n", plural(s.Rows, "row"), size(s.Bytes),
		plural(s.Transactions, "transaction"),
		time.Duration(s.Seconds*float64(time.Second)).Round(time.Millisecond))
	if s.Expired > 0 {
		fmt.Fprintf(a.out, "skipped %s that expired meanwhile\n", plural(s.Expired, "row"))
	}
	if s.Metadata > 0 {
		fmt.Fprintf(a.stderr, "warning: the user metadata of %s is not kept\n", plural(s.Metadata, "row"))
	}
	return nil
}

// familyOfBuckets names the family of a bucket: the names on the way to it, with slashes between
// them. In a name, bytes that a family cannot have or that would be read otherwise are %XX: a slash,
// a percent sign, NUL, what is no UTF-8, and an underscore at the begin of a family before another
// one.
func familyOfBuckets(path [][]byte) string {
	var b strings.Builder
	for i, name := range path {
		if i > 0 {
			b.WriteByte('/')
		}
		for at := 0; at < len(name); {
			r, n := utf8.DecodeRune(name[at:])
			reserved := i == 0 && at == 0 && bytes.HasPrefix(name, []byte("__"))
			if r == utf8.RuneError && n == 1 || r == '/' || r == '%' || r == 0 || reserved {
				fmt.Fprintf(&b, "%%%02X", name[at])
			} else {
				b.Write(name[at : at+n])
			}
			at += n
		}
	}
	return b.String()
}
