package server

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
	"github.com/ebbkv/ebb/cmd/ebbd/resp"
)

func formatDouble(f float64) string { return resp.FormatDouble(f) }

// combination is the arguments of ZUNION, ZINTER, ZDIFF and their STORE forms.
type combination struct {
	op         setOperation
	keys       [][]byte
	rows       []keyspace.Row // of the keys: sets, sorted sets or absent
	weights    []float64
	aggregate  string // SUM, MIN or MAX
	withScores bool
}

func parseCombination(r *request, i int) (c combination, err error) {
	c.op, c.aggregate = operationOf(r.cmd.name), "SUM"
	n, ok := parseInt(r.args[i])
	switch {
	case !ok:
		return c, errNotInt
	case n < 1:
		return c, replyError("ERR at least 1 input key is needed for '" + r.cmd.name + "' command")
	case n > int64(len(r.args)-i-1):
		return c, errSyntax
	}
	next := i + 1 + int(n)
	if err := loadCombined(r, &c, r.args[i+1:next]); err != nil {
		return c, err
	}
	store := strings.HasSuffix(r.cmd.name, "store")
	for j := next; j < len(r.args); j++ {
		switch word := r.word(j); {
		case word == "WEIGHTS" && c.op != difference && j+len(c.keys) < len(r.args):
			c.weights = nil
			for k := range c.keys {
				weight, ok := parseFloat(r.args[j+1+k])
				if !ok {
					return c, replyError("ERR weight value is not a float")
				}
				c.weights = append(c.weights, weight)
			}
			j += len(c.keys)
		case word == "AGGREGATE" && c.op != difference && j+1 < len(r.args):
			c.aggregate = r.word(j + 1)
			if c.aggregate != "SUM" && c.aggregate != "MIN" && c.aggregate != "MAX" {
				return c, errSyntax
			}
			j++
		case word == "WITHSCORES" && !store:
			c.withScores = true
		default:
			return c, errSyntax
		}
	}
	return c, nil
}

// loadCombined loads the keys. Those of another type are an error before those of options.
func loadCombined(r *request, c *combination, keys [][]byte) error {
	c.keys = keys
	c.rows = make([]keyspace.Row, len(keys))
	for i, key := range keys {
		var err error
		if c.rows[i], err = r.sp.Load(key); err != nil {
			return err
		}
		switch c.rows[i].Type {
		case 0, keyspace.TypeSet, keyspace.TypeZSet:
		default:
			return errWrongType
		}
	}
	return nil
}

// weigh multiplies a score; an infinity times 0 is 0.
func (c *combination) weigh(i int, score float64) float64 {
	if c.weights == nil {
		return score
	}
	if score *= c.weights[i]; math.IsNaN(score) {
		return 0
	}
	return score
}

func (c *combination) merge(a, b float64) float64 {
	switch c.aggregate {
	case "MIN":
		return math.Min(a, b)
	case "MAX":
		return math.Max(a, b)
	}
	if sum := a + b; !math.IsNaN(sum) {
		return sum
	}
	return 0 // of infinities with different signs
}

// scores returns all members of a set or a sorted set; those of a set have the score 1.
func (r *request) scores(row *keyspace.Row) (map[string]float64, error) {
	all := make(map[string]float64, row.Count)
	for member, value := range r.sp.Members(row, nil) {
		score := 1.0
		if row.Type == keyspace.TypeZSet {
			var err error
			if score, err = keyspace.DecodeScore(value); err != nil {
				return nil, err
			}
		}
		all[string(member)] = score
	}
	return all, r.tx.Err()
}

// combineScored returns the members of a combination in the order of a sorted set.
func combineScored(r *request, c *combination) ([]scored, error) {
	result := make(map[string]float64)
	for i := range c.rows {
		part, err := r.scores(&c.rows[i])
		if err != nil {
			return nil, err
		}
		if i == 0 {
			for member, score := range part {
				result[member] = c.weigh(0, score)
			}
			continue
		}
		c.apply(result, part, i)
	}
	list := make([]scored, 0, len(result))
	for member, score := range result {
		list = append(list, scored{[]byte(member), score})
	}
	slices.SortFunc(list, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.score, b.score), bytes.Compare(a.member, b.member))
	})
	return list, nil
}

// apply combines the result with the members of key i.
func (c *combination) apply(result, part map[string]float64, i int) {
	if c.op == union {
		for member, score := range part {
			if was, ok := result[member]; ok {
				result[member] = c.merge(was, c.weigh(i, score))
			} else {
				result[member] = c.weigh(i, score)
			}
		}
		return
	}
	for member, was := range result {
		score, ok := part[member]
		switch {
		case ok == (c.op == difference):
			delete(result, member)
		case ok:
			result[member] = c.merge(was, c.weigh(i, score))
		}
	}
}

// zcombineCommand is ZUNION, ZINTER and ZDIFF.
func zcombineCommand(r *request) error {
	c, err := parseCombination(r, 1)
	if err != nil {
		return err
	}
	list, err := combineScored(r, &c)
	if err != nil {
		return err
	}
	r.scoredList(list, c.withScores)
	return nil
}

// zcombineStoreCommand is ZUNIONSTORE, ZINTERSTORE and ZDIFFSTORE.
func zcombineStoreCommand(r *request) error {
	c, err := parseCombination(r, 2)
	if err != nil {
		return err
	}
	list, err := combineScored(r, &c)
	if err != nil {
		return err
	}
	return storeScored(r, r.args[1], list)
}

func zintercardCommand(r *request) error {
	keys, next, err := cardKeys(r)
	if err != nil {
		return err
	}
	most, err := r.limitOption(next)
	if err != nil {
		return err
	}
	c := combination{op: intersection, aggregate: "SUM"}
	if err := loadCombined(r, &c, keys); err != nil {
		return err
	}
	list, err := combineScored(r, &c)
	if err != nil {
		return err
	}
	n := int64(len(list))
	if most > 0 {
		n = min(n, most)
	}
	r.w.Int(n)
	return nil
}
