package main

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ebbkv/ebb/fuzz"
)

// keys is how many there are: few, so that transactions meet.
const keys = 8

type state [keys]uint64

// store is what the transactions should look like: each happens at one moment, and sees all that
// happened before.
var store = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, input, _ any) (bool, any) {
		s, e := before.(state), input.(fuzz.Event)
		for _, r := range e.Reads {
			if s[r.Key] != r.Value {
				return false, s
			}
		}
		for _, w := range e.Writes {
			s[w.Key] = w.Value
		}
		return true, s
	},
	DescribeOperation: func(input, _ any) string {
		e := input.(fuzz.Event)
		return fmt.Sprintf("saw %v, wrote %v", e.Reads, e.Writes)
	},
}

// operations leaves out what did not happen. A commit of unknown fate may happen at any time from
// its begin on, which is what an operation without an end says; what it saw counts for nothing.
func operations(h *fuzz.History) (ops []porcupine.Operation) {
	for _, e := range h.Events {
		op := porcupine.Operation{ClientId: e.Client + 1, Call: int64(e.Begin), Return: int64(e.End)}
		switch e.Fate {
		case fuzz.Void:
			continue
		case fuzz.Unknown:
			op.Return, e.Reads = math.MaxInt64, nil
		}
		op.Input = e
		ops = append(ops, op)
	}
	return ops
}

// check looks for the order. It gives up after limit, which is neither right nor wrong.
func check(h *fuzz.History, limit time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(store, operations(h), limit)
}
