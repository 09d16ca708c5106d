package server

import "math"

// lcsOptions are the options of LCS.
type lcsOptions struct {
	length, ranges, lengths bool
	least                   int64 // of a match that IDX shows
}

func parseLCS(r *request) (o lcsOptions, err error) {
	for i := 3; i < len(r.args); i++ {
		switch {
		case r.is(i, "len"):
			o.length = true
		case r.is(i, "idx"):
			o.ranges = true
		case r.is(i, "withmatchlen"):
			o.lengths = true
		case r.is(i, "minmatchlen") && i+1 < len(r.args):
			if o.least, err = r.int(i + 1); err != nil {
				return o, err
			}
			i++
		default:
			return o, errSyntax
		}
	}
	if o.length && o.ranges {
		return o, replyError("ERR If you want both the length and indexes, please just use IDX.")
	}
	return o, nil
}

// lcsCommand returns the longest common subsequence of two strings. Its table has the product of
// their lengths: it is bounded.
func lcsCommand(r *request) error {
	const most = 1 << 24
	o, err := parseLCS(r)
	if err != nil {
		return err
	}
	rowA, errA := r.loadString(1)
	rowB, errB := r.loadString(2)
	if errA != nil || errB != nil {
		return replyError("ERR The specified keys must contain string values")
	}
	a, b := rowA.Value, rowB.Value
	if len(a) > math.MaxInt32 || len(b) > math.MaxInt32 || (len(a)+1)*(len(b)+1) > most {
		return replyError("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")
	}
	t := newLCS(a, b)
	common, matches := t.walk(a, b)
	switch {
	case o.length:
		r.w.Int(int64(len(common)))
	case !o.ranges:
		r.w.Bulk(common)
	default:
		lcsRanges(r, matches, len(common), &o)
	}
	return nil
}

// lcsTable has the length of the longest common subsequence of all pairs of prefixes.
type lcsTable struct {
	n    []uint32
	wide int
}

func newLCS(a, b []byte) lcsTable {
	t := lcsTable{make([]uint32, (len(a)+1)*(len(b)+1)), len(b) + 1}
	for i := range a {
		above, row := t.n[i*t.wide:], t.n[(i+1)*t.wide:]
		for j := range b {
			if a[i] == b[j] {
				row[j+1] = above[j] + 1
			} else {
				row[j+1] = max(above[j+1], row[j])
			}
		}
	}
	return t
}

// lcsMatch is a run of common bytes: where it ends in both strings, and its length.
type lcsMatch struct{ a, b, n int }

// walk goes from the ends of both strings to their beginnings. Matches come in that order.
func (t lcsTable) walk(a, b []byte) (common []byte, matches []lcsMatch) {
	i, j := len(a), len(b)
	at := t.n[i*t.wide+j]
	common = make([]byte, at)
	for at > 0 {
		switch {
		case a[i-1] == b[j-1]:
			last := len(matches) - 1
			if last >= 0 && matches[last].a-matches[last].n == i-1 && matches[last].b-matches[last].n == j-1 {
				matches[last].n++
			} else {
				matches = append(matches, lcsMatch{i - 1, j - 1, 1})
			}
			at--
			common[at] = a[i-1]
			i, j = i-1, j-1
		case t.n[(i-1)*t.wide+j] > t.n[i*t.wide+j-1]:
			i--
		default:
			j--
		}
	}
	return common, matches
}

func lcsRanges(r *request, matches []lcsMatch, length int, o *lcsOptions) {
	shown := matches[:0]
	for _, m := range matches {
		if int64(m.n) >= o.least {
			shown = append(shown, m)
		}
	}
	r.w.Map(2)
	r.w.BulkString("matches")
	r.w.Array(len(shown))
	for _, m := range shown {
		if o.lengths {
			r.w.Array(3)
		} else {
			r.w.Array(2)
		}
		for _, end := range []int{m.a, m.b} {
			r.w.Array(2)
			r.w.Int(int64(end - m.n + 1))
			r.w.Int(int64(end))
		}
		if o.lengths {
			r.w.Int(int64(m.n))
		}
	}
	r.w.BulkString("len")
	r.w.Int(int64(length))
}
