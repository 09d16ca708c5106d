package report

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed page.html
var pageSource string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"number": number, "known": known, "times": times,
	"megabytes": func(x float64) string { return known(x / 1e6) },
	"plot":      plot, "standing": standing,
}).Parse(pageSource))

// HTML writes a page that needs nothing else: no script, no network.
func (rep *Report) HTML(w io.Writer) error { return page.Execute(w, rep) }

// comparison is our figure in a row beside the best peer's and the limit.
type comparison struct {
	Ours, Peer, Limit *Figure // nil: took no part
	Ratio, OfLimit    float64
	First, AtGoal     bool
}

func standing(row Row) comparison {
	c := comparison{Ours: row.find(ours), Peer: row.bestPeer(), Limit: row.find(limitName)}
	c.Ratio, c.OfLimit = row.advantage(c.Ours, c.Peer), row.advantage(c.Ours, c.Limit)
	c.First, c.AtGoal = c.Ratio >= 1, c.Ratio >= max(row.Goal, 1)
	return c
}

// Sizes of a plot in pixels.
const (
	plotWidth  = 760
	plotBar    = 18
	plotStep   = 26
	plotNames  = 110 // at the left
	plotValues = 110 // at the right
)

// bar is one entrant in a plot, with a line from its worst to its best round.
type bar struct {
	Name, Text    string
	Ours          bool
	Y, Middle     int
	Width, Lo, Hi float64
}

// chart is a row's plot. The limit is not in it: beside it nothing else would be seen.
type chart struct {
	Width, Height, Bar, Left int
	Bars                     []bar
}

func plot(row Row) chart {
	c := chart{Width: plotWidth, Bar: plotBar, Left: plotNames}
	longest := 0.0
	for _, f := range row.Figures {
		if f.Engine != limitName {
			longest = max(longest, f.Max)
		}
	}
	scale := ratio(plotWidth-plotNames-plotValues, longest)
	for _, f := range row.Figures {
		if f.Engine == limitName {
			continue
		}
		y := len(c.Bars) * plotStep
		b := bar{
			Name:   f.Engine,
			Ours:   f.Engine == ours,
			Y:      y,
			Middle: y + plotBar/2,
			Text:   number(f.Median) + " " + row.Unit,
		}
		if f.Failure != "" {
			b.Text = "failed"
		}
		b.Width, b.Lo, b.Hi = f.Median*scale, plotNames+f.Min*scale, plotNames+f.Max*scale
		c.Bars = append(c.Bars, b)
	}
	c.Height = len(c.Bars) * plotStep
	return c
}
