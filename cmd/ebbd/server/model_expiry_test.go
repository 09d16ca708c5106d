package server

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// modelKey is a string or a hash of the model. Expiries are ms, 0: permanent.
type modelKey struct {
	value  string                // of a string
	fields map[string]modelField // of a hash; nil: a string
	expiry int64
}

type modelField struct {
	value  string
	expiry int64
}

// expiryModel is what the server should have, and makes commands.
type expiryModel struct {
	*rand.Rand
	clock *fakeClock
	keys  map[string]*modelKey
}

func (m *expiryModel) now() int64 { return m.clock.ms.Load() }

// expire drops what has expired.
func (m *expiryModel) expire() {
	for name, k := range m.keys {
		for f, field := range k.fields {
			if field.expiry != 0 && field.expiry <= m.now() {
				delete(k.fields, f)
			}
		}
		if k.fields != nil && len(k.fields) == 0 || k.expiry != 0 && k.expiry <= m.now() {
			delete(m.keys, name)
		}
	}
}

func (m *expiryModel) string(name string) *modelKey {
	if k := m.keys[name]; k != nil && k.fields == nil {
		return k
	}
	return nil
}

func (m *expiryModel) hash(name string) *modelKey {
	if k := m.keys[name]; k != nil && k.fields != nil {
		return k
	}
	return nil
}

// setExpiry is EXPIRE with a condition, on a key or a field: deleted says that at has come.
func (m *expiryModel) setExpiry(expiry *int64, at int64, cond string) (set, deleted bool) {
	was := *expiry
	switch {
	case cond == "NX" && was != 0, cond == "XX" && was == 0,
		cond == "GT" && (was == 0 || at <= was), cond == "LT" && was != 0 && at >= was:
		return false, false
	}
	*expiry = at
	return true, at <= m.now()
}

// step makes a command and changes the model. want is its reply; "": it is not compared.
func (m *expiryModel) step() (line, want string) {
	name, other := fmt.Sprintf("k%d", m.IntN(8)), fmt.Sprintf("k%d", m.IntN(8))
	field := fmt.Sprintf("f%d", m.IntN(4))
	ms := int64(m.IntN(3000)) + 1
	value := fmt.Sprint(m.IntN(1000))
	cond := []string{"", "NX", "XX", "GT", "LT"}[m.IntN(5)]
	if m.IntN(12) == 0 {
		ms = -1
	}
	if m.IntN(2) == 0 {
		return m.stringStep(name, other, value, cond, ms)
	}
	return m.hashStep(name, field, value, cond, ms)
}

func (m *expiryModel) stringStep(name, other, value, cond string, ms int64) (line, want string) {
	present, k := m.keys[name], m.string(name)
	switch m.IntN(9) {
	case 0:
		m.keys[name] = &modelKey{value: value}
		return "SET " + name + " " + value, "OK"
	case 1:
		m.keys[name] = &modelKey{value: value, expiry: m.now() + max(ms, 1)}
		return fmt.Sprintf("SET %s %s PX %d", name, value, max(ms, 1)), "OK"
	case 2:
		keep := &modelKey{value: value}
		if present != nil {
			keep.expiry = present.expiry
		}
		m.keys[name] = keep
		return "SET " + name + " " + value + " KEEPTTL", "OK"
	case 3:
		line = strings.TrimSpace(fmt.Sprintf("PEXPIRE %s %d %s", name, ms, cond))
		if present == nil {
			return line, "0"
		}
		set, deleted := m.setExpiry(&present.expiry, m.now()+ms, cond)
		if deleted {
			delete(m.keys, name)
		}
		return line, fmt.Sprint(map[bool]int{true: 1}[set])
	case 4:
		if present == nil || present.expiry == 0 {
			return "PERSIST " + name, "0"
		}
		present.expiry = 0
		return "PERSIST " + name, "1"
	case 5:
		delete(m.keys, name)
		return "DEL " + name, ""
	case 6:
		if present == nil || name == other {
			return "EXISTS " + name, ""
		}
		delete(m.keys, name)
		m.keys[other] = present
		return "RENAME " + name + " " + other, "OK"
	case 7:
		if k == nil {
			return "EXISTS " + name, ""
		}
		k.value += value
		return "APPEND " + name + " " + value, fmt.Sprint(len(k.value))
	}
	if present == nil || name == other {
		return "TYPE " + name, ""
	}
	m.keys[other] = &modelKey{present.value, maps.Clone(present.fields), present.expiry}
	return "COPY " + name + " " + other + " REPLACE", "1"
}

func (m *expiryModel) hashStep(name, field, value, cond string, ms int64) (line, want string) {
	k := m.hash(name)
	if k == nil {
		if m.keys[name] != nil {
			return "HSET " + name + " " + field + " v", "(error) " + string(errWrongType)
		}
		m.keys[name] = &modelKey{fields: map[string]modelField{field: {value: value}}}
		return "HSET " + name + " " + field + " " + value, "1"
	}
	f, has := k.fields[field]
	drop := func() {
		if delete(k.fields, field); len(k.fields) == 0 {
			delete(m.keys, name)
		}
	}
	switch m.IntN(6) {
	case 0:
		k.fields[field] = modelField{value: value}
		return "HSET " + name + " " + field + " " + value, fmt.Sprint(map[bool]int{false: 1}[has])
	case 1:
		drop()
		return "HDEL " + name + " " + field, fmt.Sprint(map[bool]int{true: 1}[has])
	case 2, 3:
		line = strings.ReplaceAll(
			fmt.Sprintf("HPEXPIRE %s %d %s FIELDS 1 %s", name, max(ms, 0), cond, field), "  ", " ")
		if !has {
			return line, "[-2]"
		}
		set, deleted := m.setExpiry(&f.expiry, m.now()+max(ms, 0), cond)
		switch k.fields[field] = f; {
		case deleted:
			drop()
			return line, "[2]"
		case set:
			return line, "[1]"
		}
		return line, "[0]"
	case 4:
		line = "HPERSIST " + name + " FIELDS 1 " + field
		switch {
		case !has:
			return line, "[-2]"
		case f.expiry == 0:
			return line, "[-1]"
		}
		k.fields[field] = modelField{value: f.value}
		return line, "[1]"
	}
	k.fields[field] = modelField{value: value, expiry: m.now() + max(ms, 1)}
	return fmt.Sprintf("HSETEX %s PX %d FIELDS 1 %s %s", name, max(ms, 1), field, value), "1"
}

// compare asks for everything that the model has.
func (m *expiryModel) compare(t *testing.T, c *client) {
	t.Helper()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(m.keys)) {
		names = append(names, fmt.Sprintf("%q", name))
	}
	require.Equal(t, "["+strings.Join(names, " ")+"]", c.line("KEYS *"))
	require.Equal(t, fmt.Sprint(len(m.keys)), c.line("DBSIZE"))
	for i := range 8 {
		name := fmt.Sprintf("k%d", i)
		k := m.keys[name]
		switch {
		case k == nil:
			require.Equal(t, "none", c.line("TYPE "+name))
			require.Equal(t, "-2", c.line("PTTL "+name))
			continue
		case k.expiry == 0:
			require.Equal(t, "-1", c.line("PEXPIRETIME "+name), name)
		default:
			require.Equal(t, fmt.Sprint(k.expiry), c.line("PEXPIRETIME "+name), name)
		}
		if k.fields == nil {
			require.Equal(t, fmt.Sprintf("%q", k.value), c.line("GET "+name))
			continue
		}
		var pairs []string
		for _, f := range slices.Sorted(maps.Keys(k.fields)) {
			field := k.fields[f]
			pairs = append(pairs, fmt.Sprintf("%q %q", f, field.value))
			at := field.expiry
			if at == 0 {
				at = -1
			}
			require.Equal(t, fmt.Sprintf("[%d]", at),
				c.line("HPEXPIRETIME "+name+" FIELDS 1 "+f), "%s %s", name, f)
		}
		require.Equal(t, "["+strings.Join(pairs, " ")+"]", c.line("HGETALL "+name))
		require.Equal(t, fmt.Sprint(len(k.fields)), c.line("HLEN "+name))
	}
}

// TestModelOfExpiry runs random commands that read and change expiries, of keys and of fields, while
// the clock goes on, and compares replies and contents with a model. Purges and restarts come in
// between: neither changes what a command sees.
func TestModelOfExpiry(t *testing.T) {
	steps, seeds := 400, 6
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed_%d", seed), func(t *testing.T) {
			clock := newClock()
			m := &expiryModel{rand.New(rand.NewPCG(uint64(seed), 53)), clock, map[string]*modelKey{}}
			o := Options{Clock: clock.now, Dir: t.TempDir(), AppendFsync: "no"}
			s := start(t, o)
			c := s.client()
			for range steps {
				switch n := m.IntN(100); {
				case n < 25:
					clock.advance(time.Duration(m.IntN(900)) * time.Millisecond)
				case n == 25:
					s.settle()
				case n == 26:
					s.check()
					s.shutdown()
					s = start(t, o)
					c = s.client()
				}
				m.expire()
				line, want := m.step()
				got := c.line(line)
				if want != "" {
					require.Equal(t, want, got, line)
				}
				m.expire()
				if m.IntN(8) == 0 {
					m.compare(t, c)
				}
			}
			m.compare(t, c)
			s.check()
		})
	}
}
