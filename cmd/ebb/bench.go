package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// Sizes of bench-quick: enough to fill some levels of the tree, few enough to take seconds.
const (
	benchKeys      = 200_000
	benchBatch     = 1000
	benchValueSize = 100

	benchMeasurements = 5
)

func benchCommand(a *app) *cobra.Command {
	var dir string
	var each time.Duration
	cmd := &cobra.Command{
		Use:   "bench-quick",
		Short: "Measure put, get and scan on this machine for a few seconds",
		Long: `Bench-quick makes a new store, measures a few things on it and removes it again. It
gives a feeling for the machine, no more: the numbers are of one short run with 16-byte keys and
100-byte values.`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if each <= 0 { // To measure it is no limit, and most of what is measured has no other end.
				return usageError{cmd, errors.New("--each is not positive")}
			}
			temp, err := os.MkdirTemp(dir, "ebb-bench-")
			if err != nil {
				return fmt.Errorf("bench-quick: %v", err)
			}
			defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
			// the store is temporary: it needs no clock mark of earlier sessions
			db, err := a.open(cmd.Context(), vfs.OS, filepath.Join(temp, "bench.ebb"), kv.Options{})
			if err != nil {
				return err
			}
			p := a.newProgress("bench-quick", benchMeasurements, false)
			results, err := runBench(cmd.Context(), db, each, p)
			p.end()
			if err := errors.Join(err, db.Close()); err != nil {
				return fmt.Errorf("bench-quick: %w", err)
			}
			return printBench(a, results)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "",
		"where to make the store; empty: the directory for temporary files")
	durationVar(cmd.Flags(), &each, "each", time.Second, "time for each measurement that has no fixed end")
	return cmd
}

// benchResult is one line of the table.
type benchResult struct {
	Name         string  `json:"name"`
	Ops          int     `json:"ops"`
	Seconds      float64 `json:"seconds"`
	OpsPerSecond float64 `json:"ops_per_second"`
	Micros       float64 `json:"us_per_op"`
}

// bencher collects results; the first error makes later measurements do nothing.
type bencher struct {
	ctx     context.Context
	p       *progress
	results []benchResult
	err     error
}

// measure calls fn until it says that it is done or, if limit is not 0, until the time is over. fn
// returns how many operations it did.
func (b *bencher) measure(name string, limit time.Duration, fn func() (ops int, done bool, err error)) {
	if b.err != nil {
		return
	}
	began, ops := time.Now(), 0
	for done := false; !done; {
		n, last, err := fn()
		ops += n
		if err == nil {
			err = b.ctx.Err()
		}
		if err != nil {
			b.err = fmt.Errorf("%s: %w", name, err)
			return
		}
		done = last || limit > 0 && time.Since(began) >= limit
	}
	took := time.Since(began).Seconds()
	b.results = append(b.results, benchResult{name, ops, took, float64(ops) / took,
		took / float64(ops) * 1e6})
	b.p.add(1)
}

func runBench(ctx context.Context, db *kv.DB, each time.Duration, p *progress) ([]benchResult, error) {
	b := &bencher{ctx: ctx, p: p}
	rnd := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, benchValueSize)
	// Keys are spread over the whole key space: i times an odd number is a different number for
	// each i.
	key := func(i int) []byte {
		k := binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(i)*0x9e3779b97f4a7c15)
		return binary.BigEndian.AppendUint64(k, uint64(i))
	}

	next := 0
	b.measure(fmt.Sprintf("put, transactions of %d, durable", benchBatch), 0, func() (int, bool, error) {
		err := db.UpdateContext(ctx, func(tx *kv.Tx) error {
			for i := range benchBatch {
				if err := tx.Put(key(next+i), value); err != nil {
					return err
				}
			}
			return nil
		})
		next += benchBatch
		return benchBatch, next == benchKeys, err
	})
	b.measure("put, one by one, durable", each, func() (int, bool, error) {
		return 1, false, db.Put(key(rnd.IntN(benchKeys)), value)
	})
	b.measure("get, one by one", each, func() (int, bool, error) {
		for n := range benchBatch {
			if _, err := db.Get(key(rnd.IntN(benchKeys))); err != nil {
				return n, true, err
			}
		}
		return benchBatch, false, nil
	})
	b.measure("get, in one transaction", each, func() (int, bool, error) {
		err := db.View(func(tx *kv.Tx) error {
			for range benchBatch {
				if _, err := tx.Get(key(rnd.IntN(benchKeys))); err != nil {
					return err
				}
			}
			return nil
		})
		return benchBatch, false, err
	})
	b.measure("scan", each, func() (int, bool, error) {
		rows := 0
		err := db.View(func(tx *kv.Tx) error {
			for range tx.All() {
				rows++
			}
			return nil
		})
		return rows, false, err
	})
	return b.results, b.err
}

func printBench(a *app, results []benchResult) error {
	if a.json {
		return a.printJSON(results)
	}
	rows := []string{"what\toperations\tseconds\tper second\tus each"}
	for _, r := range results {
		rows = append(
			rows,
			fmt.Sprintf("%s\t%d\t%.2f\t%.0f\t%.2f", r.Name, r.Ops, r.Seconds, r.OpsPerSecond, r.Micros),
		)
	}
	return table(a.out, rows...)
}
