package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEventsAreCountedByPackage(t *testing.T) {
	const events = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"hello\n"}
{"Action":"pass","Package":"p","Test":"TestA/sub","Elapsed":0.1}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Elapsed":1}
{"Action":"fail","Package":"q","Test":"TestC"}
{"Action":"fail","Package":"q","Elapsed":1}
{"Action":"fail","Package":"broken","FailedBuild":"broken [broken.test]"}
no event
`
	results := map[string]*result{}
	readEvents(strings.NewReader(events), results)
	for name, want := range map[string]result{
		"p":      {passed: 2, skipped: 1},
		"q":      {failed: 1, broken: true},
		"broken": {broken: true},
	} {
		got := results[name]
		if got == nil || got.passed != want.passed || got.failed != want.failed ||
			got.skipped != want.skipped ||
			got.broken != want.broken {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestResultsOfEarlierRunsDoNotCount(t *testing.T) {
	got := testArgs([]string{"/src", "/src/cmd/ebb"}, []string{"-race", "-timeout", "30m"})
	want := []string{"test", "-json", "-count=1", "-race", "-timeout", "30m", "/src/...", "/src/cmd/ebb/..."}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestModulesThatAreLeftOutHaveNoBar: bars of cmd/bench count for its own run only, and those of
// the root module, whose path is a prefix of all others, for the run without it.
func TestModulesThatAreLeftOutHaveNoBar(t *testing.T) {
	all := []module{{"x/ebb", "/src"}, {"x/ebb/cmd/bench", "/src/cmd/bench"},
		{"x/ebb/cmd/ebb", "/src/cmd/ebb"}}
	bars := map[string]int{
		"x/ebb/kv":               1,
		"x/ebb/cmd/bench":        2,
		"x/ebb/cmd/bench/engine": 3,
		"x/ebb/cmd/ebb":          4,
		"other":                  5,
	}
	for _, c := range []struct {
		tested selection
		want   map[string]int
	}{
		{selection{}, bars},
		{selection{except: "cmd/bench"}, map[string]int{"x/ebb/kv": 1, "x/ebb/cmd/ebb": 4, "other": 5}},
		{selection{except: "cmd/bench,cmd/ebb"}, map[string]int{"x/ebb/kv": 1, "other": 5}},
		{selection{only: "cmd/bench"}, map[string]int{"x/ebb/cmd/bench": 2, "x/ebb/cmd/bench/engine": 3,
			"other": 5}},
	} {
		if got := barsOf(bars, all, c.tested); !maps.Equal(got, c.want) {
			t.Errorf("%+v: got %v, want %v", c.tested, got, c.want)
		}
	}
}

func TestBarsAreReadAndBadLinesRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bars")
	for _, c := range []struct {
		text string
		want map[string]int
	}{
		{"# remark\n\na/b 3\nc 0\n", map[string]int{"a/b": 3, "c": 0}},
		{"a\n", nil},
		{"a many\n", nil},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		got, err := readBars(file)
		if (err == nil) != (c.want != nil) || !maps.Equal(got, c.want) {
			t.Errorf("readBars of %q = %v, %v; want %v", c.text, got, err, c.want)
		}
	}
}
