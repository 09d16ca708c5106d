package kv

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/ebbkv/ebb/internal/openhook"
)

// Errors pass up through several packages, each of which adds its own words. The text for the user
// is one sentence: the kind, in the words of this package, then further facts, without repetition.
// The chain of wrapped errors is unchanged.

// packages are the names that begin the errors of this module.
var packages = []string{"kv", "cf", "ttl", "txn", "wal", "pager", "btree", "vfs"}

// sayings maps texts of errors of lower packages to the error of this package that they repeat.
var sayings = func() map[string]string {
	m := map[string]string{
		"fate of the commit is unknown":               words(ErrCommitUnknown),
		"log failed earlier and takes no more writes": words(ErrFailed),
		"log is closed":                               words(ErrClosed),
	}
	for _, k := range kinds {
		m[words(k.to)] = words(k.to)
		if !k.more {
			m[words(k.from)] = words(k.to)
		}
	}
	return m
}()

// words is the text of an error without the name of its package.
func words(err error) string {
	text := err.Error()
	if name, rest, ok := strings.Cut(text, ": "); ok && slices.Contains(packages, name) {
		return rest
	}
	return text
}

// plainText removes names of packages and repetitions from the text of an error. skip drops or
// replaces further parts; without it the name of this package stays in front.
func plainText(text string, skip func(part string) (string, bool)) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		var parts []string
		said := map[string]bool{}
		for j, part := range strings.Split(line, ": ") {
			if first := i == 0 && j == 0 && part == "kv" &&
				skip == nil; slices.Contains(packages, part) && !first {
				continue
			}
			if kind, ok := sayings[part]; ok {
				if part = kind; said[kind] {
					continue
				}
				said[kind] = true
			}
			if skip != nil {
				if other, drop := skip(part); drop {
					continue
				} else {
					part = other
				}
			}
			parts = append(parts, part)
		}
		lines[i] = strings.Join(parts, ": ")
	}
	return strings.Join(lines, "\n")
}

// worded is an error that no error of this package stands for, with a plain text.
type worded struct{ err error }

func (w *worded) Error() string { return plainText(w.err.Error(), nil) }
func (w *worded) Unwrap() error { return w.err }

// openError is an error of Open. It names the path once, as the caller gave it.
type openError struct {
	shown, path string // path is what the packages below know the store by
	err         error
}

func (e *openError) Unwrap() error { return e.err }

// Error drops the parts that only repeat the path, or a system call on it, as "flock PATH".
func (e *openError) Error() string {
	return "open " + e.shown + ": " + plainText(e.err.Error(), func(part string) (string, bool) {
		for _, path := range []string{e.path, e.shown} {
			op, of := strings.CutSuffix(part, " "+path)
			switch {
			case part == path, of && !strings.Contains(op, " "):
				return "", true
			case part == "corrupt file "+path, part == "corrupt file "+filepath.Base(path):
				return "corrupt", false
			}
		}
		return part, false
	})
}

func init() {
	openhook.OpenError = func(path string, err error) error {
		if err == nil {
			return nil
		}
		return &openError{path, path, fromBelow(err)}
	}
}
