package ttl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ebbkv/ebb/internal/badfile"
)

// ErrInvalid is returned for a ttl or an instant that cannot be an expiry. kv maps it to
// ErrInvalidTTL.
var ErrInvalid = errors.New("ttl: invalid ttl")

// Index rows. Keys must sort by time, so the integer is big-endian; see docs/format.md.
//
//	key index      user key                   -> expiry (8 bytes)
//	expiry index   expiry (8 bytes), user key -> nothing
//
// An expiry is the first instant at which the key is expired: milliseconds since the Unix epoch,
// above 0. Golden bytes: testdata/expiry.hex.
const expirySize = 8

// Expired says whether a key with that expiry is expired at now. No other code decides this.
func Expired(now, expiry int64) bool { return now >= expiry }

func appendExpiry(b []byte, expiry int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(expiry))
}

// decodeExpiry verifies that b is an expiry: 8 bytes, above 0.
func decodeExpiry(b []byte) (expiry int64, err error) {
	if len(b) != expirySize {
		return 0, badfile.At("", -1, "expiry of %d bytes, expected %d", len(b), expirySize)
	}
	if expiry = int64(binary.BigEndian.Uint64(b)); expiry <= 0 {
		return 0, badfile.At("", -1, "expiry %d is not above 0", expiry)
	}
	return expiry, nil
}

func appendDue(b []byte, expiry int64, key []byte) []byte {
	return append(appendExpiry(b, expiry), key...)
}

// IndexRows returns the rows of both indexes for a key with an expiry: the value of the key's row in
// the key index, and the key of the row in the expiry index.
func IndexRows(key []byte, expiry int64) (value, due []byte) {
	due = appendDue(nil, expiry, key)
	return due[:expirySize:expirySize], due
}

// decodeDue splits the key of an expiry row. The result shares memory with b.
func decodeDue(b []byte) (expiry int64, key []byte, err error) {
	if len(b) <= expirySize {
		return 0, nil, badfile.At("", -1, "expiry row of %d bytes, expected at least %d", len(b),
			expirySize+1)
	}
	expiry, err = decodeExpiry(b[:expirySize])
	return expiry, b[expirySize:], err
}

// After is the expiry of a key that lives for d from now on, rounded up to a millisecond. d must be
// positive, and the sum an int64. An expiry before the epoch cannot be stored: it becomes 1.
func After(now int64, d time.Duration) (expiry int64, err error) {
	if d <= 0 {
		return 0, fmt.Errorf("%w: %v", ErrInvalid, d)
	}
	return AfterMs(now, Milliseconds(d))
}

// AfterMs is After for a positive number of milliseconds.
func AfterMs(now, ms int64) (expiry int64, err error) {
	if now > math.MaxInt64-ms {
		return 0, fmt.Errorf("%w: %d ms from now is too far away", ErrInvalid, ms)
	}
	return max(now+ms, 1), nil
}

// At is the expiry of a key that expires at t, rounded up to a millisecond. t must be after now.
func At(now int64, t time.Time) (expiry int64, err error) {
	ms, ok := CeilMs(t)
	if !ok {
		return 0, fmt.Errorf("%w: the instant is too far away", ErrInvalid)
	}
	if ms <= now {
		return 0, fmt.Errorf("%w: the instant is not after now", ErrInvalid)
	}
	return max(ms, 1), nil
}

// Milliseconds is d in milliseconds, rounded up.
func Milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// CeilMs is t in milliseconds since the epoch, rounded up. Above an int64, ok is false and ms the
// largest int64; an instant too far in the past is the smallest one.
func CeilMs(t time.Time) (ms int64, ok bool) {
	const lastSecond, lastMs = math.MaxInt64 / 1000, math.MaxInt64 % 1000
	s, part := t.Unix(), int64(t.Nanosecond()+int(time.Millisecond)-1)/int64(time.Millisecond)
	switch {
	case s > lastSecond || s == lastSecond && part > lastMs:
		return math.MaxInt64, false
	case s <= math.MinInt64/1000:
		return math.MinInt64, true
	}
	return s*1000 + part, true
}

// Remaining is the ttl at now: above 0 while the key lives, else 0. Above a Duration (292 years) it
// is the longest Duration.
func Remaining(now, expiry int64) time.Duration {
	if Expired(now, expiry) {
		return 0
	}
	const most = int64(math.MaxInt64 / time.Millisecond)
	if left := expiry - now; left > 0 && left <= most { // An overflow is negative.
		return time.Duration(left) * time.Millisecond
	}
	return math.MaxInt64
}
