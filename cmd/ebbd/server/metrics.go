package server

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// metric is a number of the server in the text format of Prometheus.
type metric struct {
	name, kind, help string
	value            float64
}

// Metrics returns a handler that answers with the numbers of the server and its store. It reads no
// keys: its time does not depend on their number.
func (s *Server) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		b := bufio.NewWriter(w)
		for _, m := range slices.Concat(s.serverMetrics(), storeMetrics(s.db.Stats())) {
			fmt.Fprintf(b, "# HELP ebbd_%s %s\n# TYPE ebbd_%s %s\nebbd_%s %v\n",
				m.name, m.help, m.name, m.kind, m.name, m.value)
		}
		s.writeCommandMetrics(b)
		_ = b.Flush() // the client is gone
	})
}

func (s *Server) serverMetrics() []metric {
	st := &s.stats
	_, errors := st.total()
	keys, fields := s.store.Expired()
	count := func(name, help string, n int64) metric {
		return metric{name, "counter", help, float64(n)}
	}
	gauge := func(name, help string, n float64) metric { return metric{name, "gauge", help, n} }
	return []metric{
		gauge("uptime_seconds", "Seconds since the start.", time.Since(s.started).Seconds()),
		gauge("connected_clients", "Open connections.", float64(len(s.clients()))),
		gauge("blocked_clients", "Clients that wait for an element.", float64(s.waits.count.Load())),
		gauge("subscriptions", "Subscriptions of all connections.", float64(s.hub.count.Load())),
		gauge("last_turn_failed", "1 if the newest write transaction failed.",
			float64(oneIf(s.lastError.Load() != nil))),
		count("connections_total", "Connections accepted.", st.connections.Load()),
		count("rejected_connections_total", "Connections beyond maxclients.", st.rejected.Load()),
		count("error_replies_total", "Commands that replied with an error.", errors),
		count("turns_total", "Write transactions of commands.", st.turns.Load()),
		count("turns_without_space_total", "Write transactions that needed more space than there is.",
			st.withoutSpace.Load()),
		gauge("store_max_bytes", "Bound on main file and log together; 0: none.", float64(s.o.MaxBytes)),
		count("net_input_bytes_total", "Bytes received.", st.bytesRead.Load()),
		count("net_output_bytes_total", "Bytes sent.", st.bytesWritten.Load()),
		count("keyspace_hits_total", "Keys that reads found.", st.hits.Load()),
		count("keyspace_misses_total", "Keys that reads did not find.", st.misses.Load()),
		count("expired_keys_total", "Keys that expired and were deleted.", keys),
		count("expired_fields_total", "Hash fields that expired and were deleted.", fields),
	}
}

func storeMetrics(st kv.Stats) []metric {
	rows, due := int64(0), int64(0)
	for _, f := range st.Families {
		rows += f.Rows
		due += f.Due
	}
	return []metric{
		{"store_file_bytes", "gauge", "Size of the main file.", float64(st.FileBytes)},
		{"store_log_bytes", "gauge", "Size of the log.", float64(st.LogBytes)},
		{"store_free_bytes", "gauge", "Free space within the main file.", float64(st.FreeBytes)},
		{"store_cache_bytes", "gauge", "Memory of cached pages.", float64(st.FrameBytes)},
		{"store_rows", "gauge", "Rows of all families.", float64(rows)},
		{"store_due_rows", "gauge", "Expired rows that are to be deleted.", float64(due)},
		{"store_clock_jumped", "gauge", "1 if the clock was set forward: no expired row is deleted before " +
			"a restart.", float64(oneIf(st.ClockJumped))},
		{"store_readers", "gauge", "Open read transactions.", float64(st.Readers)},
		{"store_commits_total", "counter", "Commits.", float64(st.Commits)},
		{"store_checkpoints_total", "counter", "Checkpoints.", float64(st.Checkpoints)},
		{"store_pages_read_total", "counter", "Pages read from the main file.", float64(st.PagesRead)},
		{"store_pages_written_total", "counter", "Pages written to the main file.",
			float64(st.PagesWritten)},
		{"store_log_bytes_total", "counter", "Bytes written to the log.", float64(st.LogBytesWritten)},
	}
}

func (s *Server) writeCommandMetrics(w io.Writer) {
	rows := s.stats.called()
	fmt.Fprint(w, "# HELP ebbd_commands_total Commands that have run.\n# TYPE ebbd_commands_total counter\n")
	for _, r := range rows {
		fmt.Fprintf(w, "ebbd_commands_total{command=%q} %d\n", r.name, r.calls)
	}
	fmt.Fprint(w, "# HELP ebbd_command_seconds_total Time that commands took, without waits for turns.\n"+
		"# TYPE ebbd_command_seconds_total counter\n")
	for _, r := range rows {
		fmt.Fprintf(w, "ebbd_command_seconds_total{command=%q} %v\n", r.name, r.took.Seconds())
	}
}
