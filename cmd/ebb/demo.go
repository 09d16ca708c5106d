package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

// demoBatchBytes makes some dozens of transactions of a source tree, so that a kill half-way hits
// one in the middle.
const demoBatchBytes = 2 << 20

func demoCommand(a *app) *cobra.Command {
	d := demo{app: a}
	cmd := &cobra.Command{
		Use:   "demo STORE DIR",
		Short: "Import a tree, kill the import half-way, recover, go on, and verify every byte",
		Long: `Demo shows on real files what a store promises. A second process imports DIR into a new
store in durable transactions and is killed without warning when about half is done. Then this
process opens the store, shows what recovery found, makes sure that no transaction that was reported
durable is missing, imports the rest, compares every file with its value byte for byte, and checks
the store.`,
		Args: args(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case d.batchBytes <= 0:
				return usageError{cmd, errors.New("--batch-bytes is not positive")}
			case d.killPercent < 0 || d.killPercent > 100:
				return usageError{cmd, fmt.Errorf("--kill-percent %d is not from 0 to 100", d.killPercent)}
			}
			d.store = args[0]
			if _, err := os.Lstat(d.store); err == nil {
				return fmt.Errorf("demo: %s exists; demo wants to make it", d.store)
			}
			tree, err := listTree(args[1], d.store)
			switch {
			case err != nil:
				return fmt.Errorf("demo: %w", err)
			case len(tree.errors) > 0: // whether every file is stored could not be told
				return fmt.Errorf("demo: %s", tree.errors[0].Err)
			case len(tree.files) == 0:
				return fmt.Errorf("demo: %s holds no files", args[1])
			}
			d.tree = tree
			if err := d.run(cmd.Context()); err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			return d.print()
		},
	}
	f := cmd.Flags()
	f.Int64Var(&d.batchBytes, "batch-bytes", demoBatchBytes,
		"bytes of file content in one transaction, about")
	f.IntVar(&d.killPercent, "kill-percent", 50, "kill the import when this much is durable")
	return cmd
}

// demo is the one run of the demo command. The fields behind tree are filled as it goes.
type demo struct {
	app         *app
	batchBytes  int64
	killPercent int
	store       string
	tree        *sourceTree

	durable    step          // what the import had reported when it was killed
	importTook time.Duration // of the killed import, until the kill
	openTook   time.Duration
	recovery   kv.RecoveryInfo
	recovered  int64 // rows after recovery
	rest       importSummary
	verifyTook time.Duration
	checkTook  time.Duration
	rows       int64
	fileBytes  int64
	logBytes   int64
}

// say prints progress on standard output, if people read it.
func (d *demo) say(format string, args ...any) {
	if !d.app.json {
		fmt.Fprintf(d.app.out, format+"\n", args...)
		d.app.out.Flush()
	}
}

func (d *demo) run(ctx context.Context) error {
	d.say("%s: %s, %s", d.tree.dir, plural(len(d.tree.files), "file"), size(d.tree.bytes))
	if err := d.importAndKill(ctx); err != nil {
		return err
	}
	d.say("killed the import when %s were reported durable (%d %%)", size(d.durable.Done), percent(d.durable))

	began := time.Now()
	db, err := d.app.openToWrite(ctx, d.store, true)
	if err != nil {
		return fmt.Errorf("open after the kill: %w", err)
	}
	d.openTook = time.Since(began)
	return errors.Join(d.goOn(ctx, db), db.Close())
}

// importAndKill runs `ebb import` as a process of its own and kills it when enough is durable. The
// kill is SIGKILL (on Windows TerminateProcess): the process gets no chance to end anything.
func (d *demo) importAndKill(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.CommandContext(
		ctx,
		self,
		"import",
		d.store,
		d.tree.dir,
		"--progress=lines",
		"--json",
		"--family",
		d.app.family,
		"--batch-bytes",
		strconv.FormatInt(d.batchBytes, 10),
	)
	lines, err := child.StderrPipe()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := child.Start(); err != nil {
		return fmt.Errorf("start the import: %w", err)
	}
	said := d.watch(lines, func() { d.importTook = time.Since(began); child.Process.Kill() })
	err = child.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case d.importTook == 0 && err != nil:
		return fmt.Errorf("the import failed before it could be killed: %w: %s", err, said)
	case err == nil:
		return errors.New(
			"the import was done before it could be killed: take more files, or a smaller --kill-percent",
		)
	}
	return nil
}

// watch follows the progress lines of the import to their end and calls kill once. It returns what
// else was said. Lines that were on their way when the kill came count: they report durable
// transactions.
func (d *demo) watch(lines io.Reader, kill func()) (said string) {
	p := d.app.newProgress("import", d.tree.bytes, true)
	defer p.end()
	for in := bufio.NewScanner(lines); in.Scan(); {
		var s step
		if json.Unmarshal(in.Bytes(), &s) != nil || s.Total == 0 {
			said += in.Text()
			continue
		}
		p.add(s.Done - d.durable.Done)
		d.durable = s
		if kill != nil && percent(s) >= d.killPercent {
			kill()
			kill = nil
		}
	}
	return strings.TrimSpace(said)
}

func percent(s step) int { return int(s.Done * 100 / max(s.Total, 1)) }

// goOn does what comes after the kill and recovery.
func (d *demo) goOn(ctx context.Context, db *kv.DB) (err error) {
	d.recovery = db.RecoveryInfo()
	d.say("opened the store in %s; recovery found:", d.openTook.Round(10*time.Microsecond))
	if !d.app.json {
		if err := d.app.printNumbers("  ", d.recovery); err != nil {
			return err
		}
	}
	if d.recovered, err = d.verify(ctx, db, d.durable.Done); err != nil {
		return fmt.Errorf("after the kill: %w", err)
	}
	im := importer{app: d.app, batchBytes: d.batchBytes, resume: true}
	if !im.wholeBatches(d.tree.files, d.recovered) {
		return fmt.Errorf("after the kill: %d files are stored, which is a part of a transaction",
			d.recovered)
	}
	d.say(
		"every reported transaction is there, and each is whole: %s compared byte for byte",
		plural(d.recovered, "file"),
	)

	if d.rest, err = im.run(ctx, db, d.tree); err != nil {
		return err
	}
	if len(d.rest.Errors) > 0 {
		return fmt.Errorf("not stored: %s: %s", d.app.show(d.rest.Errors[0].name()), d.rest.Errors[0].Err)
	}
	d.say("imported the rest: %s in %s", plural(d.rest.Files, "file"), d.rest.Took.Round(time.Millisecond))

	began := time.Now()
	if d.rows, err = d.verify(ctx, db, d.tree.bytes); err != nil {
		return err
	}
	d.verifyTook = time.Since(began)
	d.say("every file is there: %s compared byte for byte", plural(d.rows, "file"))

	began = time.Now()
	if err := db.Checkpoint(ctx); err != nil {
		return err
	}
	for p := range db.Check(ctx) {
		return fmt.Errorf("check: %v", p)
	}
	d.checkTook = time.Since(began)
	d.say("check: no problems\n")
	stats := db.Stats()
	d.fileBytes, d.logBytes = int64(stats.FileBytes), int64(stats.LogBytes)
	return nil
}

// verify proves that the first files of the tree, until their sizes add up to atLeast, are stored
// with the content that they have on disk; that the same is true of every row beyond them; and that
// there is no other row. Files are stored in the order of the tree, so what one transaction stored
// is a run of it.
func (d *demo) verify(ctx context.Context, db *kv.DB, atLeast int64) (rows int64, err error) {
	err = db.View(func(tx *kv.Tx) error {
		cf := tx.CF(d.app.family)
		stored, err := cf.Count()
		if err != nil {
			return err
		}
		var seen int64
		for _, f := range d.tree.files {
			if err := ctx.Err(); err != nil {
				return err
			}
			name := d.app.show([]byte(f.name))
			value, err := cf.Get([]byte(f.name))
			if errors.Is(err, kv.ErrNotFound) {
				if seen < atLeast || atLeast == d.tree.bytes {
					return fmt.Errorf("%s was reported durable and is not stored", name)
				}
				break
			}
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			onDisk, err := os.ReadFile(d.tree.path(f))
			if err != nil {
				return err
			}
			if !bytes.Equal(value, onDisk) {
				return fmt.Errorf(
					"%s: %d bytes are stored that are not the %d bytes on disk",
					name,
					len(value),
					len(onDisk),
				)
			}
			seen += f.size
			rows++
		}
		if rows != stored {
			return fmt.Errorf(
				"%d rows are stored, %d of them belong to files: the rest comes from nowhere",
				stored,
				rows,
			)
		}
		return nil
	})
	return rows, err
}

func (d *demo) print() error {
	if d.app.json {
		return d.app.printJSON(map[string]any{
			"files": d.rows, "bytes": d.tree.bytes, "file_bytes": d.fileBytes, "log_bytes": d.logBytes,
			"killed_at_bytes": d.durable.Done, "import_seconds": (d.importTook + d.rest.Took).Seconds(),
			"recovery": d.recovery, "recovery_seconds": d.openTook.Seconds(), "recovered_files": d.recovered,
			"verify_seconds": d.verifyTook.Seconds(), "check_seconds": d.checkTook.Seconds(), "ok": true,
		})
	}
	took := d.importTook + d.rest.Took
	return table(
		d.app.out,
		fmt.Sprintf("keys\t%d", d.rows),
		fmt.Sprintf("content\t%s", size(d.tree.bytes)),
		fmt.Sprintf("main file\t%s", size(d.fileBytes)),
		fmt.Sprintf("log\t%s", size(d.logBytes)),
		fmt.Sprintf(
			"import, both parts\t%s, %s/s",
			took.Round(time.Millisecond),
			size(perSecond(d.tree.bytes, took)),
		),
		fmt.Sprintf("recovery\t%s", d.openTook.Round(10*time.Microsecond)),
		fmt.Sprintf(
			"verify\t%s, %s/s",
			d.verifyTook.Round(time.Millisecond),
			size(perSecond(d.tree.bytes, d.verifyTook)),
		),
		fmt.Sprintf("checkpoint and check\t%s", d.checkTook.Round(time.Millisecond)),
	)
}
