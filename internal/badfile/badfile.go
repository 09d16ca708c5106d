package badfile

import (
	"errors"
	"fmt"
	"strings"
)

// ErrCorrupt is what every Error is, for errors.Is.
var ErrCorrupt = errors.New("file is corrupt")

// Error names one place in one file whose bytes are wrong.
type Error struct {
	File   string // path or base name of the file
	Pgid   uint64 // page number, if HasPgid
	Off    int64  // byte offset in the file; -1 if unknown
	Detail string // what was found, what was expected

	HasPgid bool
}

// Page reports damage on page pgid of file, found at byte offset off of the file (-1: unknown).
func Page(file string, pgid uint64, off int64, format string, args ...any) *Error {
	return &Error{File: file, Pgid: pgid, HasPgid: true, Off: off, Detail: fmt.Sprintf(format, args...)}
}

// At reports damage at byte offset off of file.
func At(file string, off int64, format string, args ...any) *Error {
	return &Error{File: file, Off: off, Detail: fmt.Sprintf(format, args...)}
}

// Error names the file, the page, the offset and the detail.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("corrupt")
	if e.File != "" {
		fmt.Fprintf(&b, " file %s", e.File)
	}
	if e.HasPgid {
		fmt.Fprintf(&b, ": page %d", e.Pgid)
	}
	if e.Off >= 0 {
		fmt.Fprintf(&b, ": offset %d", e.Off)
	}
	if e.Detail != "" {
		b.WriteString(": ")
		b.WriteString(e.Detail)
	}
	return b.String()
}

// Is makes every Error an ErrCorrupt.
func (e *Error) Is(target error) bool { return target == ErrCorrupt }
