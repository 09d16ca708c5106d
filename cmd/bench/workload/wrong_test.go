package workload

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cmd/bench/engine"
)

// liar is ebb with one way of answering wrong.
type liar struct {
	engine.Store
	how string
}

func (l liar) Client() (engine.Client, error) {
	c, err := l.Store.Client()
	return lyingClient{c, l.how}, err
}

func (l liar) BulkLoad(rows int, next func(int) (k, v []byte)) error {
	return l.Store.(engine.BulkLoader).BulkLoad(rows-1, next)
}

func (l liar) Checkpoint() error { return l.Store.(engine.Checkpointer).Checkpoint() }

type lyingClient struct {
	engine.Client
	how string
}

func (c lyingClient) Put(k, v []byte) error {
	if c.how == "loses puts" {
		return nil
	}
	return c.Client.Put(k, v)
}

func (c lyingClient) Get(k []byte, use func([]byte)) (bool, error) {
	if c.how == "other value" {
		use(fill(make([]byte, valueSize), append([]byte("x"), k[1:]...), 0))
		return true, nil
	}
	return c.Client.Get(k, use)
}

func (c lyingClient) View(fn func(engine.Reader) error) error {
	return c.Client.View(func(r engine.Reader) error { return fn(lyingReader{r, c.how}) })
}

func (c lyingClient) Purge(batch int) (int, error) {
	n, err := c.Client.(engine.Purger).Purge(batch)
	return n - 1, err
}

type lyingReader struct {
	engine.Reader
	how string
}

func (r lyingReader) Get(k []byte, use func([]byte)) (bool, error) {
	if r.how == "finds anything" {
		return true, nil
	}
	return r.Reader.Get(k, use)
}

func (r lyingReader) Scan(in engine.Range, t *engine.Tally) error {
	if r.how == "scans the other way" {
		in.Reverse = !in.Reverse
	}
	return r.Reader.Scan(in, t)
}

// TestAnEngineThatAnswersWrongFailsItsRow: every kind of answer is checked.
func TestAnEngineThatAnswersWrongFailsItsRow(t *testing.T) {
	for _, c := range []struct{ workload, how string }{
		{"put-8", "loses puts"},
		{"put-1m", "loses puts"},
		{"ycsb-a", "loses puts"},
		{"get-own", "other value"},
		{"get-view", "finds anything"},
		{"ttl-get", "other value"},
		{"open", "other value"},
		{"get", "finds anything"},
		{"miss", "finds anything"},
		{"get-64k", "finds anything"},
		{"scan", "scans the other way"},
		{"scan-back", "scans the other way"},
		{"scan-prefix", "scans the other way"},
		{"scan-view", "scans the other way"},
		{"scan-first", "scans the other way"},
		{"update-1", "scans the other way"},
		{"overwrite", "scans the other way"},
		{"bulk", "loses a row"},
		{"ttl-purge", "counts wrong"},
		{"ttl-put", "other value"},
		{"big-load", "scans the other way"},
		{"pause-checkpoint", "loses puts"},
	} {
		t.Run(c.workload+" "+c.how, func(t *testing.T) {
			ebb, err := engine.ByName("ebb")
			require.NoError(t, err)
			chosen, err := Select(c.workload)
			require.NoError(t, err)
			w, dir := &chosen[0], t.TempDir()
			if w.Fixture.Loaded {
				require.NoError(t, w.Fixture.Build(ebb, 2000, dir))
			}
			lying := ebb
			lying.Open = func(c2 engine.Config) (engine.Store, error) {
				s, err := ebb.Open(c2)
				return liar{s, c.how}, err
			}
			r := &Run{Engine: lying, N: 2000, Dir: dir}
			err = r.Do(w)
			require.Error(t, err)
			require.Regexp(t, "wrong answer", err.Error())
		})
	}
}
