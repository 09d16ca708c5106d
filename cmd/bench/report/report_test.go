package report

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cmd/bench/workload"
)

// sample is two rows: a rate in which we lead, and a time in which we do not, with a peer that
// failed once.
func sample(t *testing.T) *Report {
	t.Helper()
	// Nothing was measured of the last one, and it has no row.
	chosen, err := workload.Select("get,open,scan")
	require.NoError(t, err)
	var results []workload.Result
	add := func(w, e string, values ...float64) {
		for i, v := range values {
			results = append(
				results,
				workload.Result{Workload: w, Engine: e, Round: i, Value: v, CPU: 0.5, Peak: 30e6, P50us: 1,
					P99us: 7, P999us: 9, Written: 300, User: 100, Disk: 500, Data: 250},
			)
		}
	}
	add("get", "ebb", 1500, 3000, 2000)
	add("get", "bbolt", 1000, 900, 1100)
	add("get", "sqlite", 5000, 5000, 5000)
	add("get", "limit", 4000, 4000, 4000)
	add("open", "ebb", 4, 2, 3)
	add("open", "bbolt", 1, 1, 1)
	add("open", "pebble", 9, 9, 9)
	for i := range results {
		if results[i].Engine == "sqlite" && results[i].Round == 1 {
			results[i].Failure = "wrong answer: <1 row>"
		}
	}
	return New(3, NewSize(1234, chosen, results))
}

func TestFiguresAreMediansOfTheRounds(t *testing.T) {
	row := sample(t).Sizes[0].Rows[0]
	require.Equal(
		t,
		[]string{"ebb", "bbolt", "sqlite", "limit"},
		engines(row),
		"best first, failures behind, the limit last",
	)
	own := row.find("ebb")
	require.Equal(t, 2000.0, own.Median)
	require.Equal(t, 1500.0, own.Min)
	require.Equal(t, 3000.0, own.Max)
	require.Equal(t, 3.0, own.PerByte)
	require.Equal(t, 2.0, own.PerLive)
	require.Equal(t, "wrong answer: <1 row>", row.find("sqlite").Failure, "one failure fails the row")
}

func TestAnEvenNumberOfRoundsHasItsMedianBetween(t *testing.T) {
	rounds := []workload.Result{{Value: 1}, {Value: 2}, {Value: 4}, {Value: 9}}
	require.Equal(t, 3.0, figure("x", rounds).Median)
}

func TestAdvantageIsAboveOneForTheBetter(t *testing.T) {
	rows := sample(t).Sizes[0].Rows
	rate, time := standing(rows[0]), standing(rows[1])
	require.Equal(t, "bbolt", rate.Peer.Engine, "a failure is no peer")
	require.InDelta(t, 2.0, rate.Ratio, 1e-9)
	require.InDelta(t, 0.5, rate.OfLimit, 1e-9)
	require.True(t, rate.First && rate.AtGoal)
	require.Equal(t, []string{"bbolt", "ebb", "pebble"}, engines(rows[1]), "less is better")
	require.InDelta(t, 1.0/3, time.Ratio, 1e-9)
	require.False(t, time.First || time.AtGoal)
	require.Nil(t, time.Limit)
	require.Zero(t, time.OfLimit)
}

func engines(row Row) (names []string) {
	for _, f := range row.Figures {
		names = append(names, f.Engine)
	}
	return names
}

func TestTableHasEveryRowWithItsRatios(t *testing.T) {
	var b strings.Builder
	require.NoError(t, sample(t).Table(&b))
	lines := map[string]string{}
	for line := range strings.Lines(b.String()) {
		if f := strings.Fields(line); len(f) > 0 && lines[f[0]] == "" {
			lines[f[0]] = strings.Join(f, " ")
		}
	}
	require.Equal(t, "get, /s 2000 1500 3000 1000 bbolt 2.00x 1.30x 4000 0.50x 1 7 9 7 9", lines["get,"])
	require.Equal(t, "open, ms 3 2 4 1 bbolt 0.33x - - - 1 7 9 7 9", lines["open,"])
	require.Equal(t, "get 0.5 0.5 bbolt 30 30 bbolt 3 3 bbolt 0.0005 0.0005 bbolt 2 n/a", lines["get"])
	require.Contains(t, b.String(), "FAILED: get on sqlite: wrong answer: <1 row>")
}

// TestTableOfSeveralSizesHasAColumnForEach: a row that an interrupt left out of one has a dash there.
func TestTableOfSeveralSizesHasAColumnForEach(t *testing.T) {
	chosen, err := workload.Select("get,scan")
	require.NoError(t, err)
	results := func(name string, own, peer float64) []workload.Result {
		return []workload.Result{
			{Workload: name, Engine: "ebb", Value: own}, {Workload: name, Engine: "lmdb", Value: peer},
		}
	}
	var b strings.Builder
	require.NoError(t, New(1,
		NewSize(1000, chosen, results("get", 3, 2)),
		NewSize(9000, chosen, append(results("get", 1, 2), results("scan", 4, 2)...)),
	).Table(&b))
	_, last, found := strings.Cut(b.String(), "times the best peer")
	require.True(t, found)
	text := strings.Join(strings.Fields(last), " ")
	require.Contains(t, text, "1000 rows 9000 rows get 1.30x 1.50x lmdb 0.50x lmdb scan 1.20x - 2.00x lmdb")
}

func TestTableTellsWhatPausesComeFrom(t *testing.T) {
	chosen, err := workload.Select("pause-purge,get")
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, New(1, NewSize(1, chosen, []workload.Result{
		{Workload: "get", Engine: "ebb", Value: 7},
		{Workload: "pause-purge", Engine: "ebb", Value: 1.5, P99us: 300, IdleP99: 200, Beside: 4321,
			Seconds: 2.5},
		{Workload: "pause-purge", Engine: "bbolt", Value: 4, P99us: 800, IdleP99: 200, Beside: 99,
			Seconds: 1},
	})).Table(&b))
	text := strings.Join(strings.Fields(b.String()), " ")
	require.Contains(t, text, "pause-purge ebb 1.50x 300 200 4321 2.5 pause-purge bbolt 4.00x 800 200 99 1")
	require.NotContains(t, text, "get ebb 7")
}

func TestTableWithoutUsOrPeers(t *testing.T) {
	chosen, err := workload.Select("get")
	require.NoError(t, err)
	for _, e := range []string{"ebb", "bbolt", "limit"} {
		var b strings.Builder
		results := []workload.Result{{Workload: "get", Engine: e, Value: 7}}
		require.NoError(t, New(1, NewSize(1, chosen, results)).Table(&b))
		require.Contains(t, b.String(), "get, /s")
		require.Contains(t, b.String(), " 7 ")
	}
}

func TestJSONReadsBack(t *testing.T) {
	rep := sample(t)
	var b strings.Builder
	require.NoError(t, rep.JSON(&b))
	var back Report
	require.NoError(t, json.Unmarshal([]byte(b.String()), &back))
	require.Len(t, back.Sizes, 1)
	require.Equal(t, rep.Sizes[0].Results, back.Sizes[0].Results)
	require.Len(t, back.Sizes[0].Rows, 2)
	require.Equal(t, rep.Sizes[0].Rows[0].Figures[0].Median, back.Sizes[0].Rows[0].Figures[0].Median)
}

// TestPageIsWholeAndNeedsNoNetwork: every engine has its bar, text is escaped, and nothing is
// fetched.
func TestPageIsWholeAndNeedsNoNetwork(t *testing.T) {
	var b strings.Builder
	require.NoError(t, sample(t).HTML(&b))
	html := b.String()
	require.Equal(t, 2, strings.Count(html, "<svg"))
	require.Equal(t, 6, strings.Count(html, "<rect"), "three entrants in each plot, the limit in none")
	require.Contains(t, html, "wrong answer: &lt;1 row&gt;")
	for _, fetch := range []string{"http:", "https:", "src=", "@import", "<script"} {
		require.NotContains(t, html, fetch)
	}
	for _, part := range strings.SplitAfter(html, "</svg>")[:2] {
		d := xml.NewDecoder(strings.NewReader(part[strings.Index(part, "<svg"):]))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else {
				require.NoError(t, err)
			}
		}
	}
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	for want, x := range map[string]float64{"0": 0, "0.0123": 0.01234, "1.23": 1.234, "12.3": 12.34,
		"123": 123.4, "1234": 1234,
		"12.3k": 12340, "1.23M": 1234000} {
		require.Equal(t, want, number(x))
	}
}

// TestPeersThatHoldFewerRowsAreNotCompared. In little memory a time bounds the load before the gets,
// and a peer that had loaded a fraction of the rows, which fit into memory, was the best one.
func TestPeersThatHoldFewerRowsAreNotCompared(t *testing.T) {
	chosen, err := workload.Select("memory-256-once-after")
	require.NoError(t, err)
	result := func(engine string, value float64, rows int) workload.Result {
		return workload.Result{
			Workload: chosen[0].Name, Engine: engine, Value: value, Rows: rows, OpenSeconds: 1,
			CloseSeconds: 3,
		}
	}
	rep := New(1, NewSize(1000, chosen, []workload.Result{
		result("ebb", 100, 2000), result("bbolt", 900, 500), result("lmdb", 50, 2000),
	}))
	require.Equal(t, "lmdb", rep.Sizes[0].Rows[0].bestPeer().Engine)
	var text strings.Builder
	require.NoError(t, rep.Table(&text))
	require.Regexp(t, `memory-256-once-after +bbolt +900 +500 +1 +3 `, text.String())
	require.Regexp(t, `2\.00x`, text.String())
}
