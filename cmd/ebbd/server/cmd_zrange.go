package server

import (
	"bytes"
	"math"
	"slices"
	"strings"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
)

// scoreBound is an end of a range of scores.
type scoreBound struct {
	score     float64
	exclusive bool
}

// lexBound is an end of a range of members.
type lexBound struct {
	member    []byte
	exclusive bool
	infinite  int // -1: before all members, 1: behind all
}

// zrange is a range of a sorted set: by rank, by score or by member.
type zrange struct {
	by           byte // 'r', 's' or 'l'
	start, end   int64
	min, max     scoreBound
	lexMin       lexBound
	lexMax       lexBound
	reverse      bool
	offset       int64
	limit        int64 // negative: no bound
	limited      bool
	withScores   bool
	emptyByLimit bool
}

func (r *request) scoreBound(i int) (b scoreBound, err error) {
	text := r.args[i]
	if len(text) > 0 && text[0] == '(' {
		b.exclusive, text = true, text[1:]
	}
	var ok bool
	if b.score, ok = parseFloat(text); !ok {
		return b, replyError("ERR min or max is not a float")
	}
	return b, nil
}

func (r *request) lexBound(i int) (b lexBound, err error) {
	text := r.args[i]
	switch {
	case string(text) == "-":
		b.infinite = -1
	case string(text) == "+":
		b.infinite = 1
	case len(text) > 0 && (text[0] == '[' || text[0] == '('):
		b.member, b.exclusive = text[1:], text[0] == '('
	default:
		return b, replyError("ERR min or max not valid string range item")
	}
	return b, nil
}

// parseZrange parses the options of ZRANGE and its kin behind the two ends at position i and i+1;
// the name of the command tells the rest.
func parseZrange(r *request, i int) (z zrange, err error) {
	name := r.cmd.name
	z.by, z.limit = 'r', -1
	switch {
	case strings.HasSuffix(name, "byscore") || name == "zcount":
		z.by = 's'
	case strings.HasSuffix(name, "bylex") || name == "zlexcount":
		z.by = 'l'
	}
	z.reverse = strings.HasPrefix(name, "zrev")
	general := name == "zrange" || name == "zrangestore"
	for j := i + 2; j < len(r.args); j++ {
		switch word := r.word(j); {
		case word == "BYSCORE" && general:
			z.by = 's'
		case word == "BYLEX" && general:
			z.by = 'l'
		case word == "REV" && general:
			z.reverse = true
		case word == "WITHSCORES" && name != "zrangestore":
			z.withScores = true
		case word == "LIMIT" && j+2 < len(r.args):
			if z.offset, z.limit, err = r.ints(j + 1); err != nil {
				return z, err
			}
			z.limited = true
			j += 2
		default:
			return z, errSyntax
		}
	}
	switch {
	case z.limited && z.by == 'r':
		return z, replyError(
			"ERR syntax error, LIMIT is only supported in combination with either " +
				"BYSCORE or BYLEX",
		)
	case z.withScores && z.by == 'l':
		return z, replyError("ERR syntax error, WITHSCORES not supported in combination with BYLEX")
	}
	z.emptyByLimit = z.offset < 0
	return z, parseEnds(r, &z, i)
}

// parseEnds parses the ends of a range; those by score and by member are given from the far end in
// reverse.
func parseEnds(r *request, z *zrange, i int) (err error) {
	low, high := i, i+1
	if z.reverse {
		low, high = high, low
	}
	switch z.by {
	case 's':
		if z.min, err = r.scoreBound(low); err == nil {
			z.max, err = r.scoreBound(high)
		}
	case 'l':
		if z.lexMin, err = r.lexBound(low); err == nil {
			z.lexMax, err = r.lexBound(high)
		}
	default:
		z.start, z.end, err = r.ints(i)
	}
	return err
}

// selectRange returns the members of a range in its order.
func selectRange(r *request, row *keyspace.Row, z *zrange) ([]scored, error) {
	if row.Type == 0 || z.emptyByLimit {
		return nil, nil
	}
	if z.by == 'r' {
		lo, hi := span(z.start, z.end, row.Count)
		return byRank(r, row, lo, hi, z.reverse)
	}
	var found []scored
	skip := z.offset
	take := func(member []byte, score float64) bool {
		if skip > 0 {
			skip--
			return true
		}
		if z.limit >= 0 && int64(len(found)) >= z.limit {
			return false
		}
		found = append(found, scored{bytes.Clone(member), score})
		return true
	}
	if z.by == 's' {
		byScore(r, row, z, take)
		return found, r.tx.Err()
	}
	err := byLex(r, row, z, take)
	return found, err
}

func byScore(r *request, row *keyspace.Row, z *zrange, take func([]byte, float64) bool) {
	if z.min.score > z.max.score {
		return
	}
	for member, score := range r.sp.ByScore(row, z.min.score, z.max.score, z.reverse) {
		if z.min.exclusive && score == z.min.score || z.max.exclusive && score == z.max.score {
			continue
		}
		if !take(member, score) {
			return
		}
	}
}

// contains says whether a member lies within the ends of a range by member.
func (z *zrange) contains(member []byte) bool {
	if z.lexMin.infinite > 0 || z.lexMax.infinite < 0 {
		return false
	}
	if z.lexMin.infinite == 0 {
		c := bytes.Compare(member, z.lexMin.member)
		if c < 0 || c == 0 && z.lexMin.exclusive {
			return false
		}
	}
	if z.lexMax.infinite == 0 {
		c := bytes.Compare(member, z.lexMax.member)
		if c > 0 || c == 0 && z.lexMax.exclusive {
			return false
		}
	}
	return true
}

// byLex ranges in the order of members, which is that of the sorted set where all scores are equal.
func byLex(r *request, row *keyspace.Row, z *zrange, take func([]byte, float64) bool) error {
	var all []scored
	for member, value := range r.sp.Members(row, z.lexMin.member) {
		if z.contains(member) {
			score, err := keyspace.DecodeScore(value)
			if err != nil {
				return err
			}
			if !z.reverse {
				if !take(member, score) {
					break
				}
				continue
			}
			all = append(all, scored{bytes.Clone(member), score})
		} else if z.lexMax.infinite == 0 && bytes.Compare(member, z.lexMax.member) > 0 {
			break
		}
	}
	slices.Reverse(all)
	for _, e := range all {
		if !take(e.member, e.score) {
			break
		}
	}
	return r.tx.Err()
}

// byRank returns the members of ranks [lo, hi). It walks from the nearer end.
func byRank(r *request, row *keyspace.Row, lo, hi int64, reverse bool) ([]scored, error) {
	if lo >= hi {
		return nil, nil
	}
	other := lo > row.Count-hi
	from, to := lo, hi
	if other {
		from, to = row.Count-hi, row.Count-lo
	}
	found := make([]scored, 0, hi-lo)
	rank := int64(0)
	for member, score := range r.sp.ByScore(row, math.Inf(-1), math.Inf(1), reverse != other) {
		if rank >= to {
			break
		}
		if rank >= from {
			found = append(found, scored{bytes.Clone(member), score})
		}
		rank++
	}
	if other {
		slices.Reverse(found)
	}
	return found, r.tx.Err()
}

// zrangeCommand is ZRANGE, ZREVRANGE and those BYSCORE and BYLEX.
func zrangeCommand(r *request) error {
	z, err := parseZrange(r, 2)
	if err != nil {
		return err
	}
	row, err := r.loadZSet(r.args[1])
	if err != nil {
		return err
	}
	found, err := selectRange(r, &row, &z)
	if err != nil {
		return err
	}
	r.scoredList(found, z.withScores)
	return nil
}

func zrangestoreCommand(r *request) error {
	z, err := parseZrange(r, 3)
	if err != nil {
		return err
	}
	row, err := r.loadZSet(r.args[2])
	if err != nil {
		return err
	}
	found, err := selectRange(r, &row, &z)
	if err != nil {
		return err
	}
	return storeScored(r, r.args[1], found)
}

// storeScored makes a key a sorted set of the list, and replies with its size.
func storeScored(r *request, target []byte, list []scored) error {
	if err := r.replace(target, len(list) > 0); err != nil {
		return err
	}
	r.w.Int(int64(len(list)))
	if len(list) == 0 {
		return nil
	}
	row, err := r.sp.LoadOrCreate(target, keyspace.TypeZSet)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := r.sp.SetScore(&row, e.member, e.score, false, 0); err != nil {
			return err
		}
	}
	return r.sp.Save(target, &row)
}

// zcountCommand is ZCOUNT and ZLEXCOUNT.
func zcountCommand(r *request) error {
	z, err := parseZrange(r, 2)
	if err != nil {
		return err
	}
	row, err := r.loadZSet(r.args[1])
	if err != nil {
		return err
	}
	n := int64(0)
	count := func([]byte, float64) bool { n++; return true }
	switch {
	case row.Type == 0:
	case z.by == 's':
		byScore(r, &row, &z, count)
	default:
		err = byLex(r, &row, &z, count)
	}
	r.w.Int(n)
	if err == nil {
		err = r.tx.Err()
	}
	return err
}

// zremrangeCommand is ZREMRANGEBYRANK, ZREMRANGEBYSCORE and ZREMRANGEBYLEX.
func zremrangeCommand(r *request) error {
	z, err := parseZrange(r, 2)
	if err != nil {
		return err
	}
	row, err := r.loadZSet(r.args[1])
	if err != nil {
		return err
	}
	found, err := selectRange(r, &row, &z)
	if err != nil {
		return err
	}
	for _, e := range found {
		if err := r.sp.RemoveScore(&row, e.member, e.score); err != nil {
			return err
		}
	}
	r.w.Int(int64(len(found)))
	if len(found) == 0 {
		return nil
	}
	return r.save(&row)
}
