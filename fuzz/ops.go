package fuzz

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Op is one operation of a workload. Arg is the seed of its random choices.
type Op struct {
	Kind int // index in operations
	Arg  uint32
}

func (o Op) rand() *rand.Rand { return rand.New(rand.NewPCG(uint64(o.Arg), uint64(o.Kind))) }

func (o Op) String() string {
	return operations[o.Kind].name + "." + strconv.FormatUint(uint64(o.Arg), 36)
}

func parseOp(text string) (Op, error) {
	name, arg, _ := strings.Cut(text, ".")
	kind, ok := kindOf(name)
	n, err := strconv.ParseUint(arg, 36, 32)
	if !ok || err != nil {
		return Op{}, fmt.Errorf("operation %q is not known", text)
	}
	return Op{kind, uint32(n)}, nil
}

func kindOf(name string) (int, bool) {
	for i := range operations {
		if operations[i].name == name {
			return i, true
		}
	}
	return 0, false
}

// operation is one row of the table of all there are. A new kind of operation is a new row; it
// changes store and model together, through Run.update.
type operation struct {
	name     string
	weight   int  // how often random workloads take it
	sequence bool // it is part of enumerated sequences
	run      func(r *Run, rnd *rand.Rand) error
}

var operations []operation

func init() {
	operations = []operation{
		{"put", 14, true, opPut},
		{"over", 10, true, opOverwrite},
		{"del", 8, true, opDelete},
		{"big", 6, true, opBig},
		{"batch", 6, true, opBatch},
		{"create", 3, true, opCreate},
		{"drop", 2, true, opDrop},
		{"relax", 12, true, opRelaxed},
		{"ckpt", 4, true, opCheckpoint},
		{"rotate", 3, true, opRotate},
		{"reopen", 2, true, opReopen},
		{"rename", 2, true, opRename},
		{"range", 3, true, opRange},
		{"save", 3, true, opSavepoint},
		{"clear", 1, true, opClear},
		{"kill", 2, true, opKill},
		{"sync", 2, false, opSync},
		{"abort", 2, false, opAbort},
		{"many", 4, false, opMany},
		{"cut", 4, false, opCut},
		{"both", 4, false, opBoth},
		{"hold", 3, false, opHold},
		{"bulk", 1, true, opBulk},
		{"beside", 0, false, opBeside},
		{"putttl", 10, true, opPutTTL},
		{"clearttl", 3, true, opClearTTL},
		{"expire", 4, true, opExpire},
		{"purge", 4, true, opPurge},
		{"purgein", 2, false, opPurgeWithin},
		{"evict", 5, true, opEvict},
		{"incr", 3, false, opIncrement},
		{"cad", 3, false, opCompareAndDelete},
		{"clock", 5, false, opClock},
		{"frozen", 2, false, opFrozen},
		{"named", 6, true, opNamed},
		{"apply", 5, false, opApply},
		{"foretold", 5, true, opForetold},
		{"laid", 3, true, opLaid},
		{"alter", 2, false, opAlter},
		{"spoil", 0, false, opSpoil},
		{"look", 4, true, opLook},
		{"next", 4, true, opNext},
		{"touch", 3, false, opTouch},
		{"append", 6, true, opAppend},
		{"dropexp", 4, true, opDropExpired},
		{"compact", 3, true, opCompact},
		{"backup", 2, true, opBackup},
		{"pack", 2, false, opPack},
	}
}

func newKey(r *Run, rnd *rand.Rand) string {
	return fmt.Sprintf("k%04d-%d", rnd.IntN(4000), len(r.States))
}

func newValue(rnd *rand.Rand, size int) string {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return string(b)
}

func pickKey(m *Model, family string, rnd *rand.Rand) (string, bool) {
	keys := m.keys(family)
	if len(keys) == 0 {
		return "", false
	}
	return keys[rnd.IntN(len(keys))], true
}

// pickFamily takes mostly the default one.
func pickFamily(m *Model, rnd *rand.Rand) string {
	names := m.names()
	if rnd.IntN(3) > 0 {
		return defaultFamily
	}
	return names[rnd.IntN(len(names))]
}

// otherFamily is a family that may be dropped, if there is one.
func otherFamily(m *Model, rnd *rand.Rand) (string, bool) {
	var names []string
	for _, name := range m.names() {
		if name != defaultFamily {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", false
	}
	return names[rnd.IntN(len(names))], true
}

func freeName(m *Model, rnd *rand.Rand) string {
	for {
		if name := fmt.Sprintf("fam%d", rnd.IntN(1000)); m.families[name] == nil {
			return name
		}
	}
}
