package main

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// durationForms is how the command takes a duration.
const durationForms = "as 90s, 15m, 36h, 7d, 2w or 1d12h"

// longestDuration is what a duration ends at, for people.
const longestDuration = "292 years"

// durationPart is a number and its unit. Days and weeks are ours, the rest is of
// time.ParseDuration.
var durationPart = regexp.MustCompile(`^([0-9]*\.?[0-9]*)([a-zA-Zµμ]+)`)

// longUnits are the units that time.ParseDuration does not know, in hours. A day has 24 of them: no
// time zone is known.
var longUnits = map[string]time.Duration{"d": 24, "w": 7 * 24}

// parseDuration takes what time.ParseDuration takes, and d and w for days and weeks beside its
// units.
func parseDuration(s string) (time.Duration, error) {
	refuse := func() (time.Duration, error) {
		return 0,
			fmt.Errorf("%q is no duration, %s", s, durationForms)
	}
	rest, negative := strings.CutPrefix(s, "-")
	if !negative {
		rest = strings.TrimPrefix(rest, "+")
	}
	if rest == "0" {
		return 0, nil
	}
	var sum time.Duration
	for first := true; first || rest != ""; first = false {
		m := durationPart.FindStringSubmatch(rest)
		if m == nil {
			return refuse()
		}
		unit, factor := m[2], time.Duration(1)
		if hours := longUnits[unit]; hours != 0 {
			unit, factor = "h", hours
		}
		part, err := time.ParseDuration(m[1] + unit)
		if err != nil {
			// What is refused now and would not be as a small number is too large for a duration.
			if _, small := time.ParseDuration("1" + unit); small != nil ||
				!strings.ContainsAny(m[1], "0123456789") {
				return refuse()
			}
			part, factor = math.MaxInt64, 2
		}
		if part > (math.MaxInt64-sum)/factor {
			return 0, fmt.Errorf("%q is too long: a duration ends at %s", s, longestDuration)
		}
		sum += part * factor
		rest = rest[len(m[0]):]
	}
	if negative {
		sum = -sum
	}
	return sum, nil
}

// showDuration gives a duration as parseDuration takes it, in days as far as it has whole ones: 7d,
// 1d12h, 30m, 1m30s.
func showDuration(d time.Duration) string {
	const day = 24 * time.Hour
	days, rest := d/day, d%day
	if days == 0 {
		return shortDuration(d)
	}
	if rest == 0 {
		return fmt.Sprintf("%dd", days)
	}
	return fmt.Sprintf("%dd%s", days, shortDuration(rest.Abs()))
}

// shortDuration is d without the zero minutes and seconds that Duration.String ends with.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// duration is a flag whose value parseDuration takes.
type duration time.Duration

// Set is called by the parser of flags, which names the flag and its value in front of an error.
func (d *duration) Set(s string) error {
	parsed, err := parseDuration(s)
	*d = duration(parsed)
	return err
}

// String is the default in the help of a flag.
func (d *duration) String() string {
	if *d == 0 {
		return "0" // No default then: the usage says what 0 is.
	}
	return showDuration(time.Duration(*d))
}

// Type is how the help names the value.
func (d *duration) Type() string { return "duration" }

// durationVar is that of f, with days and weeks.
func durationVar(f *pflag.FlagSet, to *time.Duration, name string, usual time.Duration, usage string) {
	*to = usual
	f.Var((*duration)(to), name, usage)
}
