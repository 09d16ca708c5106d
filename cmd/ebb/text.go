package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// What a key is not that --hex or --base64 says it is.
var (
	errNotHex    = errors.New("key is not hex")
	errNotBase64 = errors.New("key is not base64")
)

// key gives the bytes of a key argument, which --hex or --base64 may have made printable. Empty
// stays empty, so that an absent bound is no bound.
func (a *app) key(arg string) ([]byte, error) {
	switch {
	case arg == "":
		return nil, nil
	case a.hex:
		b, err := hex.DecodeString(arg)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNotHex, err)
		}
		return b, nil
	case a.base64:
		b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(arg, "="))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNotBase64, err)
		}
		return b, nil
	}
	return []byte(arg), nil
}

// show gives key or value bytes as a line of text can hold them: as they are if every character is
// printable, as a Go string with quotes if not (or if they begin with a quote, so that both can be
// told apart).
func (a *app) show(b []byte) string {
	var s strings.Builder
	a.showTo(&s, b) // a Builder takes all
	return s.String()
}

func unprintable(r rune) bool { return !strconv.IsPrint(r) }

// showTo writes what show gives. It does so in pieces: b may be a value of 1 GiB.
func (a *app) showTo(w io.Writer, b []byte) error {
	switch {
	case a.hex, a.base64:
		return a.encodeTo(w, b)
	case utf8.Valid(b) && !bytes.HasPrefix(b, []byte(`"`)) && !bytes.ContainsFunc(b, unprintable):
		_, err := w.Write(b)
		return err
	}
	if _, err := io.WriteString(w, `"`); err != nil {
		return err
	}
	for quoted := []byte(nil); len(b) > 0; {
		n := wholeRunes(b, pieceSize)
		quoted = strconv.AppendQuote(quoted[:0], string(b[:n]))
		if _, err := w.Write(quoted[1 : len(quoted)-1]); err != nil {
			return err
		}
		b = b[n:]
	}
	_, err := io.WriteString(w, `"`)
	return err
}

// encodeTo writes b in hex if that is asked for, else in base64.
func (a *app) encodeTo(w io.Writer, b []byte) error {
	if a.hex {
		_, err := hex.NewEncoder(w).Write(b)
		return err
	}
	e := base64.NewEncoder(base64.StdEncoding, w)
	if _, err := e.Write(b); err != nil {
		return err
	}
	return e.Close()
}

// pieceSize is how many bytes are quoted at a time.
const pieceSize = 4096

// wholeRunes gives how many of the first most bytes of b do not end inside a character.
func wholeRunes(b []byte, most int) int {
	if len(b) <= most {
		return len(b)
	}
	for n := most; n > most-utf8.UTFMax; n-- {
		if utf8.RuneStart(b[n]) {
			return n
		}
	}
	return most // no character is that long
}

// printable gives text that holds what others wrote, such as the name of a file, with Go escapes
// for what a terminal could obey, but for the characters in keep.
func printable(text, keep string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case strconv.IsPrint(r) || strings.ContainsRune(keep, r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		text = text[n:]
	}
	return b.String()
}

// setBytes puts b into a JSON object under name, and under name_hex or name_base64 if that is how
// it is encoded: asked for, or because a JSON string cannot hold the bytes.
func (a *app) setBytes(object map[string]any, name string, b []byte) {
	switch {
	case a.hex:
		object[name+"_hex"] = hex.EncodeToString(b)
	case a.base64, !utf8.Valid(b):
		object[name+"_base64"] = base64.StdEncoding.EncodeToString(b)
	default:
		object[name] = string(b)
	}
}

// largeValue is the size from which on a value is printed as JSON in pieces, and then in base64
// unless hex is asked for: one of 1 GiB would take many times its size in memory as a string of an
// object.
const largeValue = 1 << 20

// printRowJSON prints object with a value as its last field, as setBytes names it.
func (a *app) printRowJSON(object map[string]any, value []byte) error {
	if len(value) < largeValue {
		a.setBytes(object, "value", value)
		return a.printJSON(object)
	}
	var head bytes.Buffer
	if err := encodeJSON(&head, object); err != nil {
		return err
	}
	name := "value_base64"
	if a.hex {
		name = "value_hex"
	}
	fmt.Fprintf(a.out, `%s,"%s":"`, bytes.TrimSuffix(head.Bytes(), []byte("}\n")), name)
	if err := a.encodeTo(a.out, value); err != nil {
		return err
	}
	_, err := a.out.WriteString("\"}\n")
	return err
}

// printJSON prints v as one line.
func (a *app) printJSON(v any) error {
	return encodeJSON(a.out, v)
}

func encodeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table prints rows whose columns line up; cells are separated by tabs.
func table(w io.Writer, rows ...string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(t, row); err != nil {
			return err
		}
	}
	return t.Flush()
}

// size gives a number of bytes for people.
func size(n int64) string {
	f, unit := float64(n), 0
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for f >= 1024 && unit < len(units)-1 {
		f, unit = f/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[unit])
}

// plural gives "1 file", "2 files", "3 batches".
func plural[N int | int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	if strings.HasSuffix(one, "ch") {
		return fmt.Sprintf("%d %ses", n, one)
	}
	return fmt.Sprintf("%d %ss", n, one)
}
