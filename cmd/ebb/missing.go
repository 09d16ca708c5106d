package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ebbkv/ebb/kv"
)

// missing reports what a command could not read, where that is, and how much there is of it.
type missing struct {
	app  *app
	rows int64 // in all
	n    int   // places
}

// watch makes the ranges of tx go on behind damage, and prints each place: on standard error, or as
// a record of JSON. told is given the records instead, unless it is nil.
func (m *missing) watch(tx *kv.Tx, told func(map[string]any)) {
	tx.OnDamage(func(d kv.Damage) bool {
		m.rows += d.Rows
		m.n++
		switch {
		case !m.app.json:
			head := painted(showsColour(m.app.stderr), red, "missing:")
			fmt.Fprintf(m.app.stderr, "%s %s\n", head, printable(m.text(d), ""))
		case told == nil: // An output that fails says so with the next row.
			_ = m.app.printJSON(map[string]any{"missing": m.fields(d)})
		}
		if told != nil {
			told(m.fields(d))
		}
		return true
	})
}

// text puts a place on one line.
func (m *missing) text(d kv.Damage) string {
	var b strings.Builder
	switch {
	case d.Family == "":
		fmt.Fprintf(&b, "%s", families(d.Rows))
	case d.Key != nil:
		fmt.Fprintf(&b, "family %s: the value of %s", m.app.show([]byte(d.Family)), m.app.show(d.Key))
	default:
		fmt.Fprintf(&b, "family %s: %s", m.app.show([]byte(d.Family)), plural(d.Rows, "row"))
	}
	if d.Key == nil {
		if d.Lower != nil {
			fmt.Fprintf(&b, " from %s", m.app.show(d.Lower))
		}
		if d.Upper != nil {
			fmt.Fprintf(&b, " up to %s", m.app.show(d.Upper))
		}
	}
	fmt.Fprintf(&b, ": %v", d.Err)
	return b.String()
}

func families(n int64) string {
	if n == 1 {
		return "1 family"
	}
	return fmt.Sprintf("%d families", n)
}

// fields are those of a JSON object: what is lost ("rows" with the range of their keys, or the
// value of one "key"), and where the damage is.
func (m *missing) fields(d kv.Damage) map[string]any {
	object := map[string]any{"error": d.Err.Error()}
	if d.Family != "" {
		object["family"] = d.Family
	}
	switch {
	case d.Key != nil:
		object["what"] = "value"
		m.app.setBytes(object, "key", d.Key)
	case d.Family == "":
		object["what"], object["families"] = "families", d.Rows
	default:
		object["what"], object["rows"] = "rows", d.Rows
	}
	if d.Key == nil && d.Lower != nil {
		m.app.setBytes(object, "from", d.Lower)
	}
	if d.Key == nil && d.Upper != nil {
		m.app.setBytes(object, "to", d.Upper)
	}
	var bad *kv.CorruptError
	if errors.As(d.Err, &bad) {
		object["file"], object["page"], object["offset"] = bad.File, bad.Pgid, bad.Off
	}
	return object
}

// err is nil if nothing was missing.
func (m *missing) err() error {
	if m.n == 0 {
		return nil
	}
	return marked{
		fmt.Errorf("damage in %s; up to %s missing, all others were read", plural(m.n, "place"),
			rowsAre(m.rows)),
		kv.ErrCorrupt,
	}
}

func rowsAre(n int64) string {
	if n == 1 {
		return "1 row or value is"
	}
	return fmt.Sprintf("%d rows or values are", n)
}
