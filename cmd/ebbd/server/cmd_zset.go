package server

import (
	"bytes"
	"math"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
	"github.com/ebbkv/ebb/cmd/ebbd/resp"
)

func (r *request) loadZSet(key []byte) (keyspace.Row, error) {
	return r.sp.LoadAs(key, keyspace.TypeZSet)
}

const errNaN = replyError("ERR resulting score is not a number (NaN)")

// zaddOptions are NX, XX, GT, LT, CH and INCR of ZADD.
type zaddOptions struct {
	nx, xx, gt, lt, changed, incr bool
	next                          int // position of the first score
}

func parseZadd(r *request) (o zaddOptions, err error) {
	i := 2
options:
	for ; i < len(r.args); i++ {
		switch r.word(i) {
		case "NX":
			o.nx = true
		case "XX":
			o.xx = true
		case "GT":
			o.gt = true
		case "LT":
			o.lt = true
		case "CH":
			o.changed = true
		case "INCR":
			o.incr = true
		default:
			break options
		}
	}
	o.next = i
	rest := len(r.args) - i
	switch {
	case rest == 0 || rest%2 != 0:
		return o, errSyntax
	case o.nx && o.xx:
		return o, replyError("ERR XX and NX options at the same time are not compatible")
	case o.gt && o.lt || o.nx && (o.gt || o.lt):
		return o, replyError("ERR GT, LT, and/or NX options at the same time are not compatible")
	case o.incr && rest > 2:
		return o, replyError("ERR INCR option supports a single increment-element pair")
	}
	return o, nil
}

// zaddResult is what one element of ZADD has done.
type zaddResult struct {
	added, changed, written bool
	score                   float64
}

// zaddOne sets, or with INCR adds to, the score of a member if the conditions hold.
func zaddOne(r *request, row *keyspace.Row, o zaddOptions, member []byte, score float64) (
	res zaddResult, err error,
) {
	was, ok, err := r.sp.Score(row, member)
	if err != nil || ok && o.nx || !ok && o.xx {
		return res, err
	}
	if ok && o.incr {
		if score += was; math.IsNaN(score) {
			return res, errNaN
		}
	}
	if ok && (o.gt && score <= was || o.lt && score >= was) {
		return res, nil
	}
	res = zaddResult{added: !ok, changed: !ok || score != was, written: true, score: score}
	return res, r.sp.SetScore(row, member, score, ok, was)
}

func zaddCommand(r *request) error {
	o, err := parseZadd(r)
	if err != nil {
		return err
	}
	scores := make([]float64, 0, (len(r.args)-o.next)/2)
	for i := o.next; i < len(r.args); i += 2 {
		score, err := r.float(i)
		if err != nil {
			return err
		}
		scores = append(scores, score)
	}
	row, err := r.loadZSet(r.args[1])
	if err != nil {
		return err
	}
	if row.Type == 0 && !o.xx {
		if row, err = r.sp.LoadOrCreate(r.args[1], keyspace.TypeZSet); err != nil {
			return err
		}
	}
	var added, changed int64
	var last zaddResult
	for i, score := range scores {
		if last, err = zaddOne(r, &row, o, r.args[o.next+2*i+1], score); err != nil {
			return err
		}
		if last.added {
			added++
		}
		if last.changed {
			changed++
		}
	}
	switch {
	case o.incr && last.written:
		r.w.Double(last.score)
	case o.incr:
		r.w.Null()
	case o.changed:
		r.w.Int(changed)
	default:
		r.w.Int(added)
	}
	if changed == 0 {
		return nil
	}
	return r.save(&row)
}

func zincrbyCommand(r *request) error {
	delta, err := r.float(2)
	if err != nil {
		return err
	}
	row, err := r.sp.LoadOrCreate(r.args[1], keyspace.TypeZSet)
	if err != nil {
		return err
	}
	res, err := zaddOne(r, &row, zaddOptions{incr: true}, r.args[3], delta)
	if err != nil {
		return err
	}
	r.w.Double(res.score)
	return r.save(&row)
}

// zscoreCommand is ZSCORE and ZMSCORE.
func zscoreCommand(r *request) error {
	row, err := r.loadZSet(r.args[1])
	if err != nil {
		return err
	}
	if r.cmd.name == "zmscore" {
		r.w.Array(len(r.args) - 2)
	}
	for _, member := range r.args[2:] {
		score, ok, err := r.sp.Score(&row, member)
		if err != nil {
			return err
		}
		if !ok {
			r.w.Null()
			continue
		}
		r.w.Double(score)
	}
	return nil
}

// zrankCommand is ZRANK and ZREVRANK. It walks from the end that the rank counts from.
func zrankCommand(r *request) error {
	withScore := len(r.args) == 4 && r.is(3, "withscore")
	if len(r.args) > 3 && !withScore {
		return errSyntax
	}
	row, err := r.loadZSet(r.args[1])
	if err != nil {
		return err
	}
	score, ok, err := r.sp.Score(&row, r.args[2])
	if err != nil {
		return err
	}
	if !ok {
		if withScore {
			r.w.NullArray()
		} else {
			r.w.Null()
		}
		return nil
	}
	rank := int64(0)
	for member := range r.sp.ByScore(&row, math.Inf(-1), math.Inf(1), r.cmd.name == "zrevrank") {
		if bytes.Equal(member, r.args[2]) {
			break
		}
		rank++
	}
	if withScore {
		r.w.Array(2)
	}
	r.w.Int(rank)
	if withScore {
		r.w.Double(score)
	}
	return r.tx.Err()
}

// scored is a member with its score.
type scored struct {
	member []byte
	score  float64
}

// arrayOf begins an array of n elements, or of n pairs: each is an array of its own in version 3, and
// two elements in version 2.
func (r *request) arrayOf(n int, pairs bool) (nested bool) {
	nested = pairs && r.w.Version >= 3
	if pairs && !nested {
		n *= 2
	}
	r.w.Array(n)
	return nested
}

// scoredList writes members, with their scores as pairs in version 3 and flat in version 2.
func (r *request) scoredList(list []scored, withScores bool) {
	nested := r.arrayOf(len(list), withScores)
	for _, e := range list {
		if nested {
			r.w.Array(2)
		}
		r.w.Bulk(e.member)
		if withScores {
			r.w.Double(e.score)
		}
	}
}

// zpopCommand is ZPOPMIN and ZPOPMAX.
func zpopCommand(r *request) error {
	if len(r.args) > 3 {
		return errSyntax
	}
	n := int64(1)
	if len(r.args) == 3 {
		var ok bool
		if n, ok = parseInt(r.args[2]); !ok || n < 0 {
			return errNegativeOnly
		}
	}
	row, err := r.loadZSet(r.args[1])
	if err != nil {
		return err
	}
	popped, err := popScored(r, r.args[1], &row, r.cmd.name == "zpopmax", n)
	if err != nil {
		return err
	}
	if len(r.args) == 3 {
		r.scoredList(popped, true)
		return nil
	}
	r.w.Array(2 * len(popped))
	for _, e := range popped {
		r.w.Bulk(e.member)
		r.w.Double(e.score)
	}
	return nil
}

// popScored removes up to n members from an end of a sorted set.
func popScored(
	r *request,
	key []byte,
	row *keyspace.Row,
	highest bool,
	n int64,
) ([]scored, error) {
	popped, err := byRank(r, row, 0, min(n, row.Count), highest)
	if err != nil || len(popped) == 0 {
		return nil, err
	}
	for _, e := range popped {
		if err := r.sp.RemoveScore(row, e.member, e.score); err != nil {
			return nil, err
		}
	}
	event := "zpopmin"
	if highest {
		event = "zpopmax"
	}
	r.touchAs(key, 'z', event)
	return popped, r.sp.Save(key, row)
}

// bzpopCommand is BZPOPMIN and BZPOPMAX.
func bzpopCommand(r *request) error {
	last := len(r.args) - 1
	wait, err := r.timeout(last)
	if err != nil {
		return err
	}
	key, row, err := r.firstThere(r.args[1:last], keyspace.TypeZSet)
	if err != nil {
		return err
	}
	if row.Type == 0 {
		return r.block(r.args[1:last], wait, (*resp.Writer).NullArray)
	}
	popped, err := popScored(r, key, &row, r.cmd.name == "bzpopmax", 1)
	if err != nil {
		return err
	}
	r.w.Array(3)
	r.w.Bulk(key)
	r.w.Bulk(popped[0].member)
	r.w.Double(popped[0].score)
	return nil
}

// zmpopCommand is ZMPOP and BZMPOP.
func zmpopCommand(r *request) error {
	wait, at, err := r.mpopTimeout()
	if err != nil {
		return err
	}
	keys, next, err := r.numKeys(at)
	if err != nil {
		return err
	}
	highest := next < len(r.args) && r.is(next, "max")
	if !highest && (next >= len(r.args) || !r.is(next, "min")) {
		return errSyntax
	}
	n, err := r.countOption(next + 1)
	if err != nil {
		return err
	}
	key, row, err := r.firstThere(keys, keyspace.TypeZSet)
	if err != nil {
		return err
	}
	if row.Type == 0 {
		return r.blockOr(at == 2, keys, wait, (*resp.Writer).NullArray)
	}
	popped, err := popScored(r, key, &row, highest, n)
	if err != nil {
		return err
	}
	r.w.Array(2)
	r.w.Bulk(key)
	r.w.Array(len(popped))
	for _, e := range popped {
		r.w.Array(2)
		r.w.Bulk(e.member)
		r.w.Double(e.score)
	}
	return nil
}
