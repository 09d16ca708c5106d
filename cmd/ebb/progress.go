package main

import (
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Values of --progress.
const (
	progressAuto  = "auto"
	progressBar   = "bar"
	progressLines = "lines" // for programs: one JSON object a line
	progressNone  = "none"
)

// step is one line of --progress=lines. What it counts is durable. Where the total is unknown the
// line has none.
type step struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
}

// unknownTotal is the total of work whose size is known at its end only.
const unknownTotal = -1

// progress shows on standard error how far long work has got. A nil *progress shows nothing.
type progress struct {
	total int64
	done  int64
	bar   *progressbar.ProgressBar
	lines io.Writer
}

// newProgress starts a display of total units: bytes, or things that are counted. The total may be
// unknownTotal.
func (a *app) newProgress(what string, total int64, bytes bool) *progress {
	mode := a.progress
	if mode == progressAuto {
		mode = progressNone
		if f, ok := a.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			mode = progressBar
		}
	}
	switch mode {
	case progressLines:
		return &progress{total: total, lines: a.stderr}
	case progressBar:
		return &progress{total: total, bar: newBar(a.stderr, what, total, bytes)}
	}
	return nil
}

func newBar(w io.Writer, what string, total int64, bytes bool) *progressbar.ProgressBar {
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(bytes),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetRenderBlankState(true),
		// without a total it would turn by itself, in a goroutine that never ends
		progressbar.OptionSetSpinnerChangeInterval(0),
		progressbar.OptionOnCompletion(func() { io.WriteString(w, "\n") }),
	)
}

// add says that n more units are done.
func (p *progress) add(n int64) {
	if p == nil {
		return
	}
	p.done += n
	if p.bar != nil {
		p.bar.Add64(n)
		return
	}
	var line any = step{p.done, p.total}
	if p.total == unknownTotal {
		line = map[string]int64{"done": p.done}
	}
	json.NewEncoder(p.lines).Encode(line)
}

// end leaves the bar as it is and goes to the next line.
func (p *progress) end() {
	if p != nil && p.bar != nil && !p.bar.IsFinished() {
		p.bar.Exit()
	}
}
