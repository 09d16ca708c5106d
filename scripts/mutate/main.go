package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// mutant is one mistake: in file, old becomes new. old must be there exactly once.
type mutant struct {
	class string // sync, order, ack, ttl, check, replay, rollback, patches or room
	name  string
	file  string
	old   string
	new   string
}

func (m mutant) String() string { return m.class + "/" + m.name }

// verdict is what became of a mutant.
type verdict struct {
	Mutant  string  `json:"mutant"`
	Verdict string  `json:"verdict"` // killed, survived, or stale: its code is not there
	By      string  `json:"by,omitempty"`
	Seconds float64 `json:"seconds"`
}

// report is what a run has found out.
type report struct {
	Mutants  int       `json:"mutants"`
	Killed   int       `json:"killed"`
	Survived []string  `json:"survived"`
	Stale    []string  `json:"stale"`
	All      []verdict `json:"all"`
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("mutate", flag.ContinueOnError)
	f.SetOutput(stderr)
	only := f.String("only", "", "regular expression: mutants whose CLASS/NAME matches")
	list := f.Bool("list", false, "list the mutants and judge none")
	limit := f.Duration("limit", 3*time.Minute, "time for one suite")
	asJSON := f.Bool("json", false, "print the report as JSON")
	if err := f.Parse(args); err != nil {
		return 2
	}
	which, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	r := report{Survived: []string{}, Stale: []string{}}
	for _, m := range mutants() {
		if !which.MatchString(m.String()) {
			continue
		}
		if *list {
			fmt.Fprintln(stdout, m)
			continue
		}
		v, err := judge(m, *limit)
		if err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		fmt.Fprintf(stderr, "%-9s %s %s (%.0fs)\n", v.Verdict, m, v.By, v.Seconds)
		r.add(v)
	}
	if *asJSON {
		if err := json.NewEncoder(stdout).Encode(r); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
	}
	if !*list {
		fmt.Fprintf(
			stderr,
			"%d mutants, %d killed, %d survived, %d stale\n",
			r.Mutants,
			r.Killed,
			len(r.Survived),
			len(r.Stale),
		)
	}
	if len(r.Survived)+len(r.Stale) > 0 {
		return 1
	}
	return 0
}

func (r *report) add(v verdict) {
	r.Mutants++
	r.All = append(r.All, v)
	switch v.Verdict {
	case "killed":
		r.Killed++
	case "survived":
		r.Survived = append(r.Survived, v.Mutant)
	default:
		r.Stale = append(r.Stale, v.Mutant)
	}
}

// judge runs the suites over a mutant until one catches it.
func judge(m mutant, limit time.Duration) (v verdict, err error) {
	began := time.Now()
	v = verdict{Mutant: m.String(), Verdict: "survived"}
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	overlay, err := m.overlay(dir)
	if err != nil {
		v.Verdict, v.By = "stale", err.Error()
		return v, nil
	}
	for _, s := range suitesOf(m) {
		args := []string{
			"test",
			"-overlay",
			overlay,
			"-count=1",
			"-failfast",
			"-vet=off",
			"-timeout",
			limit.String(),
			"-run",
			s.tests,
			"./" + s.pkg,
		}
		out, err := goTool(limit+time.Minute, args...)
		if err == nil {
			continue
		}
		if strings.Contains(out, "[build failed]") {
			v.Verdict, v.By = "stale", "does not build: "+out
			return v, nil
		}
		v.Verdict, v.By = "killed", firstFailure(s.pkg, out)
		break
	}
	v.Seconds = time.Since(began).Seconds()
	return v, nil
}

// overlay writes the changed file and the map that lays it over the real one.
func (m mutant) overlay(dir string) (name string, err error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		return "", fmt.Errorf("%s has the code to change %d times", m.file, n)
	}
	real, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(changed, []byte(strings.Replace(string(source), m.old, m.new, 1)),
		0o666); err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": {real: changed}})
	if err != nil {
		return "", err
	}
	name = filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, b, 0o666)
}

func goTool(limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	return string(out), err
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^panic: (.{0,80})`)

// firstFailure names the test that caught a mutant.
func firstFailure(pkg, out string) string {
	if found := failed.FindStringSubmatch(out); found != nil {
		return "by " + pkg + " " + found[1] + found[2]
	}
	return "by " + pkg
}

// suite is some tests of one package.
type suite struct{ pkg, tests string }

// suitesOf gives the test that a mutant names, or the tests of its room, then those of the rooms above
// it, the quickest first.
func suitesOf(m mutant) []suite {
	if s, ok := killers[m.name]; ok {
		return []suite{s}
	}
	all := map[string][]suite{
		"wal":   {{"wal", "."}, crashes, histories, most},
		"pager": {{"pager", "."}, {"txn", "Damage|Reopen|Check"}, inPlace, rot, crashes},
		"txn":   {{"kv", "NoRoom|OfAnotherStore|OfTwoTimes"}, most, crashes, histories, rot},
		"btree": {{"btree", "."}, {"txn", "Damage|Check|Laid"}, inPlace, hostile},
		"ttl":   {{"ttl", "."}, {"kv", "TTL|Expir|Purge|Evict|Batch"}},
		"kv":    {{"kv", "."}},
		"cf":    {{"cf", "."}, {"kv", "Family|CF"}, crashes},

		"internal/keyorder": {{"internal/keyorder", "."}, most},
	}
	room := filepath.Dir(m.file)
	return slices.Clone(all[room])
}

var (
	most    = suite{"txn", "^Test[^M]"} // TestModel takes longer than all others
	crashes = suite{
		"fuzz",
		"CrashesAreSurvived|EveryProfile|Recoveries|FailingCalls|FailedSyncs|FullDisk|" +
			"Regressions|Interleavings",
	}
	// without copies
	inPlace   = suite{"txn", "RowsThatFit|Rollback|Reader|Undo|Savepoint|Snapshots|Patch|AtRandom|Hand"}
	rot       = suite{"fuzz", "Rot|JudgeSees"}
	hostile   = suite{"fuzz", "Hostile"}
	histories = suite{"fuzz", "Histories"}
)
