package resp

import (
	"errors"
	"fmt"
	"io"
)

// Limits bound what one command may hold.
type Limits struct {
	Args   int // arguments of a command, its name included
	Bulk   int // bytes of one argument
	Bytes  int // bytes of one command, as encoded
	Inline int // bytes of a line: an inline command, or a length
}

// DefaultLimits are those of Redis.
var DefaultLimits = Limits{Args: 1 << 20, Bulk: 512 << 20, Bytes: 1 << 30, Inline: 64 << 10}

// UnauthenticatedLimits hold before a client has authenticated, as in Redis.
var UnauthenticatedLimits = Limits{Args: 10, Bulk: 16 << 10, Bytes: 256 << 10, Inline: 64 << 10}

// ProtocolError is a violation of the protocol, after which the stream cannot be read on.
type ProtocolError string

func (e ProtocolError) Error() string { return "Protocol error: " + string(e) }

var errTooLarge = errors.New("resp: command exceeds its limit of bytes")

const (
	initialBuffer = 16 << 10
	// Buffers above these sizes are replaced after their commands have run.
	retainedBuffer = 1 << 20
	retainedSlices = 1 << 8
)

// Reader splits a stream into commands. Commands whose bytes have all arrived are returned by Next
// without a copy; a command that is cut goes on where it stopped when more has arrived, so that a
// large one is scanned once.
type Reader struct {
	src    io.Reader
	limits Limits

	buf      []byte // received bytes
	consumed int    // bytes of returned commands
	pos      int    // scan position, at or after consumed

	missing int      // arguments of the current command that are yet to come; 0: no current command
	bulk    int      // length of the argument at pos, -1: its length line is yet to come
	args    []span   // arguments of the current command
	slices  [][]byte // those of returned commands
}

// span is a range of the buffer, which may move while a command arrives.
type span struct{ from, to int }

// NewReader returns a Reader of src.
func NewReader(src io.Reader, limits Limits) *Reader {
	return &Reader{src: src, limits: limits, bulk: -1}
}

// SetLimits replaces the limits, for commands from the next one on.
func (r *Reader) SetLimits(l Limits) { r.limits = l }

// Next returns the next command, or ok false if more input is needed: see Fill. The slices are
// valid until Release. Empty lines and empty arrays are skipped.
func (r *Reader) Next() (args [][]byte, ok bool, err error) {
	for {
		if r.missing == 0 {
			args, ok, err = r.begin()
			if args != nil || !ok || err != nil {
				return args, ok, err
			}
		}
		for r.missing > 0 {
			if ok, err = r.argument(); !ok || err != nil {
				return nil, false, err
			}
		}
		if len(r.args) == 0 {
			continue // an empty array or line
		}
		first := len(r.slices)
		for _, s := range r.args {
			r.slices = append(r.slices, r.buf[s.from:s.to:s.to])
		}
		r.args, r.consumed = r.args[:0], r.pos
		return r.slices[first:len(r.slices):len(r.slices)], true, nil
	}
}

// begin scans the first line of a command: an inline command is returned, an array begins.
func (r *Reader) begin() (args [][]byte, ok bool, err error) {
	if r.pos == len(r.buf) {
		return nil, false, nil
	}
	array := r.buf[r.pos] == '*'
	text, ok, err := r.line(array)
	if !ok || err != nil {
		return nil, false, err
	}
	if !array {
		args, err = splitInline(text)
		if len(args) > r.limits.Args {
			return nil, false, ProtocolError("invalid multibulk length")
		}
		r.consumed = r.pos
		return args, true, err
	}
	n, good := parseLength(text[1:])
	switch {
	case !good || n > DefaultLimits.Args:
		return nil, false, ProtocolError("invalid multibulk length")
	case n > r.limits.Args:
		return nil, false, ProtocolError("unauthenticated multibulk length")
	}
	r.missing, r.bulk = max(n, 0), -1
	if n <= 0 {
		r.consumed = r.pos
	}
	return nil, true, nil
}

// argument scans one argument: its length line and its bytes.
func (r *Reader) argument() (ok bool, err error) {
	if r.bulk < 0 {
		if r.pos == len(r.buf) {
			return false, nil
		}
		if c := r.buf[r.pos]; c != '$' {
			return false, ProtocolError(fmt.Sprintf("expected '$', got '%s'", printable(c)))
		}
		text, ok, err := r.line(true)
		if !ok || err != nil {
			return false, err
		}
		n, good := parseLength(text[1:])
		switch {
		case !good || n < 0:
			return false, ProtocolError("invalid bulk length")
		case n > r.limits.Bulk && r.limits.Bulk == UnauthenticatedLimits.Bulk:
			return false, ProtocolError("unauthenticated bulk length")
		case n > r.limits.Bulk:
			return false, ProtocolError("invalid bulk length")
		case r.pos-r.consumed+n > r.limits.Bytes:
			return false, errTooLarge
		}
		r.bulk = n
	}
	if len(r.buf)-r.pos < r.bulk+2 {
		return false, nil
	}
	end := r.pos + r.bulk
	if r.buf[end] != '\r' || r.buf[end+1] != '\n' {
		return false, ProtocolError("argument does not end with CRLF")
	}
	r.args = append(r.args, span{r.pos, end})
	r.pos, r.bulk = end+2, -1
	r.missing--
	return true, nil
}

// line returns the line at pos without its end and moves behind it. The lines of arrays and
// lengths are short.
func (r *Reader) line(length bool) (text []byte, ok bool, err error) {
	rest := r.buf[r.pos:]
	most := r.limits.Inline
	for i, c := range rest[:min(len(rest), most)] {
		if c != '\n' {
			continue
		}
		r.pos += i + 1
		text = rest[:i]
		if i > 0 && text[i-1] == '\r' {
			text = text[:i-1]
		}
		return text, true, nil
	}
	if len(rest) < most {
		return nil, false, nil
	}
	if length {
		return nil, false, ProtocolError("too big mbulk count string")
	}
	return nil, false, ProtocolError("too big inline request")
}

// Fill waits for input and reads it. The buffer grows with what has arrived, not with what a length
// announces.
func (r *Reader) Fill() error {
	if len(r.buf) == cap(r.buf) {
		grown := make([]byte, len(r.buf), max(initialBuffer, 2*cap(r.buf)))
		copy(grown, r.buf)
		r.buf = grown
	}
	n, err := r.src.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	if err == io.EOF && r.Buffered() > 0 {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Buffered returns the number of received bytes that belong to no returned command.
func (r *Reader) Buffered() int { return len(r.buf) - r.consumed }

// Release ends the use of all commands that Next has returned: their bytes are overwritten.
func (r *Reader) Release() {
	if r.consumed == 0 {
		return
	}
	clear(r.slices) // they may refer to a large buffer
	if r.slices = r.slices[:0]; cap(r.slices) > retainedSlices {
		r.slices = nil
	}
	rest, target := r.buf[r.consumed:], r.buf[:0]
	if cap(r.buf) > retainedBuffer && len(rest) < initialBuffer {
		target = make([]byte, 0, initialBuffer)
	}
	r.buf = append(target, rest...)
	for i := range r.args {
		r.args[i].from -= r.consumed
		r.args[i].to -= r.consumed
	}
	r.pos -= r.consumed
	r.consumed = 0
}

// parseLength parses a length of at most ten digits, or a negative one.
func parseLength(text []byte) (n int, ok bool) {
	digits := text
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 10 {
		return 0, false
	}
	value := int64(0)
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		value = 10*value + int64(c-'0')
	}
	if value > 1<<31-1 {
		return 0, false
	}
	if len(digits) < len(text) {
		value = -value
	}
	return int(value), true
}

func printable(c byte) string {
	if c < ' ' || c > '~' {
		return fmt.Sprintf("\\x%02x", c)
	}
	return string(rune(c))
}
