package server

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// infoSection writes the lines of one section of INFO.
type infoSection struct {
	name  string
	write func(r *request, b *strings.Builder) error
	more  bool // shown for "all" and by name only
}

var infoSections = []infoSection{
	{"Server", infoServer, false},
	{"Clients", infoClients, false},
	{"Memory", infoMemory, false},
	{"Persistence", infoPersistence, false},
	{"Stats", infoStats, false},
	{"Replication", infoReplication, false},
	{"CPU", nil, true},
	{"Commandstats", infoCommands, true},
	{"Keyspace", infoKeyspace, false},
	{"Ebb", infoEbb, false},
}

func infoCommand(r *request) error {
	wanted := map[string]bool{}
	for _, arg := range r.args[1:] {
		wanted[strings.ToLower(string(arg))] = true
	}
	all := wanted["all"] || wanted["everything"]
	byDefault := len(wanted) == 0 || wanted["default"] || all
	var b strings.Builder
	for _, section := range infoSections {
		shown := wanted[strings.ToLower(section.name)] || byDefault && (all || !section.more)
		if !shown || section.write == nil {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + section.name + "\r\n")
		if err := section.write(r, &b); err != nil {
			return err
		}
	}
	r.w.Verbatim(b.String())
	return nil
}

func line(b *strings.Builder, name string, value any) { fmt.Fprintf(b, "%s:%v\r\n", name, value) }

func infoServer(r *request, b *strings.Builder) error {
	up := time.Since(r.s.started)
	line(b, "redis_version", redisVersion)
	line(b, "redis_mode", "standalone")
	line(b, "os", runtime.GOOS+" "+runtime.GOARCH)
	line(b, "arch_bits", 32<<(^uint(0)>>63))
	line(b, "go_version", runtime.Version())
	line(b, "process_id", os.Getpid())
	line(b, "run_id", r.s.runID)
	line(b, "tcp_port", r.s.tcpPort())
	line(b, "uptime_in_seconds", int64(up.Seconds()))
	line(b, "uptime_in_days", int64(up.Hours()/24))
	line(b, "ebbd_version", r.s.o.Version)
	return nil
}

func infoClients(r *request, b *strings.Builder) error {
	line(b, "connected_clients", len(r.s.clients()))
	line(b, "maxclients", r.s.config.maxClients.Load())
	line(b, "blocked_clients", r.s.waits.count.Load())
	line(b, "pubsub_subscriptions", r.s.hub.count.Load())
	return nil
}

func infoMemory(r *request, b *strings.Builder) error {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	metrics.Read(sample)
	line(b, "used_memory", sample[0].Value.Uint64())
	line(b, "maxmemory", r.s.o.MaxBytes)
	line(b, "maxmemory_policy", "noeviction")
	return nil
}

func infoPersistence(r *request, b *strings.Builder) error {
	status := "ok"
	if r.s.lastError.Load() != nil {
		status = "err"
	}
	line(b, "loading", 0)
	line(b, "rdb_changes_since_last_save", r.s.changes.Load())
	saved := "ok"
	if r.s.saveFailed.Load() {
		saved = "err"
	}
	line(b, "rdb_bgsave_in_progress", oneIf(r.s.saving.Load()))
	line(b, "rdb_last_save_time", r.s.lastSave.Load())
	line(b, "rdb_last_bgsave_status", saved)
	line(b, "aof_enabled", 1)
	line(b, "aof_rewrite_in_progress", 0)
	line(b, "aof_last_write_status", status)
	return nil
}

func infoStats(r *request, b *strings.Builder) error {
	st := &r.s.stats
	calls, failed := st.total()
	keys, fields := r.s.store.Expired()
	line(b, "total_connections_received", st.connections.Load())
	line(b, "total_commands_processed", calls)
	line(b, "total_net_input_bytes", st.bytesRead.Load())
	line(b, "total_net_output_bytes", st.bytesWritten.Load())
	line(b, "rejected_connections", st.rejected.Load())
	line(b, "total_error_replies", failed)
	line(b, "expired_keys", keys)
	line(b, "expired_subkeys", fields)
	line(b, "evicted_keys", 0)
	line(b, "keyspace_hits", st.hits.Load())
	line(b, "keyspace_misses", st.misses.Load())
	return nil
}

func infoReplication(_ *request, b *strings.Builder) error {
	line(b, "role", "master")
	line(b, "connected_slaves", 0)
	line(b, "master_repl_offset", 0)
	return nil
}

func infoCommands(r *request, b *strings.Builder) error {
	for _, c := range r.s.stats.called() {
		fmt.Fprintf(b, "cmdstat_%s:calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=0,failed_calls=%d\r\n",
			c.name, c.calls, c.took.Microseconds(), float64(c.took)/1e3/float64(c.calls), c.failed)
	}
	return nil
}

// infoKeyspace counts keys with an expiry up to a bound: INFO is no walk over the store.
func infoKeyspace(r *request, b *strings.Builder) error {
	const most = 10000
	return r.s.db.View(func(tx *kv.Tx) error {
		for db := range r.s.o.Databases {
			sp := r.s.store.Space(tx, db)
			keys, err := sp.Count()
			if err != nil {
				return err
			}
			if keys == 0 {
				continue
			}
			expiring, err := sp.CountExpiring(most)
			if err != nil {
				return err
			}
			fmt.Fprintf(b, "db%d:keys=%d,expires=%d,avg_ttl=0\r\n", db, keys, expiring)
		}
		return nil
	})
}

func infoEbb(r *request, b *strings.Builder) error {
	storeStats(r.s.db.Stats(), b)
	line(b, "ebb_turns", r.s.stats.turns.Load())
	line(b, "ebb_store_bytes", r.s.storeBytes())
	return nil
}
