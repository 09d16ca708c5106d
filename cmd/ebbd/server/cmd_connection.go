package server

import (
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"
	"time"
)

func pingCommand(r *request) error {
	var text []byte
	switch len(r.args) {
	case 1:
	case 2:
		text = r.args[1]
	default:
		return errArity("ping")
	}
	switch {
	case r.w.Version < 3 && r.c.listening():
		pingReply(r.w, text)
	case len(r.args) == 2:
		r.w.Bulk(text)
	default:
		r.w.Simple("PONG")
	}
	return nil
}

func echoCommand(r *request) error {
	r.w.Bulk(r.args[1])
	return nil
}

func quitCommand(r *request) error {
	r.c.closing = true
	r.w.Simple("OK")
	return nil
}

func selectCommand(r *request) error {
	n, ok := parseInt(r.args[1])
	if !ok {
		return replyError("ERR invalid DB index")
	}
	if n < 0 || n >= int64(r.s.o.Databases) {
		return errDBIndex
	}
	r.c.db = int(n)
	r.w.Simple("OK")
	return nil
}

// resetCommand makes the connection what it was at its start.
func resetCommand(r *request) error {
	c := r.c
	c.discard()
	c.unsubscribeAll()
	c.db, c.reply, c.w.Version = 0, replyOn, 2
	c.pushVersion()
	c.authenticated = r.s.config.password() == ""
	c.rd.SetLimits(r.s.limits(c.authenticated))
	c.mu.Lock()
	c.info.name = ""
	c.mu.Unlock()
	r.w.Simple("RESET")
	return nil
}

const errWrongPassword = replyError("WRONGPASS invalid username-password pair or user is disabled.")

// authenticate checks a password of the only user that there is.
func (r *request) authenticate(user, password []byte) error {
	want := r.s.config.password()
	right := subtle.ConstantTimeCompare(password, []byte(want)) == 1 || want == ""
	if string(user) != "default" || !right {
		return errWrongPassword
	}
	r.c.setAuthenticated()
	return nil
}

func authCommand(r *request) error {
	user, password := []byte("default"), r.args[1]
	switch {
	case len(r.args) > 3:
		return errSyntax
	case len(r.args) == 3:
		user, password = r.args[1], r.args[2]
	case r.s.config.password() == "":
		return replyError("ERR AUTH <password> called without any password configured for the " +
			"default user. Are you sure your configuration is correct?")
	}
	if err := r.authenticate(user, password); err != nil {
		return err
	}
	r.w.Simple("OK")
	return nil
}

func helloCommand(r *request) error {
	version := int64(r.w.Version)
	i := 1
	if len(r.args) > 1 {
		var ok bool
		if version, ok = parseInt(r.args[1]); !ok {
			return replyError("ERR Protocol version is not an integer or out of range")
		}
		if version < 2 || version > 3 {
			return replyError("NOPROTO unsupported protocol version")
		}
		i = 2
	}
	var name []byte
	for ; i < len(r.args); i++ {
		switch {
		case r.is(i, "auth") && i+2 < len(r.args):
			if err := r.authenticate(r.args[i+1], r.args[i+2]); err != nil {
				return err
			}
			i += 2
		case r.is(i, "setname") && i+1 < len(r.args):
			if name = r.args[i+1]; !validName(name) {
				return errClientName
			}
			i++
		default:
			return replyError(fmt.Sprintf("ERR Syntax error in HELLO option '%.128s'", r.args[i]))
		}
	}
	if !r.c.authenticated {
		return replyError("NOAUTH HELLO must be called with the client already authenticated, " +
			"otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the " +
			"client and select the RESP protocol version at the same time")
	}
	if name != nil {
		r.c.setName(name)
	}
	r.w.Version = int(version)
	r.c.pushVersion()
	r.w.Map(7)
	for _, field := range [][2]string{{"server", "redis"}, {"version", redisVersion}} {
		r.w.BulkString(field[0])
		r.w.BulkString(field[1])
	}
	r.w.BulkString("proto")
	r.w.Int(version)
	r.w.BulkString("id")
	r.w.Int(r.c.id)
	r.w.BulkString("mode")
	r.w.BulkString("standalone")
	r.w.BulkString("role")
	r.w.BulkString("master")
	r.w.BulkString("modules")
	r.w.Array(0)
	return nil
}

const errClientName = replyError(
	"ERR Client names cannot contain spaces, newlines or special characters.",
)

func validName(name []byte) bool {
	return !slices.ContainsFunc(name, func(c byte) bool { return c < '!' || c > '~' })
}

func (c *conn) setName(name []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.info.name = string(name)
}

// clientSubcommands are the forms of CLIENT with their number of arguments; negative: at least.
var clientSubcommands = map[string]struct {
	arity int
	run   func(*request) error
}{
	"id":       {2, func(r *request) error { r.w.Int(r.c.id); return nil }},
	"getname":  {2, clientGetName},
	"setname":  {3, clientSetName},
	"setinfo":  {4, clientSetInfo},
	"info":     {2, func(r *request) error { r.w.Verbatim(r.c.describe()); return nil }},
	"list":     {-2, clientList},
	"kill":     {-3, clientKill},
	"reply":    {3, clientReply},
	"no-evict": {3, clientOnOff},
	"no-touch": {3, clientOnOff},
	"unblock":  {-3, clientUnblock},
	"pause":    {-3, clientPause},
	"unpause":  {2, clientUnpause},
	"getredir": {2, func(r *request) error { r.w.Int(-1); return nil }},
	"tracking": {-3, clientTracking},
	"help": {2, func(r *request) error {
		return help(
			r,
			"GETNAME",
			"ID",
			"INFO",
			"KILL <option>",
			"LIST [options ...]",
			"PAUSE <timeout> [WRITE|ALL]",
			"UNPAUSE",
			"REPLY (ON|OFF|SKIP)",
			"SETNAME <name>",
			"SETINFO <option> <value>",
			"NO-EVICT (ON|OFF)",
			"NO-TOUCH (ON|OFF)",
		)
	}},
}

func clientCommand(r *request) error {
	sub, ok := clientSubcommands[strings.ToLower(string(r.args[1]))]
	if !ok || sub.arity > 0 && len(r.args) != sub.arity || len(r.args) < -sub.arity {
		return errSubcommand(r)
	}
	return sub.run(r)
}

func clientGetName(r *request) error {
	r.c.mu.Lock()
	name := r.c.info.name
	r.c.mu.Unlock()
	if name == "" {
		r.w.Null()
		return nil
	}
	r.w.BulkString(name)
	return nil
}

func clientSetName(r *request) error {
	if !validName(r.args[2]) {
		return errClientName
	}
	r.c.setName(r.args[2])
	r.w.Simple("OK")
	return nil
}

func clientSetInfo(r *request) error {
	if !validName(r.args[3]) {
		return replyError(
			fmt.Sprintf("ERR %s cannot contain spaces, newlines or special characters.",
				strings.ToLower(string(r.args[2]))),
		)
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	switch {
	case r.is(2, "lib-name"):
		r.c.info.libName = string(r.args[3])
	case r.is(2, "lib-ver"):
		r.c.info.libVersion = string(r.args[3])
	default:
		return replyError(fmt.Sprintf("ERR Unrecognized option '%.128s'", r.args[2]))
	}
	r.w.Simple("OK")
	return nil
}

func clientOnOff(r *request) error {
	if !r.is(2, "on") && !r.is(2, "off") {
		return errSyntax
	}
	r.w.Simple("OK")
	return nil
}

func clientTracking(r *request) error {
	if r.is(2, "off") {
		r.w.Simple("OK")
		return nil
	}
	return replyError("ERR CLIENT TRACKING is not supported by this server")
}

func clientReply(r *request) error {
	switch r.word(2) {
	case "ON":
		r.c.reply = replyOn
		r.w.Simple("OK")
	case "OFF":
		r.c.reply = replyOff
	case "SKIP":
		r.c.reply = replySkip
	default:
		return errSyntax
	}
	return nil
}

// describe is the line of a connection in CLIENT LIST.
func (c *conn) describe() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, now := &c.info, time.Now()
	flags := "N"
	switch {
	case c.blocked.Load() != nil:
		flags = "b"
	case i.multi >= 0 && i.command != "":
		flags = "x"
	case i.subscribed+i.patterns > 0:
		flags = "P"
	}
	return fmt.Sprintf(
		"id=%d addr=%s laddr=%s fd=0 name=%s age=%d idle=%d flags=%s db=%d sub=%d psub=%d "+
			"ssub=0 multi=%d watch=%d qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 "+
			"omem=0 tot-mem=0 events=r cmd=%s user=default redir=-1 resp=%d lib-name=%s lib-ver=%s\n",
		c.id,
		c.nc.RemoteAddr(),
		c.nc.LocalAddr(),
		i.name,
		int(now.Sub(i.created).Seconds()),
		int(now.Sub(i.last).Seconds()),
		flags,
		i.db,
		i.subscribed,
		i.patterns,
		i.multi,
		i.watched,
		i.command,
		i.version,
		i.libName,
		i.libVersion,
	)
}

// clients returns all connections in the order of their ids.
func (s *Server) clients() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *conn) int { return int(a.id - b.id) })
	return all
}

func clientList(r *request) error {
	ids := map[int64]bool{}
	switch {
	case len(r.args) == 4 && r.is(2, "type"):
		if !r.is(3, "normal") && !r.is(3, "pubsub") {
			r.w.Verbatim("")
			return nil
		}
	case len(r.args) > 3 && r.is(2, "id"):
		for i := 3; i < len(r.args); i++ {
			id, ok := parseInt(r.args[i])
			if !ok {
				return replyError("ERR Invalid client ID")
			}
			ids[id] = true
		}
	case len(r.args) != 2:
		return errSyntax
	}
	var b strings.Builder
	for _, c := range r.s.clients() {
		if len(ids) == 0 || ids[c.id] {
			b.WriteString(c.describe())
		}
	}
	r.w.Verbatim(b.String())
	return nil
}

// clientKill ends connections by address, or by the filters ID, ADDR, LADDR, USER, TYPE and SKIPME.
func clientKill(r *request) error {
	if len(r.args) == 3 {
		for _, c := range r.s.clients() {
			if c.nc.RemoteAddr().String() == string(r.args[2]) {
				r.kill(c)
				r.w.Simple("OK")
				return nil
			}
		}
		return replyError("ERR No such client")
	}
	if len(r.args)%2 != 0 {
		return errSyntax
	}
	filters, skipMe := []func(*conn) bool{}, true
	for i := 2; i < len(r.args); i += 2 {
		value := string(r.args[i+1])
		switch r.word(i) {
		case "ID":
			filters = append(filters, func(c *conn) bool { return formatInt(c.id) == value })
		case "ADDR":
			filters = append(
				filters,
				func(c *conn) bool { return c.nc.RemoteAddr().String() == value },
			)
		case "LADDR":
			filters = append(
				filters,
				func(c *conn) bool { return c.nc.LocalAddr().String() == value },
			)
		case "USER":
			filters = append(filters, func(*conn) bool { return value == "default" })
		case "TYPE":
			filters = append(
				filters,
				func(*conn) bool { return strings.EqualFold(value, "normal") },
			)
		case "SKIPME":
			skipMe = !strings.EqualFold(value, "no")
		default:
			return errSyntax
		}
	}
	killed := int64(0)
	for _, c := range r.s.clients() {
		rejects := func(f func(*conn) bool) bool { return !f(c) }
		if skipMe && c == r.c || slices.ContainsFunc(filters, rejects) {
			continue
		}
		r.kill(c)
		killed++
	}
	r.w.Int(killed)
	return nil
}

// kill ends a connection; its own one after the reply.
func (r *request) kill(c *conn) {
	if c == r.c {
		c.closing = true
		return
	}
	_ = c.nc.Close()
}
