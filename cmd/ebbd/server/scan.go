package server

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"sync"
)

// scanTable has the positions behind the cursors that SCAN and its kin have given out: a cursor of
// the protocol is a number, a position in the order of keys is a key. The newest scanCursors are
// known. A cursor may be used again.
type scanTable struct {
	mu   sync.Mutex
	next uint64
	by   map[uint64]scanPosition
}

const scanCursors = 1 << 16

// scanPosition is the first key, field or member that was not returned.
type scanPosition struct {
	db   int
	id   uint64 // of a collection; 0: a scan of keys
	from []byte
}

func (t *scanTable) put(p scanPosition) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = make(map[uint64]scanPosition)
		// A cursor of an earlier process is unknown, not another one's. Clients parse 53 bits.
		t.next = rand.Uint64N(1<<52) + 1
	}
	token := t.next
	t.next++
	t.by[token] = p
	delete(t.by, token-scanCursors)
	return token
}

func (t *scanTable) get(token uint64) (scanPosition, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.by[token]
	return p, ok
}

// scanArgs are the arguments of a command of the SCAN family.
type scanArgs struct {
	cursor   []byte
	token    uint64
	from     []byte // nil: from the beginning
	pattern  []byte // nil: all
	count    int
	typeName string
	noValues bool
}

// parseScan parses the cursor at position at and the options behind it.
func (r *request) parseScan(at int) (a scanArgs, err error) {
	a.cursor = r.args[at]
	a.token, err = strconv.ParseUint(string(r.args[at]), 10, 64)
	if err != nil {
		return a, errInvalidScan
	}
	a.count = 10
	for i := at + 1; i < len(r.args); i++ {
		switch {
		case r.is(i, "count") && i+1 < len(r.args):
			n, err := r.int(i + 1)
			if err != nil {
				return a, err
			}
			if n < 1 {
				return a, errSyntax
			}
			a.count = int(min(n, 1<<30))
			i++
		case r.is(i, "match") && i+1 < len(r.args):
			a.pattern = r.args[i+1]
			i++
		case r.is(i, "type") && i+1 < len(r.args) && r.cmd.name == "scan":
			a.typeName = string(bytes.ToLower(r.args[i+1]))
			i++
		case r.is(i, "novalues") && r.cmd.name == "hscan":
			a.noValues = true
		default:
			return a, errSyntax
		}
	}
	return a, nil
}

// resume finds the position of the cursor in the keys, or in the collection with an id.
func (r *request) resume(a *scanArgs, id uint64) error {
	if a.token == 0 {
		return nil
	}
	p, ok := r.s.scans.get(a.token)
	if !ok || p.db != r.c.db || p.id != id {
		return replyError("ERR cursor " + string(a.cursor) +
			" is not known here (another key, or a restart of the server?): begin again with 0")
	}
	a.from = p.from
	return nil
}

func (a *scanArgs) matches(name []byte) bool { return a.pattern == nil || match(a.pattern, name) }

// cursor writes the head of the reply: the cursor of what follows next, 0 at the end.
func (r *request) cursor(id uint64, next []byte) {
	r.w.Array(2)
	if next == nil {
		r.w.BulkString("0")
		return
	}
	token := r.s.scans.put(scanPosition{r.c.db, id, next})
	r.w.BulkString(strconv.FormatUint(token, 10))
}

// scanCommand looks at COUNT keys in the order of bytes. Every key that is there from the first
// call to the last is returned, and none twice.
func scanCommand(r *request) error {
	a, err := r.parseScan(1)
	if err != nil {
		return err
	}
	if err := r.resume(&a, 0); err != nil {
		return err
	}
	var next []byte
	var found [][]byte
	looked := 0
	for key, t := range r.sp.Keys(a.from) {
		if looked++; looked > a.count {
			next = append([]byte{}, key...)
			break
		}
		if a.matches(key) && (a.typeName == "" || a.typeName == t.String()) {
			found = append(found, bytes.Clone(key))
		}
	}
	r.cursor(0, next)
	r.bulks(found)
	return nil
}

// bulks writes an array of strings.
func (r *request) bulks(list [][]byte) {
	r.w.Array(len(list))
	for _, b := range list {
		r.w.Bulk(b)
	}
}

func keysCommand(r *request) error {
	pattern := r.args[1]
	prefix := literalPrefix(pattern)
	var found [][]byte
	for key := range r.sp.KeysWithPrefix(prefix) {
		if match(pattern, key) {
			found = append(found, bytes.Clone(key))
		}
	}
	r.bulks(found)
	return nil
}

// literalPrefix returns the bytes with which all matches of a pattern begin.
func literalPrefix(pattern []byte) []byte {
	if i := bytes.IndexAny(pattern, `*?[\`); i >= 0 {
		return pattern[:i]
	}
	return pattern
}
