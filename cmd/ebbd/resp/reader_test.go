package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/bound"
)

// readAll returns all commands of a stream, each as its arguments quoted.
func readAll(r *Reader) (commands []string, err error) {
	for {
		args, ok, err := r.Next()
		switch {
		case err != nil:
			return commands, err
		case ok:
			commands = append(commands, fmt.Sprintf("%q", args))
			continue
		}
		r.Release()
		if err := r.Fill(); err != nil {
			if err == io.EOF {
				err = nil
			}
			return commands, err
		}
	}
}

func TestReaderSplitsAStreamIntoCommands(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"array", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", `["GET" "k"]`},
		{"pipeline", "*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPONG\r\n", `["PING"] ["PONG"]`},
		{"empty_argument", "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", `["ECHO" ""]`},
		{"binary", "*1\r\n$4\r\n\r\n\x00*\r\n", `["\r\n\x00*"]`},
		{"inline", "SET a  b\r\nGET a\n", `["SET" "a" "b"] ["GET" "a"]`},
		{"inline_quotes", "SET \"a b\" 'c d' \"\\x41\\n\\\"\"\r\n", `["SET" "a b" "c d" "A\n\""]`},
		{"inline_single_quotes", `ECHO 'it\'s \n'` + "\n", `["ECHO" "it's \\n"]`},
		{"empty_lines_and_arrays", "\r\n*0\r\n\n*-1\r\n*1\r\n$1\r\nx\r\n", `["x"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, src := range []io.Reader{
				strings.NewReader(c.in),
				iotest.OneByteReader(strings.NewReader(c.in)),
				iotest.HalfReader(strings.NewReader(c.in)),
			} {
				got, err := readAll(NewReader(src, DefaultLimits))
				require.NoError(t, err)
				require.Equal(t, c.want, strings.Join(got, " "))
			}
		})
	}
}

func TestReaderRefusesWhatIsNoCommand(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"array_length", "*x\r\n", "invalid multibulk length"},
		{"array_too_long", "*1048577\r\n", "invalid multibulk length"},
		{"array_of_overlong_number", "*99999999999\r\n", "invalid multibulk length"},
		{"no_bulk", "*1\r\n:1\r\n", "expected '$', got ':'"},
		{"bulk_length", "*1\r\n$-1\r\n", "invalid bulk length"},
		{"bulk_too_long", "*1\r\n$536870913\r\n", "invalid bulk length"},
		{"bulk_without_end", "*1\r\n$1\r\nabc\r\n", "argument does not end with CRLF"},
		{"quotes", "SET \"a\r\n", "unbalanced quotes in request"},
		{"text_after_quote", "SET \"a\"b\r\n", "unbalanced quotes in request"},
		{"inline_too_long", strings.Repeat("a", 64<<10+1), "too big inline request"},
		{"length_too_long", "*" + strings.Repeat("1", 64<<10+1), "too big mbulk count string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readAll(NewReader(strings.NewReader(c.in), DefaultLimits))
			var protocol ProtocolError
			require.ErrorAs(t, err, &protocol)
			require.Equal(t, "Protocol error: "+c.want, err.Error())
		})
	}
}

func TestReaderLimitsWhatIsNotAuthenticated(t *testing.T) {
	for in, want := range map[string]string{
		"*11\r\n":          "Protocol error: unauthenticated multibulk length",
		"*1\r\n$16385\r\n": "Protocol error: unauthenticated bulk length",
	} {
		_, err := readAll(NewReader(strings.NewReader(in), UnauthenticatedLimits))
		require.EqualError(t, err, want)
	}
	in := "*2\r\n$3\r\nabc\r\n$4\r\nabcd\r\n"
	_, err := readAll(
		NewReader(strings.NewReader(in), Limits{Args: 9, Bulk: 9, Bytes: 20, Inline: 99}),
	)
	require.ErrorIs(t, err, errTooLarge)
}

// TestReaderAllocatesForWhatHasArrived: a length alone takes no memory.
func TestReaderAllocatesForWhatHasArrived(t *testing.T) {
	r := NewReader(strings.NewReader("*1\r\n$536870912\r\nabc"), DefaultLimits)
	_, err := readAll(r)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.LessOrEqual(t, cap(r.buf), 2*initialBuffer)
}

func TestReaderReleasesALargeBuffer(t *testing.T) {
	var in bytes.Buffer
	fmt.Fprintf(&in, "*1\r\n$%d\r\n%s\r\n", 3<<20, strings.Repeat("x", 3<<20))
	r := NewReader(&in, DefaultLimits)
	got, err := readAll(r)
	require.NoError(t, err)
	require.Len(t, got, 1)
	r.Release()
	require.LessOrEqual(t, cap(r.buf), initialBuffer)
}

// FuzzReader: no input makes the reader panic or hang, its commands do not depend on how the stream
// is cut, and what is encoded again is read again.
func FuzzReader(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n"))
	f.Add([]byte("SET \"a b\" 'c' \"\\xff\"\r\n*0\r\n*1\r\n$0\r\n\r\n"))
	f.Add([]byte("*1\r\n$-1\r\n"))
	limits := Limits{Args: 64, Bulk: 1 << 10, Bytes: 4 << 10, Inline: 256}
	f.Fuzz(func(t *testing.T, in []byte) {
		defer bound.Hold(t, uint64(8<<20+1000*len(in)))()
		whole, err := readAll(NewReader(bytes.NewReader(in), limits))
		cut, cutErr := readAll(NewReader(iotest.OneByteReader(bytes.NewReader(in)), limits))
		require.Equal(t, whole, cut)
		require.Equal(t, errors.Is(err, nil), errors.Is(cutErr, nil))

		r := NewReader(bytes.NewReader(in), limits)
		require.True(t, r.Fill() == nil || len(in) == 0)
		for {
			args, ok, err := r.Next()
			if !ok || err != nil {
				return
			}
			w := &Writer{}
			w.Array(len(args))
			for _, arg := range args {
				w.Bulk(arg)
			}
			again, ok, err := NewReaderOf(w.Bytes()).Next()
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, args, again)
		}
	})
}

// NewReaderOf returns a reader that has received b.
func NewReaderOf(b []byte) *Reader {
	r := NewReader(bytes.NewReader(b), DefaultLimits)
	for len(r.buf) < len(b) && r.Fill() == nil {
		continue
	}
	return r
}
