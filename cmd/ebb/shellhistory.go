package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The history of the shell is a file of lines, the oldest first, which only its owner reads. Each
// shell appends to it, so that two of them do not lose each other's lines. A shell that starts cuts
// a long one to its last historyLines.
const (
	historyLines = 1000
	historyLine  = 4096 // bytes; longer lines are recalled in their own session only
)

// historyVariable is the variable of the environment that names the file. Empty is none.
const historyVariable = "EBB_HISTORY"

// history is the history of one shell, for term.Terminal.
type history struct {
	lines []string // the oldest first
	file  *os.File // nil: lines end with the session
}

// historyPath is the file of the history; "" if there is none.
func historyPath() string {
	if path, set := os.LookupEnv(historyVariable); set {
		return path
	}
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // The specification has relative ones ignored.
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "ebb", "history")
}

// openHistory reads the history at path, and opens it for more. "" is a history of one run
// only; so is the one that comes with an error.
func openHistory(path string) (*history, error) {
	h := &history{}
	if path == "" {
		return h, nil
	}
	if err := h.read(path); err != nil {
		return h, fmt.Errorf("no history is kept: %w", err)
	}
	return h, nil
}

func (h *history) read(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	stored, cut, err := lastLines(f)
	if err == nil && cut {
		// A crash before the rename leaves the old file, and a temporary one beside it.
		err = replaceHistory(path, stored)
		_ = f.Close() // It was read.
		if err == nil {
			f, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
		}
	}
	if err != nil {
		_ = f.Close() // A second close is harmless.
		return err
	}
	h.lines, h.file = stored, f
	return nil
}

// lastLines reads the last lines of f. cut says that f has more of them.
func lastLines(f *os.File) (lines []string, cut bool, err error) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() { // such as /dev/null
		return nil, false, err
	}
	const most = historyLines * historyLine
	from := max(info.Size()-most, 0)
	b, err := io.ReadAll(io.NewSectionReader(f, from, most))
	if err != nil {
		return nil, false, err
	}
	if from > 0 {
		_, b, _ = bytes.Cut(b, []byte("\n")) // part of a line
	}
	lines = strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' })
	if len(lines) > historyLines {
		return lines[len(lines)-historyLines:], true, nil
	}
	return lines, from > 0, nil
}

// replaceHistory makes lines the content of the file at path.
func replaceHistory(path string, lines []string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(lines, "\n") + "\n")
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Add implements term.History. A line that begins with a blank is not kept, nor is one that repeats
// the line before it.
func (h *history) Add(line string) {
	line = strings.TrimRight(line, " \t") // such as the blank behind a completed word
	last := len(h.lines) - 1
	if line == "" || line[0] == ' ' || last >= 0 && h.lines[last] == line {
		return
	}
	if h.lines = append(h.lines, line); len(h.lines) > historyLines {
		h.lines = h.lines[1:]
	}
	if h.file != nil && len(line) <= historyLine && !strings.ContainsAny(line, "\r\n") {
		_, _ = h.file.WriteString(line + "\n") // One write: lines of two shells do not mix.
	}
}

// Len implements term.History.
func (h *history) Len() int { return len(h.lines) }

// At implements term.History: 0 is the latest line.
func (h *history) At(i int) string { return h.lines[len(h.lines)-1-i] }

func (h *history) close() {
	if h.file != nil {
		_ = h.file.Close() // Its lines are written.
	}
}
