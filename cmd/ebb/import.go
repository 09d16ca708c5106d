package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

const defaultBatchBytes = 8 << 20

func importCommand(a *app) *cobra.Command {
	im := importer{app: a}
	from := ""
	cmd := &cobra.Command{
		Use:   "import STORE DIR|FILE",
		Short: "Store every regular file of a directory tree, or the rows of a store of bbolt or Badger",
		Long: `Import stores every regular file below DIR: the key is its slash-separated path relative
to DIR, the value its content. It works in durable transactions of about --batch-bytes, so that an
import that was stopped has stored a part and goes on with --resume, which skips the files whose
stored value is already equal. It creates the store and the family if they are absent.

Files have no expiry: with --expiries their keys get those that export has written down. Where that
has passed, the file is left out and counted. Lines that name no file below DIR are counted too.

With --rest the rows that export --rest has kept are stored too, with their whole keys.

The files of the store itself are left out. Symbolic links, devices, sockets and pipes are skipped
and counted. A file that cannot be stored, such as one whose path is longer than a key may be, is
named at the end, and the exit code is 1.

With --from bolt, FILE is one of bbolt: each bucket becomes a family, with its sequence, and a bucket
within another one the family OUTER/INNER; in names, / and % are %2F and %25. With --from badger, DIR
is a directory of Badger, closed cleanly: its rows go to --family with their expiries; their user
metadata is not kept. The source is opened read-only. Such an import that was stopped is run again
from the start: it puts the rows again.`,
		Args: args(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if im.batchBytes <= 0 {
				return usageError{cmd, errors.New("--batch-bytes is not positive")}
			}
			if from != "" {
				return a.importFrom(cmd, from, args[0], args[1], im.batchBytes)
			}
			tree, err := listTree(args[1], args[0])
			if err != nil {
				return fmt.Errorf("import: %w", err)
			}
			if im.expiries, err = readExpiries(im.expiryFile); err != nil {
				return fmt.Errorf("import: %w", err)
			}
			db, err := a.openToWrite(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			summary, err := im.run(cmd.Context(), db, tree)
			if err != nil {
				err = fmt.Errorf("%w; go on with --resume", err)
			}
			failed := err != nil || len(summary.Errors) > 0
			if err := errors.Join(err, a.closeWritten(db, failed)); err != nil {
				return fmt.Errorf("import: %w", err)
			}
			return printImport(a, summary)
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "import the rows of another store: bolt or badger")
	f.StringVar(&im.prefix, "prefix", "", "put this before each key (as it is, even with --hex)")
	f.Int64Var(
		&im.batchBytes,
		"batch-bytes",
		defaultBatchBytes,
		"bytes of file content in one transaction, about",
	)
	f.BoolVar(
		&im.resume,
		"resume",
		false,
		"skip files whose stored value is already equal, and with --expiries its expiry",
	)
	f.StringVar(&im.expiryFile, "expiries", "", "expiries as export --expiries has written them")
	f.StringVar(&im.restFile, "rest", "", "rows as export --rest has written them")
	a.addCreation(cmd)
	return cmd
}

// importer stores the files of a tree.
type importer struct {
	app        *app
	prefix     string
	batchBytes int64
	resume     bool
	expiryFile string
	expiries   map[string]time.Time // by file; nil: none are given
	restFile   string
}

// importSummary describes what an import did.
type importSummary struct {
	Files        int           `json:"files"`        // stored
	Bytes        int64         `json:"bytes"`        // of their content
	Equal        int           `json:"equal"`        // skipped: already stored
	Expired      int           `json:"expired"`      // skipped: the expiry has passed
	Rest         int           `json:"rest"`         // rows of --rest that were stored
	Transactions int           `json:"transactions"` // that stored a file
	Symlinks     int           `json:"symlinks"`
	Special      int           `json:"special"`
	Unmatched    int           `json:"expiries_unmatched"` // expiries that are of none of the files
	Errors       []fileError   `json:"errors"`
	Took         time.Duration `json:"-"`
	Seconds      float64       `json:"seconds"`
}

// run stores the files of tree batch by batch. Progress counts a batch when it is durable. On an
// error the batches before it stay stored.
func (im *importer) run(ctx context.Context, db *kv.DB, tree *sourceTree) (importSummary, error) {
	began := time.Now()
	s := importSummary{
		Symlinks: tree.symlinks, Special: tree.special, Unmatched: im.unmatched(tree),
		Errors: append([]fileError{}, tree.errors...),
	}
	p := im.app.newProgress("import", tree.bytes, true)
	defer p.end()
	for rest := tree.files; len(rest) > 0; {
		n, size := im.batch(rest)
		// of this batch; the function may run only once, but what it counts waits for the commit
		done := importSummary{}
		err := db.UpdateContext(ctx, func(tx *kv.Tx) error {
			if err := im.app.ensureFamily(tx); err != nil {
				return err
			}
			cf := tx.CF(im.app.family)
			for _, f := range rest[:n] {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := im.store(cf, tree, f, &done); err != nil {
					return fmt.Errorf("store %s: %w", im.app.show([]byte(f.name)), err)
				}
			}
			return nil
		})
		if err != nil {
			return s, fmt.Errorf("after %s in %s, which are durable: %w",
				plural(s.Files, "file"), plural(s.Transactions, "transaction"), err)
		}
		s.Files, s.Bytes = s.Files+done.Files, s.Bytes+done.Bytes
		s.Equal, s.Expired = s.Equal+done.Equal, s.Expired+done.Expired
		s.Errors = append(s.Errors, done.Errors...)
		if done.Files > 0 {
			s.Transactions++
		}
		rest = rest[n:]
		p.add(size)
	}
	rest, expired, err := im.importRest(ctx, db)
	if err != nil {
		return s, err
	}
	s.Rest, s.Expired = rest, s.Expired+expired
	s.Took = time.Since(began)
	s.Seconds = s.Took.Seconds()
	return s, nil
}

// unmatched counts the expiries that name no file of the tree. Those of a file that was misnamed,
// or left behind, would be lost without a word: its key, should it be there, lives for ever.
func (im *importer) unmatched(tree *sourceTree) int {
	n := len(im.expiries)
	for _, f := range tree.files {
		if _, ok := im.expiries[f.name]; ok {
			n--
		}
	}
	return n
}

// batch gives the number of files, at least one, that make up the next transaction, and their
// bytes.
func (im *importer) batch(files []sourceFile) (n int, size int64) {
	for n < len(files) && (n == 0 || size+files[n].size <= im.batchBytes) {
		size += files[n].size
		n++
	}
	return n, size
}

// wholeBatches says whether the first n files are what some number of transactions store.
func (im *importer) wholeBatches(files []sourceFile, n int64) bool {
	var done int64
	for done < n {
		batch, _ := im.batch(files[done:])
		done += int64(batch)
	}
	return done == n
}

// store puts one file. What only concerns this file is noted in done; an error ends the
// transaction.
func (im *importer) store(cf *kv.CF, tree *sourceTree, f sourceFile, done *importSummary) error {
	key := []byte(im.prefix + f.name)
	if f.size > kv.MaxValueSize {
		done.Errors = append(done.Errors, newFileError(f.name, kv.ErrValueTooLarge.Error()))
		return nil
	}
	value, err := os.ReadFile(tree.path(f))
	if err != nil {
		done.Errors = append(done.Errors, newFileError(f.name, err.Error()))
		return nil
	}
	expires, timed := im.expiries[f.name]
	if im.resume {
		stored, err := cf.Get(key)
		equal := err == nil && bytes.Equal(stored, value)
		if equal && im.expiries != nil {
			var at time.Time
			at, err = cf.Expiry(key)
			equal = err == nil && at.Equal(expires)
		}
		switch {
		case equal:
			done.Equal++
			return nil
		case err != nil && !errors.Is(err, kv.ErrNotFound) && !errors.Is(err, kv.ErrKeyTooLarge):
			return err
		}
	}
	if timed {
		err = cf.PutExpireAt(key, value, expires)
	} else {
		err = cf.Put(key, value)
	}
	if errors.Is(err, kv.ErrInvalidTTL) {
		done.Expired++
		return nil
	}
	if errors.Is(err, kv.ErrKeyTooLarge) || errors.Is(err, kv.ErrValueTooLarge) ||
		errors.Is(err, kv.ErrKeyEmpty) {
		done.Errors = append(done.Errors, newFileError(f.name, err.Error()))
		return nil
	}
	if err == nil {
		done.Files++
		done.Bytes += int64(len(value))
	}
	return err
}

func printImport(a *app, s importSummary) error {
	if a.json {
		if err := a.printJSON(s); err != nil {
			return err
		}
	} else {
		took := s.Took.Round(time.Millisecond)
		switch {
		case s.Files == 0 && s.Equal > 0 && len(s.Errors) == 0:
			fmt.Fprintf(
				a.out,
				"nothing to do: %s already stored with equal content, found in %s\n",
				plural(s.Equal, "file"),
				took,
			)
		case s.Files == 0 && s.Equal+s.Expired+s.Rest+len(s.Errors) == 0:
			fmt.Fprintln(a.out, "nothing to do: the directory holds no files")
		default:
			fmt.Fprintf(a.out, "stored %s, %s, in %s and %s (%s/s)\n", plural(s.Files, "file"), size(s.Bytes),
				plural(s.Transactions, "transaction"), took, size(perSecond(s.Bytes, s.Took)))
			if s.Equal > 0 {
				fmt.Fprintf(a.out, "skipped %s already stored with equal content\n", plural(s.Equal, "file"))
			}
		}
		if s.Rest > 0 {
			fmt.Fprintf(a.out, "stored %s of --rest\n", plural(s.Rest, "row"))
		}
		if s.Expired > 0 {
			fmt.Fprintf(a.out, "skipped %s whose expiry has passed\n", plural(s.Expired, "file"))
		}
		if s.Symlinks+s.Special > 0 {
			links, special := plural(s.Symlinks, "symbolic link"), plural(s.Special, "special file")
			fmt.Fprintf(a.out, "skipped %s and %s\n", links, special)
		}
		if s.Unmatched > 0 {
			fmt.Fprintf(a.stderr, "warning: no file is there for %s of --expiries\n",
				plural(s.Unmatched, "line"))
		}
		a.printFileErrors("not stored", s.Errors)
	}
	if len(s.Errors) > 0 {
		return errSaid
	}
	return nil
}

// printFileErrors lists files that were left out, on standard error. The error may name the file
// once more.
func (a *app) printFileErrors(what string, errs []fileError) {
	for _, e := range errs {
		fmt.Fprintf(a.stderr, "%s: %s: %s\n", what, a.show(e.name()), printable(e.Err, ""))
	}
}

// perSecond gives n per second of took, 0 if no time has passed.
func perSecond(n int64, took time.Duration) int64 {
	if took <= 0 {
		return 0
	}
	return int64(float64(n) / took.Seconds())
}
