package fuzz

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Rot is one damage to the files of a specimen. As a line it is "SHAPE FILE HOW AT ARG".
type Rot struct {
	Shape string
	File  string // base name; "-" where all are meant
	How   string
	At    int64
	Arg   int64
}

func (r Rot) String() string {
	return fmt.Sprintf("%s %s %s %d %d", r.Shape, r.File, r.How, r.At, r.Arg)
}

// ParseRot is the inverse of String.
func ParseRot(line string) (r Rot, err error) {
	n, err := fmt.Sscanf(line, "%s %s %s %d %d", &r.Shape, &r.File, &r.How, &r.At, &r.Arg)
	if err != nil || n != 5 || r.String() != strings.TrimSpace(line) {
		return r, fmt.Errorf("%q is not a line of damage: want SHAPE FILE HOW AT ARG", line)
	}
	if _, ok := damages[r.How]; !ok {
		return r, fmt.Errorf("damage %q is not known", r.How)
	}
	return r, nil
}

// What Arg of grow says.
const (
	growZeros = iota
	growJunk
	growEcho // the bytes from the file's start
	growKinds
)

// damages says for each kind what it does to a copy of the bytes; nil means that it does not fit.
var damages = map[string]func(s *Specimen, r Rot, b []byte) []byte{
	// flip turns bit Arg of byte At.
	"flip": func(_ *Specimen, r Rot, b []byte) []byte {
		if r.At < 0 || r.At >= int64(len(b)) || r.Arg < 0 || r.Arg > 7 {
			return nil
		}
		b[r.At] ^= 1 << r.Arg
		return b
	},
	// cut leaves At bytes.
	"cut": func(_ *Specimen, r Rot, b []byte) []byte {
		if r.At < 0 || r.At > int64(len(b)) {
			return nil
		}
		return b[:r.At]
	},
	// zero clears Arg pages from page At on.
	"zero": func(_ *Specimen, r Rot, b []byte) []byte {
		from, to := r.At*specimenPage, (r.At+r.Arg)*specimenPage
		if r.At < 0 || r.Arg <= 0 || to > int64(len(b)) {
			return nil
		}
		clear(b[from:to])
		return b
	},
	// grow puts At bytes behind the end.
	"grow": func(_ *Specimen, r Rot, b []byte) []byte {
		if r.At <= 0 || r.At > 1<<24 {
			return nil
		}
		more := make([]byte, r.At)
		switch r.Arg {
		case growZeros:
		case growJunk:
			for i := range more {
				more[i] = byte(mix(uint64(i) + 1))
			}
		case growEcho:
			for i := range more {
				more[i] = b[i%len(b)]
			}
		default:
			return nil
		}
		return append(b, more...)
	},
	// write puts the image of page Arg onto page At: a misdirected write.
	"write": func(_ *Specimen, r Rot, b []byte) []byte {
		at, from := page(b, r.At), page(b, r.Arg)
		if at == nil || from == nil {
			return nil
		}
		copy(at, from)
		return b
	},
	// swap exchanges pages At and Arg.
	"swap": func(_ *Specimen, r Rot, b []byte) []byte {
		at, other := page(b, r.At), page(b, r.Arg)
		if at == nil || other == nil {
			return nil
		}
		was := bytes.Clone(at)
		copy(at, other)
		copy(other, was)
		return b
	},
	// old puts the Arg-th older version of page At in its place: a lost write.
	"old": func(s *Specimen, r Rot, b []byte) []byte {
		at := page(b, r.At)
		if at == nil || r.Arg < 0 || r.Arg >= int64(len(s.older[r.At])) {
			return nil
		}
		copy(at, s.older[r.At][r.Arg])
		return b
	},
	// other puts the same page of the twin in its place.
	"other": func(s *Specimen, r Rot, b []byte) []byte {
		at, from := page(b, r.At), page(s.twin[r.File], r.At)
		if at == nil || from == nil {
			return nil
		}
		copy(at, from)
		return b
	},
	// back puts the Arg-th older version of the whole file in its place, At is 0: a log segment as
	// it was before.
	"back": func(s *Specimen, r Rot, _ []byte) []byte {
		versions := s.earlier[r.File]
		if r.At != 0 || r.Arg < 0 || r.Arg >= int64(len(versions)) {
			return nil
		}
		return bytes.Clone(versions[r.Arg])
	},
	// mix is made of whole files: see mixed.
	"mix": func(_ *Specimen, _ Rot, b []byte) []byte { return b },
}

func page(b []byte, at int64) []byte {
	if at < 0 || (at+1)*specimenPage > int64(len(b)) {
		return nil
	}
	return b[at*specimenPage : (at+1)*specimenPage]
}

// apply gives the files with the damage done. Files that are whole are shared with the specimen.
func (s *Specimen) apply(r Rot) (map[string][]byte, error) {
	if r.How == "mix" {
		return s.mixed(r.At)
	}
	content, ok := s.files[r.File]
	if !ok {
		return nil, fmt.Errorf("specimen %s has no file %s", s.Name, r.File)
	}
	damaged := damages[r.How](s, r, bytes.Clone(content))
	if damaged == nil {
		return nil, fmt.Errorf("%s does not fit the file", r)
	}
	files := maps.Clone(s.files)
	files[r.File] = damaged
	return files, nil
}

// names lists the files of the specimen and of its twin, main file first.
func (s *Specimen) names() []string {
	all := maps.Clone(s.files)
	maps.Copy(all, s.twin)
	return slices.Sorted(maps.Keys(all))
}

// Digits of a mix: where a file is from.
const (
	mixOwn = iota
	mixTwin
	mixAbsent
	mixKinds
)

// mixed takes each file from the specimen, from its twin, or leaves it out: the digits of code, the
// first file's lowest.
func (s *Specimen) mixed(code int64) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range s.names() {
		from := s.files
		if code%mixKinds == mixTwin {
			from = s.twin
		}
		if content, ok := from[name]; ok && code%mixKinds != mixAbsent {
			files[name] = content
		}
		code /= mixKinds
	}
	if code != 0 {
		return nil, fmt.Errorf("specimen %s has only %d files to mix", s.Name, len(s.names()))
	}
	return files, nil
}

func mainFile() string { return filepath.Base(path) }
