package main

import (
	"bytes"
	"os"
	"testing"
)

// TestEveryMutantFitsTheCode: a mutant whose code has changed proves nothing any more.
func TestEveryMutantFitsTheCode(t *testing.T) {
	if err := os.Chdir("../.."); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range mutants() {
		if _, err := m.overlay(t.TempDir()); err != nil {
			t.Errorf("%s: %v", m, err)
		}
		if seen[m.String()] || m.old == m.new || len(suitesOf(m)) == 0 {
			t.Errorf("%s: twice, or no change, or no test judges it", m)
		}
		seen[m.String()] = true
	}
}

func TestListNamesTheMutants(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"-list", "-only", "ttl/a_key"}, &out, &errs); code != 0 ||
		out.String() != "ttl/a_key_lives_a_millisecond_too_long\n" {
		t.Errorf("%d, %q, %q", code, out.String(), errs.String())
	}
	if code := run([]string{"-only", "("}, &out, &errs); code != 2 {
		t.Errorf("a bad expression gives %d", code)
	}
}
