package server

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
)

// Policies of appendfsync.
const (
	fsyncAlways int32 = iota
	fsyncEverySecond
	fsyncNo
)

var fsyncNames = []string{"always", "everysec", "no"}

// settings are what CONFIG SET can change.
type settings struct {
	fsync      atomic.Int32
	maxClients atomic.Int64
	slowMicros atomic.Int64 // negative: no slow log
	slowLength atomic.Int64
	secret     atomic.Pointer[string]
	protected  atomic.Bool   // without a password only this machine's clients are served
	notify     atomic.Uint64 // flags of notify-keyspace-events: see notifyBit
	notifyText atomic.Pointer[string]
}

func (c *settings) init(o Options) error {
	c.maxClients.Store(int64(o.MaxClients))
	c.slowMicros.Store(10000)
	c.slowLength.Store(128)
	c.secret.Store(&o.Password)
	c.notifyText.Store(new(string))
	return c.setFsync(o.AppendFsync)
}

func (c *settings) password() string { return *c.secret.Load() }

func (c *settings) setFsync(name string) error {
	for i, known := range fsyncNames {
		if name == known {
			c.fsync.Store(int32(i))
			return nil
		}
	}
	return fmt.Errorf("appendfsync is %q, want always, everysec or no", name)
}

// parameter is a row of CONFIG GET. One that cannot be changed has no set.
type parameter struct {
	name string
	get  func(*Server) string
	set  func(s *Server, value string) error
}

func fixed(value string) func(*Server) string { return func(*Server) string { return value } }

func number(n *atomic.Int64, least, most int64) func(value string) error {
	return func(value string) error {
		v, err := strconv.ParseInt(value, 10, 64)
		if err != nil || v < least || v > most {
			return fmt.Errorf("argument must be between %d and %d inclusive", least, most)
		}
		n.Store(v)
		return nil
	}
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// parameters are what this server has, under the names of Redis. Those that clients ask for
// although the answer never changes are among them.
var parameters = []parameter{
	{"appendfsync", func(s *Server) string { return fsyncNames[s.config.fsync.Load()] },
		func(s *Server, v string) error { return s.config.setFsync(v) }},
	{"appendonly", fixed("yes"), nil},
	{"bind", fixed(""), nil},
	{"databases", func(s *Server) string { return strconv.Itoa(s.o.Databases) }, nil},
	{"dir", func(s *Server) string { return s.o.Dir }, nil},
	{"dbfilename", fixed(StoreFile), nil},
	{"maxclients", func(s *Server) string { return formatInt(s.config.maxClients.Load()) },
		func(s *Server, v string) error { return number(&s.config.maxClients, 1, 1<<20)(v) }},
	{"maxmemory", func(s *Server) string { return formatInt(s.o.MaxBytes) }, nil},
	{"maxmemory-policy", fixed("noeviction"), nil},
	{"notify-keyspace-events", func(s *Server) string { return *s.config.notifyText.Load() },
		(*Server).setNotify},
	{"port", func(s *Server) string { return strconv.Itoa(s.tcpPort()) }, nil},
	{"proto-max-bulk-len", func(s *Server) string { return strconv.Itoa(s.o.MaxBulk) }, nil},
	{"protected-mode", func(s *Server) string { return yesNo(s.config.protected.Load()) },
		func(s *Server, v string) error {
			if v != "yes" && v != "no" {
				return errors.New("argument must be 'yes' or 'no'")
			}
			s.config.protected.Store(v == "yes")
			return nil
		}},
	{"requirepass", func(s *Server) string { return s.config.password() },
		func(s *Server, v string) error { s.config.secret.Store(&v); return nil }},
	{"save", fixed(""), nil},
	{
		"slowlog-log-slower-than",
		func(s *Server) string { return formatInt(s.config.slowMicros.Load()) },
		func(s *Server, v string) error { return number(&s.config.slowMicros, -1, 1<<62)(v) },
	},
	{"slowlog-max-len", func(s *Server) string { return formatInt(s.config.slowLength.Load()) },
		func(s *Server, v string) error { return number(&s.config.slowLength, 0, 1<<20)(v) }},
	{"timeout", func(s *Server) string { return strconv.Itoa(int(s.o.Timeout.Seconds())) }, nil},
}

// setNotify chooses the events of keys that are published.
func (s *Server) setNotify(text string) error {
	flags, shown, err := parseNotify(text)
	if err != nil {
		return err
	}
	expired := flags&notifyBit(notifyExpired) != 0
	s.store.Report.Store(expired && flags&(notifyBit(notifyKeyspace)|notifyBit(notifyKeyevent)) != 0)
	s.config.notifyText.Store(&shown)
	s.config.notify.Store(flags)
	return nil
}

func (s *Server) tcpPort() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port
}

func configCommand(r *request) error {
	switch sub := strings.ToLower(string(r.args[1])); {
	case sub == "get" && len(r.args) >= 3:
		return configGet(r)
	case sub == "set" && len(r.args) >= 4 && len(r.args)%2 == 0:
		return configSet(r)
	case sub == "resetstat" && len(r.args) == 2:
		r.s.stats.reset()
		r.w.Simple("OK")
		return nil
	case sub == "rewrite" && len(r.args) == 2:
		return replyError("ERR CONFIG REWRITE is not there: edit the file that --config names")
	case sub == "help" && len(r.args) == 2:
		return help(r, "GET <pattern> [<pattern> ...]", "SET <name> <value> [<name> <value> ...]",
			"RESETSTAT")
	}
	return errSubcommand(r)
}

func configGet(r *request) error {
	var shown []parameter
	for _, p := range parameters {
		for _, pattern := range r.args[2:] {
			if ok, _ := path.Match(strings.ToLower(string(pattern)), p.name); ok {
				shown = append(shown, p)
				break
			}
		}
	}
	r.w.Map(len(shown))
	for _, p := range shown {
		r.w.BulkString(p.name)
		r.w.BulkString(p.get(r.s))
	}
	return nil
}

// configSet changes all parameters or, if one is refused, none.
func configSet(r *request) error {
	type change struct {
		p   *parameter
		old string
	}
	var done []change
	for i := 2; i < len(r.args); i += 2 {
		name, value := strings.ToLower(string(r.args[i])), string(r.args[i+1])
		p := findParameter(name)
		var err error
		switch {
		case p == nil:
			err = fmt.Errorf(
				"ERR Unknown option or number of arguments for CONFIG SET - '%s'",
				name,
			)
		case p.set == nil:
			err = fmt.Errorf("ERR CONFIG SET failed (possibly related to argument '%s') - "+
				"can't set immutable config", name)
		default:
			old := p.get(r.s)
			if err = p.set(r.s, value); err == nil {
				done = append(done, change{p, old})
				continue
			}
			err = fmt.Errorf(
				"ERR CONFIG SET failed (possibly related to argument '%s') - %w",
				name,
				err,
			)
		}
		for _, c := range done {
			_ = c.p.set(r.s, c.old) // a value that it had
		}
		return replyError(err.Error())
	}
	r.w.Simple("OK")
	return nil
}

// OptionError is the error of Open for a wrong option or parameter. The store is untouched.
type OptionError struct{ error }

// Unwrap returns what is wrong.
func (e OptionError) Unwrap() error { return e.error }

// IsParameter says whether CONFIG GET knows a name.
func IsParameter(name string) bool { return findParameter(name) != nil }

// setParameter sets a parameter at the start.
func (s *Server) setParameter(name, value string) error {
	switch p := findParameter(name); {
	case p == nil:
		return errors.New("no parameter has this name")
	case p.set != nil:
		return p.set(s, value)
	case p.get(s) != value:
		return fmt.Errorf("it is always %q", p.get(s))
	}
	return nil
}

func findParameter(name string) *parameter {
	for i := range parameters {
		if parameters[i].name == name {
			return &parameters[i]
		}
	}
	return nil
}
