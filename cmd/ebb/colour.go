package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// Colours of ANSI, which a terminal maps to those of its theme.
const (
	red    = 31
	green  = 32
	yellow = 33
	cyan   = 36
)

// showsColour reports whether w is a terminal that is to show colours. A pipe or a file is not, nor
// is a terminal if NO_COLOR is set and not empty (https://no-color.org) or TERM is dumb.
func showsColour(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// painted is text in a colour, if colours are shown.
func painted(shown bool, colour int, text string) string {
	if !shown || text == "" {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colour, text)
}
