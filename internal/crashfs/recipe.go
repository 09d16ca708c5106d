package crashfs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// bits is a set of units.
type bits []uint64

func (b bits) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bits) add(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bits) del(i int)      { b[i/64] &^= 1 << (i % 64) }

func (b bits) fill(n int) {
	for i := range b {
		b[i] = ^uint64(0)
	}
	if rest := n % 64; rest != 0 {
		b[len(b)-1] = 1<<rest - 1
	}
}

// String lists the members as ranges.
func (b bits) String() string {
	var s strings.Builder
	for i := 0; i < len(b)*64; i++ {
		if !b.has(i) {
			continue
		}
		lo := i
		for i+1 < len(b)*64 && b.has(i+1) {
			i++
		}
		if s.Len() > 0 {
			s.WriteByte(',')
		}
		s.WriteString(strconv.Itoa(lo))
		if i > lo {
			s.WriteString("-" + strconv.Itoa(i))
		}
	}
	return s.String()
}

var errDesc = errors.New("crashfs: description does not fit the trace")

func parseBits(text string, n int) (bits, error) {
	b := make(bits, (n+63)/64)
	units, err := ParseUnits(text, n)
	for _, i := range units {
		b.add(i)
	}
	return b, err
}

// ParseUnits reads numbers below n, and ranges of them, as a crash's description lists what
// persists: "0-3,7".
func ParseUnits(text string, n int) (units []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		lo, err1 := strconv.Atoi(from)
		hi, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || lo < 0 || hi >= n || lo > hi {
			return nil, fmt.Errorf("%w: %q of %d", errDesc, part, n)
		}
		for i := lo; i <= hi; i++ {
			units = append(units, i)
		}
	}
	return units, nil
}

// staleFill says what unsynced holes hold.
type staleFill uint8

const (
	staleNone    staleFill = iota // zeros
	staleNewest                   // the newest deleted file that has something there
	staleOldest                   // the oldest one
	staleGarbage                  // noise
)

// recipe says what persists at a crash point. Numbers of units are those of a point.
type recipe struct {
	live bool // nothing is lost, the page cache included: a kill
	keep bits // units that persist

	// One write may be torn: lost are its sectors, counted from the first one that it touches, that
	// keep their old bytes, or become noise.
	tornSeq int // -1 for none
	lost    bits
	noise   bool

	stale staleFill
}

func (r *recipe) String() string {
	if r.live {
		return "all"
	}
	s := "keep=" + r.keep.String()
	if r.tornSeq >= 0 {
		s += fmt.Sprintf(" torn=%d lost=%s", r.tornSeq, r.lost)
		if r.noise {
			s += " noise"
		}
	}
	if r.stale != staleNone {
		s += fmt.Sprintf(" stale=%d", r.stale)
	}
	return s
}

// parse is the inverse of String at a point.
func (p *point) parse(text string) (recipe, error) {
	r := recipe{tornSeq: -1}
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		var err error
		switch key {
		case "all":
			r.live = true
		case "keep":
			r.keep, err = parseBits(value, len(p.units))
		case "torn":
			r.tornSeq, err = strconv.Atoi(value)
			if err == nil && (r.tornSeq < 0 || r.tornSeq >= p.w.pos) {
				err = errDesc
			}
		case "lost":
			if r.tornSeq < 0 {
				return r, errDesc
			}
			r.lost, err = parseBits(value, sectors(&p.w.ops[r.tornSeq]))
		case "noise":
			r.noise = true
		case "stale":
			var n int
			n, err = strconv.Atoi(value)
			r.stale = staleFill(n)
		default:
			err = errDesc
		}
		if err != nil {
			return r, err
		}
	}
	if !r.live && r.keep == nil {
		r.keep = make(bits, p.words())
	}
	return r, nil
}

// sectors is how many sectors a write touches.
func sectors(op *Op) int {
	if len(op.Data) == 0 {
		return 0
	}
	return int((op.Off+int64(len(op.Data))-1)/sectorSize - op.Off/sectorSize + 1)
}
