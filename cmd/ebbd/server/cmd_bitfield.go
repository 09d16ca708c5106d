package server

import (
	"math"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
)

// bitfieldOp is GET, SET or INCRBY of BITFIELD.
type bitfieldOp struct {
	verb     string
	signed   bool
	width    uint
	offset   int64
	value    int64
	overflow string
}

const errBitfieldType = replyError("ERR Invalid bitfield type. Use something like i16 u8. Note " +
	"that u64 is not supported but i64 is.")

// parseBitfieldType parses a type such as i16 or u8.
func parseBitfieldType(arg []byte) (signed bool, width uint, err error) {
	if len(arg) < 2 || arg[0] != 'i' && arg[0] != 'u' {
		return false, 0, errBitfieldType
	}
	n, ok := parseInt(arg[1:])
	signed = arg[0] == 'i'
	if !ok || n < 1 || n > 64 || !signed && n > 63 {
		return false, 0, errBitfieldType
	}
	return signed, uint(n), nil
}

// parseBitfield parses the operations.
func parseBitfield(r *request) (ops []bitfieldOp, err error) {
	overflow := "WRAP"
	for i := 2; i < len(r.args); {
		op := bitfieldOp{verb: r.word(i), overflow: overflow}
		n := 3
		switch {
		case op.verb == "OVERFLOW" && i+1 < len(r.args):
			switch overflow = r.word(i + 1); overflow {
			case "WRAP", "SAT", "FAIL":
			default:
				return nil, replyError("ERR Invalid OVERFLOW type specified")
			}
			i += 2
			continue
		case op.verb == "GET":
		case op.verb == "SET" || op.verb == "INCRBY":
			n = 4
		default:
			return nil, errSyntax
		}
		if i+n > len(r.args) {
			return nil, errSyntax
		}
		if r.cmd.name == "bitfield_ro" && op.verb != "GET" {
			return nil, replyError("ERR BITFIELD_RO only supports the GET subcommand")
		}
		if op.signed, op.width, err = parseBitfieldType(r.args[i+1]); err != nil {
			return nil, err
		}
		if op.offset, err = bitfieldOffset(r, i+2, op.width); err != nil {
			return nil, err
		}
		if n == 4 {
			if op.value, err = r.int(i + 3); err != nil {
				return nil, err
			}
		}
		ops = append(ops, op)
		i += n
	}
	return ops, nil
}

// bitfieldOffset parses an offset in bits or, after #, in fields of the width.
func bitfieldOffset(r *request, i int, width uint) (int64, error) {
	arg, unit := r.args[i], int64(1)
	if len(arg) > 0 && arg[0] == '#' {
		arg, unit = arg[1:], int64(width)
	}
	n, ok := parseInt(arg)
	if !ok || n < 0 || n > math.MaxInt64/64-64 || (n*unit+int64(width))>>3 >= int64(r.s.o.MaxBulk) {
		return 0, errBitOffset
	}
	return n * unit, nil
}

func bitfieldCommand(r *request) error {
	ops, err := parseBitfield(r)
	if err != nil {
		return err
	}
	row, err := r.loadString(1)
	if err != nil {
		return err
	}
	size := int64(0)
	for _, op := range ops {
		if op.verb != "GET" {
			size = max(size, op.offset+int64(op.width))
		}
	}
	value := row.Value
	if size > 0 {
		value = grown(value, size)
	}
	changed := len(value) > len(row.Value) // an operation that fails grows the string, too
	r.w.Array(len(ops))
	for _, op := range ops {
		old := op.read(value)
		result, ok := op.apply(old)
		switch {
		case op.verb == "GET":
			r.w.Int(old)
			continue
		case !ok:
			r.w.Null()
			continue
		case op.verb == "SET":
			r.w.Int(old)
		default:
			r.w.Int(result)
		}
		op.write(value, result)
		changed = true
	}
	if !changed {
		return nil
	}
	return r.set(r.args[1], value, &row, keyspace.KeepExpiry)
}

func (op *bitfieldOp) read(value []byte) int64 {
	n := uint64(0)
	for i := range int64(op.width) {
		n = n<<1 | uint64(bitAt(value, op.offset+i))
	}
	return op.wrap(n)
}

// wrap gives the lowest bits their meaning.
func (op *bitfieldOp) wrap(n uint64) int64 {
	unused := 64 - op.width
	if op.signed {
		return int64(n<<unused) >> unused
	}
	return int64(n << unused >> unused)
}

func (op *bitfieldOp) write(value []byte, n int64) {
	for i := range int64(op.width) {
		setBit(value, op.offset+i, n>>(int64(op.width)-1-i)&1)
	}
}

// apply returns what the field becomes; ok false: it overflows, and OVERFLOW FAIL is on.
func (op *bitfieldOp) apply(old int64) (result int64, ok bool) {
	lo, hi := int64(0), int64(math.MaxInt64)
	switch {
	case op.signed:
		lo, hi = math.MinInt64>>(64-op.width), math.MaxInt64>>(64-op.width)
	case op.width < 63:
		hi = 1<<op.width - 1
	}
	sum, over := op.value, 0
	if op.verb == "INCRBY" {
		sum = old + op.value
		switch { // of int64 itself
		case op.value > 0 && old > math.MaxInt64-op.value:
			over = 1
		case op.value < 0 && old < math.MinInt64-op.value:
			over = -1
		}
	}
	switch {
	case over == 0 && sum > hi:
		over = 1
	case over == 0 && sum < lo:
		over = -1
	}
	if op.verb == "SET" && !op.signed && op.value < 0 {
		over = 1 // its bits are those of a large number
	}
	switch {
	case over == 0:
		return sum, true
	case op.overflow == "FAIL":
		return 0, false
	case op.overflow == "SAT" && over > 0:
		return hi, true
	case op.overflow == "SAT":
		return lo, true
	}
	return op.wrap(uint64(sum)), true
}
