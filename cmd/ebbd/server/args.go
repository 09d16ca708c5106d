package server

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// parseInt parses a decimal integer as Redis does: no spaces, no plus sign, no leading zeros.
func parseInt(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	if len(b) == 1 && b[0] == '0' {
		return 0, true
	}
	digits := b
	if b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) == 0 || digits[0] < '1' || digits[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil
}

// int parses argument i.
func (r *request) int(i int) (int64, error) {
	n, ok := parseInt(r.args[i])
	if !ok {
		return 0, errNotInt
	}
	return n, nil
}

// parseFloat parses a floating-point number, infinities included.
func parseFloat(b []byte) (float64, bool) {
	if len(b) == 0 || len(b) > 256 || bytes.ContainsAny(b, "_ \t\n") {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil && !math.IsInf(f, 0) || math.IsNaN(f) {
		return 0, false
	}
	return f, true
}

func (r *request) float(i int) (float64, error) {
	f, ok := parseFloat(r.args[i])
	if !ok {
		return 0, errNotFloat
	}
	return f, nil
}

// is says whether argument i is a keyword, in any case.
func (r *request) is(i int, word string) bool {
	return i < len(r.args) && strings.EqualFold(string(r.args[i]), word)
}

// word returns argument i in upper case.
func (r *request) word(i int) string { return strings.ToUpper(string(r.args[i])) }

func errSubcommand(r *request) error {
	name := strings.ToUpper(r.cmd.name)
	return replyError(fmt.Sprintf(
		"ERR unknown subcommand or wrong number of arguments for '%.128s'. Try %s HELP.",
		r.args[1],
		name,
	))
}

// help replies with the lines of a HELP subcommand.
func help(r *request, lines ...string) error {
	r.w.Array(len(lines) + 1)
	r.w.Simple(
		strings.ToUpper(r.cmd.name) + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
	)
	for _, line := range lines {
		r.w.Simple(line)
	}
	return nil
}

// match says whether text matches a glob pattern: * ? [a-z] [^a-z] \x. Its time is bounded by the
// product of the lengths.
func match(pattern, text []byte) bool {
	// On a mismatch the newest star takes one byte more; older ones need no second try.
	star, resume := -1, 0
	p, t := 0, 0
	for t < len(text) {
		if p < len(pattern) && pattern[p] == '*' {
			star, resume = p, t
			p++
			continue
		}
		if p < len(pattern) {
			if ok, width := matchOne(pattern[p:], text[t]); ok {
				p += width
				t++
				continue
			}
		}
		if star < 0 {
			return false
		}
		resume++
		p, t = star+1, resume
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchOne matches one byte with the first element of a pattern and returns the element's width.
func matchOne(pattern []byte, c byte) (ok bool, width int) {
	switch pattern[0] {
	case '?':
		return true, 1
	case '\\':
		if len(pattern) > 1 {
			return pattern[1] == c, 2
		}
	case '[':
		return matchClass(pattern, c)
	}
	return pattern[0] == c, 1
}

func matchClass(pattern []byte, c byte) (ok bool, width int) {
	i := 1
	negated := i < len(pattern) && pattern[i] == '^'
	if negated {
		i++
	}
	for ; i < len(pattern) && pattern[i] != ']'; i++ {
		switch {
		case pattern[i] == '\\' && i+1 < len(pattern):
			i++
			ok = ok || pattern[i] == c
		case i+2 < len(pattern) && pattern[i+1] == '-':
			lo, hi := pattern[i], pattern[i+2]
			if lo > hi {
				lo, hi = hi, lo
			}
			ok = ok || lo <= c && c <= hi
			i += 2
		default:
			ok = ok || pattern[i] == c
		}
	}
	// A class without an end reaches to the end of the pattern.
	return ok != negated, min(i+1, len(pattern))
}
