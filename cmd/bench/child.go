package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/ebbkv/ebb/cmd/bench/engine"
	"github.com/ebbkv/ebb/cmd/bench/workload"
)

// childCommand as the first argument makes the program a child, that does the job in its second
// one.
const childCommand = "child"

// job is what one process is to do, in JSON.
type job struct {
	Engine   string
	Workload string
	Round    int
	N        int
	Dir      string
	Build    bool   // only the workload's fixture
	Profile  string // file
}

// limitEngine does each workload without a store.
const limitEngine = "limit"

// child does the job, prints its result, and returns the exit code: 0 also when the workload
// failed, which is a result.
func child(text string, stdout io.Writer) int {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Fprintln(os.Stderr, "bench: child:", err)
		return 1
	}
	result, err := j.do()
	if err != nil {
		result.Failure = err.Error()
	}
	result.Engine, result.Workload, result.Round = j.Engine, j.Workload, j.Round
	if err := json.NewEncoder(stdout).Encode(result); err != nil {
		fmt.Fprintln(os.Stderr, "bench: child:", err)
		return 1
	}
	return 0
}

func (j *job) do() (workload.Result, error) {
	var none workload.Result
	chosen, err := workload.Select(j.Workload)
	if err != nil {
		return none, err
	}
	w := &chosen[0]
	r := &workload.Run{N: j.N, Dir: j.Dir, Profile: j.Profile}
	if j.Engine == limitEngine {
		err := r.DoLimit(w)
		return r.Result, err
	}
	if r.Engine, err = engine.ByName(j.Engine); err != nil {
		return none, err
	}
	if j.Build {
		return none, w.Fixture.Build(r.Engine, j.N, j.Dir)
	}
	err = r.Do(w)
	return r.Result, err
}
