package workload

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/ebbkv/ebb/cmd/bench/engine"
)

// From nothing to the first answer. Most of what a process pays at its start is the same for all
// and not counted.
var opens = []Workload{
	{
		Name: "open", About: "a store that was closed is opened, one key is read, and it is closed again",
		Unit: Millis, Durable: true, Fixture: Fixture{Loaded: true},
		Run:   runOpen,
		Limit: func(r *Run) error { return r.readsBack(4096) },
	},
	{
		Name: "open-killed", About: "the same after kill -9 with 64 MiB in the log, where there is a log",
		Unit: Millis, Durable: true, KeepLog: true,
		Fixture: Fixture{Loaded: true, PerMill: killedPerMillion, Killed: true},
		Run:     runOpen,
		Limit:   func(r *Run) error { return r.readsBack(r.rows() * rowBytes) },
	},
}

// killedPerMillion rows are 64 MiB of keys and values.
const killedPerMillion = 64 << 20 / rowBytes

func runOpen(r *Run) error {
	var found bool
	check := newChecker(valueSize)
	err := r.timed(1, 0, func() error {
		if err := r.open(); err != nil {
			return err
		}
		err := r.withClient(func(c engine.Client) (err error) {
			found, err = c.Get(hashed.key(check.key[:], 0), check.use)
			return err
		})
		if err != nil || r.w.Fixture.Killed { // What close does with the log is another matter.
			return err
		}
		return r.close()
	})
	if err != nil {
		return err
	}
	if !found {
		return errors.New("wrong answer: row 0 is missing")
	}
	if err := check.expect(1); err != nil {
		return err
	}
	if r.store == nil {
		if err := r.open(); err != nil {
			return err
		}
	}
	return r.expect(r.w.Fixture.tally(r.rows(), false, nil, nil))
}

// readsBack is the limit of opening: a file of that size is opened and read from the page cache.
func (r *Run) readsBack(size int) error {
	name := filepath.Join(r.Dir, "file")
	if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
		return err
	}
	return r.timed(1, 0, func() error {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		b := make([]byte, min(size, 256<<10))
		for err == nil {
			_, err = f.Read(b)
		}
		if err != io.EOF {
			return err
		}
		return nil
	})
}
