package resp

import (
	"math"
	"strconv"
)

// Writer collects replies in memory. Version 2 gets the nearest type that it has: an array for a
// map, a set or a push, a bulk string for a double or a verbatim string, an integer for a boolean.
type Writer struct {
	Version int // 2 or 3
	// Most bounds the bytes that are collected; 0: no bound. What exceeds it is dropped and
	// Overflow says so.
	Most     int
	overflow bool
	buf      []byte
}

// Bytes returns the collected replies. The slice is valid until the next call.
func (w *Writer) Bytes() []byte { return w.buf }

// Len returns the number of collected bytes, a position for Truncate.
func (w *Writer) Len() int { return len(w.buf) }

// Truncate drops what was written since Len returned n.
func (w *Writer) Truncate(n int) { w.buf = w.buf[:n] }

// Overflow says whether replies were dropped.
func (w *Writer) Overflow() bool { return w.overflow }

// Reset drops all replies. A large buffer is released.
func (w *Writer) Reset() {
	w.overflow = false
	if cap(w.buf) > retainedBuffer {
		w.buf = nil
		return
	}
	w.buf = w.buf[:0]
}

// full says whether n more bytes exceed the bound.
func (w *Writer) full(n int) bool {
	if w.Most > 0 && len(w.buf)+n > w.Most {
		w.overflow = true
	}
	return w.overflow
}

func (w *Writer) header(kind byte, n int64) {
	if w.full(24) {
		return
	}
	w.buf = append(w.buf, kind)
	w.buf = strconv.AppendInt(w.buf, n, 10)
	w.buf = append(w.buf, '\r', '\n')
}

func (w *Writer) text(kind byte, s string) {
	if w.full(len(s) + 3) {
		return
	}
	w.buf = append(w.buf, kind)
	w.buf = append(w.buf, s...)
	w.buf = append(w.buf, '\r', '\n')
}

// Simple writes a simple string, which has no line end.
func (w *Writer) Simple(s string) { w.text('+', s) }

// Error writes an error. Its text begins with a code, such as ERR. Line ends become spaces.
func (w *Writer) Error(s string) {
	clean := []byte(s)
	for i, c := range clean {
		if c == '\r' || c == '\n' {
			clean[i] = ' '
		}
	}
	w.text('-', string(clean))
}

// Int writes an integer.
func (w *Writer) Int(n int64) { w.header(':', n) }

// Array begins an array of n elements.
func (w *Writer) Array(n int) { w.header('*', int64(n)) }

// Map begins a map of n pairs.
func (w *Writer) Map(n int) {
	if w.Version >= 3 {
		w.header('%', int64(n))
		return
	}
	w.Array(2 * n)
}

// Set begins a set of n elements.
func (w *Writer) Set(n int) {
	if w.Version >= 3 {
		w.header('~', int64(n))
		return
	}
	w.Array(n)
}

// Push begins an out-of-band message of n elements.
func (w *Writer) Push(n int) {
	if w.Version >= 3 {
		w.header('>', int64(n))
		return
	}
	w.Array(n)
}

// Bulk writes a string of any bytes.
func (w *Writer) Bulk(b []byte) {
	if w.full(len(b) + 24) {
		return
	}
	w.header('$', int64(len(b)))
	w.buf = append(w.buf, b...)
	w.buf = append(w.buf, '\r', '\n')
}

// BulkString writes a string of any bytes.
func (w *Writer) BulkString(s string) {
	if w.full(len(s) + 24) {
		return
	}
	w.header('$', int64(len(s)))
	w.buf = append(w.buf, s...)
	w.buf = append(w.buf, '\r', '\n')
}

// Verbatim writes a text for people.
func (w *Writer) Verbatim(s string) {
	if w.Version < 3 {
		w.BulkString(s)
		return
	}
	if w.full(len(s) + 32) {
		return
	}
	w.header('=', int64(len(s)+4))
	w.buf = append(w.buf, "txt:"...)
	w.buf = append(w.buf, s...)
	w.buf = append(w.buf, '\r', '\n')
}

// Null writes the absence of a value.
func (w *Writer) Null() {
	if w.Version >= 3 {
		w.text('_', "")
		return
	}
	w.header('$', -1)
}

// NullArray writes the absence of an array.
func (w *Writer) NullArray() {
	if w.Version >= 3 {
		w.text('_', "")
		return
	}
	w.header('*', -1)
}

// Bool writes a boolean.
func (w *Writer) Bool(b bool) {
	switch {
	case w.Version >= 3 && b:
		w.text('#', "t")
	case w.Version >= 3:
		w.text('#', "f")
	case b:
		w.Int(1)
	default:
		w.Int(0)
	}
}

// Double writes a floating-point number.
func (w *Writer) Double(f float64) {
	if w.Version >= 3 {
		w.text(',', FormatDouble(f))
		return
	}
	w.BulkString(FormatDouble(f))
}

// Append writes an encoded reply, such as one that another Writer has collected.
func (w *Writer) Append(encoded []byte) {
	if !w.full(len(encoded)) {
		w.buf = append(w.buf, encoded...)
	}
}

// FormatDouble returns the shortest text that parses to f, an integer without a fraction.
func FormatDouble(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	case f == math.Trunc(f) && math.Abs(f) < 1e17:
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}
