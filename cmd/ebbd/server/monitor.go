package server

import (
	"fmt"
	"strconv"
	"time"

	"github.com/ebbkv/ebb/cmd/ebbd/resp"
)

// mostMonitored bounds the bytes of one line of MONITOR: what is longer ends with three points.
const mostMonitored = 64 << 10

// monitorCommand makes the connection one that gets a line for each command that arrives. RESET and
// the end of the connection end it.
func monitorCommand(r *request) error {
	r.c.subscribe(monitorKind, "")
	return r.ok(nil)
}

// monitor sends the commands that have arrived at a connection to those that monitor. Commands that
// are refused are not shown, nor those of administration, nor passwords.
func (c *conn) monitor(batch [][][]byte) {
	h := &c.s.hub
	if h.monitors.Load() == 0 {
		return
	}
	db := c.db
	for _, args := range batch {
		cmd, err := c.check(args)
		if err != nil || cmd.flags&flagAdmin != 0 || cmd.name == "auth" || cmd.name == "hello" {
			continue
		}
		line := c.monitorLine(time.Now(), db, args)
		if n, ok := parseInt(args[len(args)-1]); cmd.name == "select" && ok {
			db = int(n)
		}
		h.mu.Lock()
		for _, to := range h.by[monitorKind][""] {
			if to != c { // its replies would mix with its own commands
				to.push(func(w *resp.Writer) { w.Simple(line) })
			}
		}
		h.mu.Unlock()
	}
}

// monitorLine has the form of Redis: seconds, database and address, quoted arguments.
func (c *conn) monitorLine(now time.Time, db int, args [][]byte) string {
	micros := now.UnixMicro()
	line := fmt.Appendf(nil, "%d.%06d [%d %s]", micros/1e6, micros%1e6, db, c.nc.RemoteAddr())
	for _, arg := range args {
		if line = appendQuoted(append(line, ' '),
			arg[:min(len(arg), mostMonitored)]); len(line) > mostMonitored {
			return string(line[:mostMonitored]) + "..."
		}
	}
	return string(line)
}

// appendQuoted appends arg between quotes, in printable characters of ASCII.
func appendQuoted(b, arg []byte) []byte {
	b = append(b, '"')
	for _, char := range arg {
		switch {
		case char == '"' || char == '\\':
			b = append(b, '\\', char)
		case char >= ' ' && char <= '~':
			b = append(b, char)
		case char == '\n' || char == '\r' || char == '\t' || char == '\a' || char == '\b':
			b = append(b, strconv.QuoteRune(rune(char))[1:3]...)
		default:
			b = fmt.Appendf(b, "\\x%02x", char)
		}
	}
	return append(b, '"')
}
