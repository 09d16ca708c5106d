package ui

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// Bounds of an answer with rows.
const (
	mostRows    = 100
	mostBytes   = 1 << 20  // of keys and previews
	mostPreview = 200      // bytes of a value in the table
	mostRead    = 64 << 10 // a larger value is not read for its preview
	mostSeen    = 50_000   // rows of a time-partitioned family that a prefix skips
	valueChunk  = 64 << 10
	mostValue   = 256 << 20 // a larger value is not read
)

// row is a row, or a place where rows are missing.
type row struct {
	Key    []byte   `json:"key,omitempty"`
	Time   *int64   `json:"time,omitempty"`    // ms; of a time-partitioned family
	Size   int      `json:"size"`              // of the value
	Value  []byte   `json:"value,omitempty"`   // the first bytes of the value
	Unread bool     `json:"unread,omitempty"`  // the value is large
	Expiry int64    `json:"expiry,omitempty"`  // ms; 0: none
	Lost   string   `json:"lost,omitempty"`    // why the value cannot be read
	Gap    *missing `json:"missing,omitempty"` // instead of a row
}

type missing struct {
	Rows  int64  `json:"rows"`
	Error string `json:"error"`
}

// rowsPage is one answer.
type rowsPage struct {
	Now  int64 `json:"now"`
	Rows []row `json:"rows"`
	// More says that the rows go on behind After and AfterTime, which a request for the next page names.
	More      bool   `json:"more"`
	After     []byte `json:"after,omitempty"`
	AfterTime int64  `json:"after_time,omitempty"`
	bytes     int
	damaged   bool
}

func (p *rowsPage) add(r row) {
	p.Rows = append(p.Rows, r)
	p.bytes += len(r.Key) + len(r.Value)
}

func (p *rowsPage) full() bool { return len(p.Rows) >= mostRows || p.bytes >= mostBytes }

// hexArg is an argument of bytes in hex.
func hexArg(r *http.Request, name string) ([]byte, error) {
	b, err := hex.DecodeString(r.URL.Query().Get(name))
	if err != nil {
		return nil, badRequest{fmt.Errorf("%s: %w", name, err)}
	}
	return b, nil
}

// apiRows gives the rows of a family that begin with prefix, behind those of the page before.
func (s *Server) apiRows(r *http.Request) (answer any, err error) {
	name := r.URL.Query().Get("family")
	prefix, err := hexArg(r, "prefix")
	if err != nil {
		return nil, err
	}
	after, err := hexArg(r, "after")
	if err != nil {
		return nil, err
	}
	from, err := instant(r, "after_time", math.MinInt64)
	if err != nil {
		return nil, err
	}
	err = s.read(r, func(t *state) (bool, error) {
		if err := t.errNoRows(); err != nil {
			return false, err
		}
		p := &rowsPage{Rows: []row{}}
		err := t.db.View(func(tx *kv.Tx) error {
			p.Now = tx.Now().UnixMilli()
			o, err := tx.CFOptions(name)
			if err != nil {
				return err
			}
			tx.OnDamage(func(d kv.Damage) bool {
				p.damaged = true
				if d.Key == nil {
					p.add(row{Gap: &missing{d.Rows, d.Err.Error()}})
				}
				return !p.full()
			})
			if o.Retention > 0 {
				return p.timed(tx, name, prefix, after, from)
			}
			return p.plain(tx, name, prefix, after)
		})
		if p.full() && p.damaged {
			p.More, err = true, nil
		}
		answer = p
		return p.damaged, err
	})
	return answer, err
}

// instant is an argument in milliseconds.
func instant(r *http.Request, name string, otherwise int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	var ms int64
	if err := json.Unmarshal([]byte(text), &ms); err != nil {
		return 0, badRequest{fmt.Errorf("%s: %w", name, err)}
	}
	return ms, nil
}

// plain adds the rows of a family in the order of keys.
func (p *rowsPage) plain(tx *kv.Tx, name string, prefix, after []byte) error {
	family := tx.CF(name)
	c := family.CursorIn(kv.ScanOptions{Prefix: prefix})
	ok := false
	if len(after) == 0 {
		ok = c.First()
	} else {
		ok = c.Seek(append(bytes.Clone(after), 0))
	}
	for ; ok; ok = c.Next() {
		if p.full() {
			p.More = true
			return nil
		}
		r := row{Key: bytes.Clone(c.Key())}
		p.After = r.Key
		if at, ok := c.Expiry(); ok {
			r.Expiry = at.UnixMilli()
		}
		var err error
		if r.Size, err = family.Size(r.Key); err != nil {
			return err
		}
		if r.Unread = r.Size > mostRead; !r.Unread {
			value := c.Value()
			if value == nil && c.Err() == nil {
				r.Lost = "the value cannot be read"
			}
			r.Value = bytes.Clone(value[:min(len(value), mostPreview)])
		}
		p.add(r)
	}
	return c.Err()
}

// timed adds the rows of a time-partitioned family in the order of time.
func (p *rowsPage) timed(tx *kv.Tx, name string, prefix, after []byte, fromMs int64) error {
	from, seen := time.Time{}, 0
	if fromMs != math.MinInt64 {
		from = time.UnixMilli(fromMs)
	}
	for k, value := range tx.CF(name).ScanTime(from, time.Time{}, false) {
		ms := k.Time.UnixMilli()
		if ms == fromMs && bytes.Compare(k.Key, after) <= 0 {
			continue
		}
		if seen++; p.full() || seen > mostSeen {
			p.More = true
			break
		}
		p.After, p.AfterTime = bytes.Clone(k.Key), ms
		if !bytes.HasPrefix(k.Key, prefix) {
			continue
		}
		preview := bytes.Clone(value[:min(len(value), mostPreview)])
		r := row{Key: p.After, Time: &ms, Size: len(value), Value: preview}
		if value == nil {
			r.Lost = "the value cannot be read"
		}
		p.add(r)
	}
	return tx.Err()
}

// apiValue gives a part of a value; a small value that is JSON also as indented text.
func (s *Server) apiValue(r *http.Request) (answer any, err error) {
	name := r.URL.Query().Get("family")
	key, err := hexArg(r, "key")
	if err != nil {
		return nil, err
	}
	off, err := number(r, "offset", 0, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	ms, err := instant(r, "time", math.MinInt64)
	if err != nil {
		return nil, err
	}
	err = s.read(r, func(t *state) (bool, error) {
		if err := t.errNoRows(); err != nil {
			return false, err
		}
		return false, t.db.View(func(tx *kv.Tx) error {
			value, err := valueOf(tx.CF(name), key, ms)
			if err != nil {
				return err
			}
			part := value[min(off, int64(len(value))):]
			a := map[string]any{
				"size": len(value), "offset": off, "value": bytes.Clone(part[:min(len(part), valueChunk)]),
			}
			var text bytes.Buffer
			if len(value) <= valueChunk && json.Indent(&text, value, "", "  ") == nil &&
				text.Len() <= mostBytes {
				a["json"] = text.String()
			}
			answer = a
			return nil
		})
	})
	return answer, err
}

// valueOf reads a value, unless it is very large.
func valueOf(family *kv.CF, key []byte, ms int64) ([]byte, error) {
	if ms != math.MinInt64 {
		return family.GetAt(time.UnixMilli(ms), key)
	}
	size, err := family.Size(key)
	if err != nil {
		return nil, err
	}
	if size > mostValue {
		return nil, fmt.Errorf("the value has %d bytes: `ebb get` prints it", size)
	}
	return family.Get(key)
}
