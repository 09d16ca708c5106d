package server

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
)

// incrCommand is INCR, DECR, INCRBY and DECRBY.
func incrCommand(r *request) error {
	delta := int64(1)
	if len(r.args) == 3 {
		var err error
		if delta, err = r.int(2); err != nil {
			return err
		}
	}
	if r.cmd.name == "decr" || r.cmd.name == "decrby" {
		if delta == math.MinInt64 {
			return replyError("ERR decrement would overflow")
		}
		delta = -delta
	}
	row, err := r.loadString(1)
	if err != nil {
		return err
	}
	sum, err := addInt(row.Value, row.Type != 0, delta, errNotInt)
	if err != nil {
		return err
	}
	r.w.Int(sum)
	return r.set(r.args[1], strconv.AppendInt(nil, sum, 10), &row, keyspace.KeepExpiry)
}

// addInt adds to a decimal integer; an absent one is 0.
func addInt(value []byte, present bool, delta int64, invalid error) (int64, error) {
	n := int64(0)
	if present {
		var ok bool
		if n, ok = parseInt(value); !ok {
			return 0, invalid
		}
	}
	if delta > 0 && n > math.MaxInt64-delta || delta < 0 && n < math.MinInt64-delta {
		return 0, errOverflow
	}
	return n + delta, nil
}

func incrbyfloatCommand(r *request) error {
	row, err := r.loadString(1)
	if err != nil {
		return err
	}
	value := row.Value
	if row.Type == 0 {
		value = []byte("0")
	}
	sum, err := addDecimal(value, r.args[2], errNotFloat)
	if err != nil {
		return err
	}
	r.w.BulkString(sum)
	return r.set(r.args[1], []byte(sum), &row, keyspace.KeepExpiry)
}

const (
	decimalDigits   = 17  // behind the point, as Redis prints a long double
	decimalExponent = 400 // greatest exponent that is calculated with
	decimalBytes    = 512 // longest number that is parsed
)

// addDecimal adds decimal numbers exactly and rounds the sum to 17 digits behind the point. Redis
// adds long doubles: 0.1 + 0.2 is 0.3 in both.
func addDecimal(a, b []byte, invalid error) (string, error) {
	x, ok := parseDecimal(a)
	if !ok {
		return "", invalid
	}
	y, ok := parseDecimal(b)
	if !ok {
		return "", errNotFloat
	}
	text := x.Add(x, y).FloatString(decimalDigits)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" {
		text = "0"
	}
	return text, nil
}

func parseDecimal(b []byte) (*big.Rat, bool) {
	text := string(b)
	if len(text) == 0 || len(text) > decimalBytes || strings.Trim(text, "0123456789+-.eE") != "" {
		return nil, false
	}
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		exponent, err := strconv.Atoi(text[at+1:])
		if err != nil || exponent > decimalExponent || exponent < -decimalExponent {
			return nil, false
		}
	}
	return new(big.Rat).SetString(text)
}
