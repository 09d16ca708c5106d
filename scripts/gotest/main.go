package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output and build-fail
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

// result is what one package did.
type result struct {
	passed, failed, skipped int
	broken                  bool // failed outside a test: build, panic, TestMain
	seconds                 float64
	names                   map[string]*strings.Builder // output by test; "" is the package's own
	failedTests             []string
}

func main() {
	barsFile := flag.String("bars", "", "file of minimum test counts")
	except := flag.String("except", "", "directories of modules to leave out, with commas between")
	only := flag.String("only", "", "directory of the one module to test, within the workspace")
	flag.Usage = func() {
		fmt.Fprintln(
			flag.CommandLine.Output(),
			"usage: gotest [-bars FILE] [-except DIR,DIR | -only DIR] [-- arguments of go test]",
		)
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*barsFile, selection{only: *only, except: *except}, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
}

// module is a module of the workspace.
type module struct{ path, dir string }

// selection says which modules of the workspace are tested: one, all but some, or all.
type selection struct{ only, except string }

// has reports whether the tests of m are asked for.
func (s selection) has(m module) bool {
	in := func(dir string) bool { return strings.HasSuffix(filepath.ToSlash(m.dir), "/"+dir) }
	if s.only != "" {
		return in(s.only)
	}
	return !slices.ContainsFunc(strings.Split(s.except, ","), in)
}

// barsOf returns the bars of packages within the tested modules. A package belongs to the module
// with the longest path that is a prefix of its own.
func barsOf(bars map[string]int, all []module, tested selection) map[string]int {
	kept := map[string]int{}
	for name, bar := range bars {
		var owner module
		for _, m := range all {
			if (name == m.path || strings.HasPrefix(name, m.path+"/")) && len(m.path) > len(owner.path) {
				owner = m
			}
		}
		if owner.path == "" || tested.has(owner) {
			kept[name] = bar
		}
	}
	return kept
}

// modules lists those of the workspace.
func modules() ([]module, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("list the modules of the workspace: %w", err)
	}
	var all []module
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, module{path, dir})
	}
	return all, nil
}

func run(barsFile string, tested selection, args []string) error {
	bars := map[string]int{}
	if barsFile != "" {
		var err error
		if bars, err = readBars(barsFile); err != nil {
			return err
		}
	}
	all, err := modules()
	if err != nil {
		return err
	}
	bars = barsOf(bars, all, tested)
	var dirs []string
	for _, m := range all {
		if tested.has(m) {
			dirs = append(dirs, m.dir)
		}
	}
	if len(dirs) == 0 {
		return fmt.Errorf("no module of the workspace is in %q", tested.only)
	}
	results := map[string]*result{}
	// A package that does not build yields no result, so the exit code of go counts as well.
	trouble := test(dirs, args, results)

	var passed, failed, skipped int
	for _, name := range slices.Sorted(maps.Keys(results)) {
		r := results[name]
		passed, failed, skipped = passed+r.passed, failed+r.failed, skipped+r.skipped
		if r.broken && r.failed == 0 {
			failed++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(bars)) {
		ran := 0
		if r := results[name]; r != nil {
			ran = r.passed + r.failed
		}
		if ran < bars[name] {
			failed++
			fmt.Printf("%s: %d tests ran, the bar is %d\n", name, ran, bars[name])
		}
	}
	if trouble != nil {
		failed = max(failed, 1)
		fmt.Println("go test:", trouble)
	}
	if skipped > 0 {
		fmt.Printf("%d skipped\n", skipped)
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		return fmt.Errorf("%d failed", failed)
	}
	return nil
}

// test runs the tests of modules in one go command, which keeps all processors at work, and adds to
// results. The error is that of the go command.
func test(dirs, args []string, results map[string]*result) error {
	cmd := exec.Command("go", testArgs(dirs, args)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readEvents(out, results)
	return cmd.Wait()
}

// testArgs are those of the go command. What it remembers of an earlier run is not what is asked
// for: some tests look at the machine, and at races, and may end otherwise today.
func testArgs(dirs, args []string) []string {
	all := slices.Concat([]string{"test", "-json", "-count=1"}, args)
	for _, dir := range dirs {
		all = append(all, filepath.ToSlash(dir)+"/...")
	}
	return all
}

// readEvents reads to the end of r, which never fails to parse as a whole: a line that is no event
// is printed.
func readEvents(r io.Reader, results map[string]*result) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil {
				take(e, results)
			} else {
				os.Stdout.Write(line)
			}
		}
		if err != nil {
			return
		}
	}
}

func take(e event, results map[string]*result) {
	if e.Package == "" {
		if e.Action == "build-output" {
			fmt.Print(e.Output)
		}
		return
	}
	p := results[e.Package]
	if p == nil {
		p = &result{names: map[string]*strings.Builder{}}
		results[e.Package] = p
	}
	if e.Test == "" {
		takePackage(e, p)
		return
	}
	switch e.Action {
	case "output":
		keep(p, e.Test, e.Output)
	case "pass":
		p.passed++
		delete(p.names, e.Test) // output of tests that passed is not needed
	case "skip":
		p.skipped++
		fmt.Printf("skipped  %s %s\n", e.Package, e.Test)
	case "fail":
		p.failed++
		p.failedTests = append(p.failedTests, e.Test)
	}
}

func takePackage(e event, p *result) {
	switch e.Action {
	case "output":
		keep(p, "", e.Output)
	case "pass", "fail", "skip":
		p.seconds = e.Elapsed
		p.broken = e.Action == "fail"
		if p.broken {
			show(p)
		}
		status := map[string]string{"pass": "ok", "fail": "FAIL", "skip": "no tests"}[e.Action]
		fmt.Printf(
			"%-8s %-48s %5d passed %3d failed %3d skipped %7.1fs\n",
			status,
			e.Package,
			p.passed,
			p.failed,
			p.skipped,
			p.seconds,
		)
	}
}

func keep(p *result, test, output string) {
	b := p.names[test]
	if b == nil {
		b = &strings.Builder{}
		p.names[test] = b
	}
	b.WriteString(output)
}

// show prints the output of what failed: the failed tests, those that never ended (after a panic),
// and the package's own.
func show(p *result) {
	for _, name := range slices.Sorted(maps.Keys(p.names)) {
		text := p.names[name].String()
		if name != "" && !slices.Contains(p.failedTests, name) && strings.Contains(text, "--- SKIP") {
			continue
		}
		fmt.Print(text)
	}
}

func readBars(name string) (map[string]int, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	bars := map[string]int{}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("%s: want \"import-path minimum\", have %q", name, line)
		}
		n, err := strconv.Atoi(fields[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		bars[fields[0]] = n
	}
	return bars, nil
}
