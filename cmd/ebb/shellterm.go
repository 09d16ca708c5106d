package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"
)

// onTerminal runs the shell on a terminal: it edits lines in raw mode, and runs commands in the mode
// that the terminal had.
func (s *shell) onTerminal(ctx context.Context, in *os.File, h *history) error {
	fd := int(in.Fd())
	s.colours = showsColour(os.Stdout)
	t := s.terminal(struct {
		io.Reader
		io.Writer
	}{typing{in}, os.Stdout})
	t.History = h
	raw := func(fn func() error) error {
		state, err := term.MakeRaw(fd)
		if err != nil {
			return err
		}
		return errors.Join(fn(), term.Restore(fd, state))
	}
	s.stdout = os.Stdout
	s.page = func(w io.Writer) io.Writer {
		_, height, err := term.GetSize(int(os.Stdout.Fd()))
		if err != nil || height < 3 {
			return w
		}
		return &pagedWriter{to: w, page: height - 1, ask: func() (more bool) {
			err := raw(func() error {
				var key [1]byte
				_, err := in.Read(key[:])
				more = err == nil && key[0] != 'q' && key[0] != 3 // Ctrl-C
				return err
			})
			return err == nil && more
		}}
	}
	// The context of the process has ended with the first interrupt of a command.
	running, stop := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM)
	defer stop()
	return s.interactive(ctx, func(prompt string) (line string, err error) {
		if width, height, err := term.GetSize(fd); err == nil && width > 0 { // 0 is unknown.
			_ = t.SetSize(width, height) // It fails where it cannot redraw.
		}
		t.SetPrompt(prompt)
		err = raw(func() (err error) {
			line, err = readLine(running, t)
			return err
		})
		if errors.Is(err, io.EOF) {
			err = io.EOF
		}
		return line, err
	})
}

// typing is what is typed at the prompt. Ctrl-C clears the line, as in other shells: the terminal
// would take it for the end of the input. It becomes the keys that go to the end of a line and
// delete all before it.
type typing struct{ in io.Reader }

func (t typing) Read(b []byte) (int, error) {
	const ctrlC, ctrlE, ctrlU = 3, 5, 21
	typed := make([]byte, max(len(b)/2, 1))
	n, err := t.in.Read(typed)
	read := b[:0]
	for _, key := range typed[:n] {
		switch {
		case key != ctrlC:
			read = append(read, key)
		case len(b) == 1:
			read = append(read, ctrlU)
		default:
			read = append(read, ctrlE, ctrlU)
		}
	}
	return len(read), err
}

// readLine reads a line, until the process is to end: then the read goes on in its goroutine.
func readLine(running context.Context, t *term.Terminal) (string, error) {
	type typed struct {
		line string
		err  error
	}
	read := make(chan typed, 1)
	go func() {
		line, err := t.ReadLine()
		if err == term.ErrPasteIndicator { // a line that was pasted
			err = nil
		}
		read <- typed{line, err}
	}()
	select {
	case l := <-read:
		return l.line, l.err
	case <-running.Done():
		return "", interrupted{}
	}
}

// terminal edits lines, with a history and completion.
func (s *shell) terminal(rw io.ReadWriter) *term.Terminal {
	t := term.NewTerminal(rw, "")
	t.AutoCompleteCallback = func(line string, pos int, key rune) (string, int, bool) {
		if key != '\t' {
			return "", 0, false
		}
		head, list := s.complete(line[:pos])
		if len(list) > 1 && head == line[:pos] {
			fmt.Fprintln(t, strings.Join(list, "  ")) // The line is drawn again below.
		}
		return head + line[pos:], len(head), true
	}
	return t
}

// complete completes the last word of a line as far as all words agree that fit, and lists them.
// The commands complete their arguments as they do for other shells.
func (s *shell) complete(line string) (completed string, list []string) {
	before, at, word := lastWord(line)
	var out bytes.Buffer
	a := &app{stdin: noInput{}, out: newOutput(&out), stderr: io.Discard, clock: s.app.clock, held: s.held}
	args := []string{word}
	if len(before) > 0 {
		args = s.call(append(before, word))
	}
	a.execute(context.Background(), s.commands(a), append([]string{"__completeNoDesc"}, args...))
	for _, offer := range strings.Split(out.String(), "\n") {
		if strings.HasPrefix(offer, ":") { // the directive, behind all offers
			break
		}
		if strings.HasPrefix(offer, word) && offer != "" {
			list = append(list, offer)
		}
	}
	if len(list) == 0 {
		return line, nil
	}
	common := list[0]
	for _, other := range list[1:] {
		for !strings.HasPrefix(other, common) {
			common = common[:wholeRunes([]byte(common), len(common)-1)]
		}
	}
	switch {
	case len(list) == 1:
		return line[:at] + quoteWord(common) + " ", list
	case common == word:
		return line, list
	}
	return line[:at] + strings.TrimSuffix(quoteWord(common), `"`), list
}

// pagedWriter stops behind each page of lines, and asks whether to go on.
type pagedWriter struct {
	to    io.Writer
	page  int // lines
	lines int // since the last stop
	ask   func() bool
}

// errEnough ends a command whose reader has seen enough.
var errEnough = errors.New("enough")

const askMore = "-- more: any key, or q --"

func (p *pagedWriter) Write(b []byte) (n int, err error) {
	for n < len(b) {
		if p.lines == p.page {
			fmt.Fprint(p.to, askMore)
			more := p.ask()
			fmt.Fprint(p.to, "\r"+strings.Repeat(" ", len(askMore))+"\r")
			if !more {
				return n, errEnough
			}
			p.lines = 0
		}
		end := bytes.IndexByte(b[n:], '\n') + 1
		if end == 0 {
			end = len(b) - n
		} else {
			p.lines++
		}
		written, err := p.to.Write(b[n : n+end])
		if n += written; err != nil {
			return n, err
		}
	}
	return n, nil
}
