package main

import (
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

// key gives the bytes of a key argument, which --hex or --base64 may have made printable. Empty stays empty, so
// that an absent bound is no bound.
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

// show gives key or value bytes as a line of text can hold them: as they are if every character is printable, as a
// Go string with quotes if not (or if they begin with a quote, so that both can be told apart).
func (a *app) show(b []byte) string {
	switch {
	case a.hex:
		return hex.EncodeToString(b)
	case a.base64:
		return base64.StdEncoding.EncodeToString(b)
	}
	s := string(b)
	if !utf8.ValidString(s) || strings.HasPrefix(s, `"`) || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// printable gives text that holds what others wrote, such as the name of a file, with Go escapes for what a terminal could
// obey, but for the characters in keep.
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

// setBytes puts b into a JSON object under name, and under name_hex or name_base64 if that is how it is encoded: asked
// for, or because a JSON string cannot hold the bytes.
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

// printJSON prints v as one line.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
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
