package server

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// redisVersion is the version whose behaviour clients may expect.
const redisVersion = "7.4.0"

func dbsizeCommand(r *request) error {
	n, err := r.sp.Count()
	r.w.Int(n)
	return err
}

// flushMode checks an optional ASYNC or SYNC at position i.
func flushMode(r *request, i int) error {
	if len(r.args) > i+1 || len(r.args) == i+1 && !r.is(i, "async") && !r.is(i, "sync") {
		return errSyntax
	}
	return nil
}

func flushdbCommand(r *request) error {
	if err := flushMode(r, 1); err != nil {
		return err
	}
	if err := r.touchReplaced(r.c.db, r.c.db); err != nil {
		return err
	}
	return r.ok(r.sp.Flush())
}

func flushallCommand(r *request) error {
	if err := flushMode(r, 1); err != nil {
		return err
	}
	for db := range r.s.o.Databases {
		if err := r.touchReplaced(db, db); err != nil {
			return err
		}
		if err := r.s.store.Space(r.tx, db).Flush(); err != nil {
			return err
		}
	}
	return r.ok(nil)
}

// ok replies OK unless there is an error.
func (r *request) ok(err error) error {
	if err == nil {
		r.w.Simple("OK")
	}
	return err
}

func swapdbCommand(r *request) error {
	var db [2]int
	for i := range db {
		n, ok := parseInt(r.args[i+1])
		if !ok {
			return replyError("ERR invalid " + []string{"first", "second"}[i] + " DB index")
		}
		if n < 0 || n >= int64(r.s.o.Databases) {
			return errDBIndex
		}
		db[i] = int(n)
	}
	for _, n := range db {
		if err := r.touchReplaced(n, db[0], db[1]); err != nil {
			return err
		}
	}
	return r.ok(r.s.store.SwapDB(r.tx, db[0], db[1]))
}

func timeCommand(r *request) error {
	now := time.Now()
	if r.s.o.Clock != nil {
		now = r.s.o.Clock()
	}
	r.w.Array(2)
	r.w.BulkString(formatInt(now.Unix()))
	r.w.BulkString(strconv.Itoa(now.Nanosecond() / 1000))
	return nil
}

// shutdownCommand asks the process to end. The connection gets no reply but the end, as in Redis.
func shutdownCommand(r *request) error {
	for i := 1; i < len(r.args); i++ {
		switch r.word(i) {
		case "NOSAVE", "SAVE", "NOW", "FORCE":
		case "ABORT":
			return replyError("ERR No shutdown in progress.")
		default:
			return errSyntax
		}
	}
	r.c.closing = true
	r.s.stopOne.Do(func() { close(r.s.stop) })
	return nil
}

func lastsaveCommand(r *request) error {
	r.w.Int(r.s.lastSave.Load())
	return nil
}

func roleCommand(r *request) error {
	r.w.Array(3)
	r.w.BulkString("master")
	r.w.Int(0)
	r.w.Array(0)
	return nil
}

// waitCommand replies with the number of replicas that have the writes: there are none.
func waitCommand(r *request) error {
	for i := 1; i < 3; i++ {
		if n, err := r.int(i); err != nil || n < 0 {
			return errNotInt
		}
	}
	r.w.Int(0)
	return nil
}

func slowlogCommand(r *request) error {
	switch sub := r.word(1); {
	case sub == "GET" && len(r.args) <= 3:
		n := int64(10)
		if len(r.args) == 3 {
			var err error
			if n, err = r.int(2); err != nil || n < -1 {
				return replyError("ERR count should be greater than or equal to -1")
			}
			if n == -1 {
				n = 1 << 31
			}
		}
		slowlogGet(r, int(n))
	case sub == "LEN" && len(r.args) == 2:
		r.w.Int(int64(r.s.slow.len()))
	case sub == "RESET" && len(r.args) == 2:
		r.s.slow.reset()
		r.w.Simple("OK")
	case sub == "HELP":
		return help(r, "GET [<count>]", "LEN", "RESET")
	default:
		return errSubcommand(r)
	}
	return nil
}

func slowlogGet(r *request, n int) {
	entries := r.s.slow.newest(n)
	r.w.Array(len(entries))
	for _, e := range entries {
		r.w.Array(6)
		r.w.Int(e.id)
		r.w.Int(e.at.Unix())
		r.w.Int(e.took.Microseconds())
		r.w.Array(len(e.args))
		for _, arg := range e.args {
			r.w.BulkString(arg)
		}
		r.w.BulkString("")
		r.w.BulkString("")
	}
}

func latencyCommand(r *request) error {
	switch r.word(1) {
	case "LATEST", "HISTORY":
		r.w.Array(0)
	case "RESET":
		r.w.Int(0)
	case "DOCTOR":
		r.w.Verbatim("Latency is not sampled by this server: see SLOWLOG.\n")
	case "HELP":
		return help(r, "DOCTOR", "HISTORY <event>", "LATEST", "RESET [<event> ...]")
	default:
		return errSubcommand(r)
	}
	return nil
}

func debugCommand(r *request) error {
	switch sub := r.word(1); {
	case sub == "SLEEP" && len(r.args) == 3:
		seconds, err := r.float(2)
		if err != nil || seconds < 0 || seconds > 60 {
			return replyError(
				"ERR DEBUG SLEEP takes 0 to 60 seconds, and stops this connection only",
			)
		}
		time.Sleep(time.Duration(seconds * float64(time.Second)))
	case sub == "ACCEPT-CLOCK" && len(r.args) == 2:
		r.s.acceptClock.Store(true)
	case sub == "SET-ACTIVE-EXPIRE" && len(r.args) == 3, sub == "JMAP":
	case sub == "HELP":
		return help(r, "ACCEPT-CLOCK: after a jump, expired rows are deleted by the present time",
			"SLEEP <seconds>", "SET-ACTIVE-EXPIRE <0|1>: accepted, without an effect")
	default:
		return errSubcommand(r)
	}
	return r.ok(nil)
}

func memoryCommand(r *request) error {
	switch sub := r.word(1); {
	case sub == "USAGE" && (len(r.args) == 3 || len(r.args) == 5 && r.is(3, "samples")):
		row, err := r.sp.Load(r.args[2])
		if err != nil {
			return err
		}
		if row.Type == 0 {
			r.w.Null()
			return nil
		}
		n, err := r.sp.Bytes(r.args[2], &row)
		r.w.Int(n)
		return err
	case sub == "DOCTOR" && len(r.args) == 2:
		r.w.Verbatim("Memory of the store is bounded by --cache.\n")
	case sub == "PURGE" && len(r.args) == 2:
		r.w.Simple("OK")
	case sub == "HELP":
		return help(r, "DOCTOR", "PURGE", "USAGE <key> [SAMPLES <count>]")
	default:
		return errSubcommand(r)
	}
	return nil
}

func lolwutCommand(r *request) error {
	r.w.Verbatim("Ebb and flow.\nRedis ver. " + redisVersion + "\n")
	return nil
}

// storeBytes returns the size of the store on disk: main file and log.
func (s *Server) storeBytes() (n int64) {
	files, _ := filepath.Glob(filepath.Join(s.o.Dir, StoreFile+"*"))
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			n += info.Size()
		}
	}
	return n
}

func oneIf(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// storeStats returns the numbers of the store by the name that INFO gives them.
func storeStats(st kv.Stats, b *strings.Builder) {
	for _, row := range []struct {
		name string
		n    int64
	}{
		{"page_size", int64(st.PageSize)},
		{"file_bytes", st.FileBytes},
		{"log_bytes", st.LogBytes},
		{"free_bytes", st.FreeBytes},
		{"cache_bytes", st.FrameBytes},
		{"cache_limit_bytes", st.CacheBytes},
		{"commits", int64(st.Commits)},
		{"log_writes", int64(st.Groups)},
		{"checkpoints", int64(st.Checkpoints)},
		{"readers", int64(st.Readers)},
		{"clock_steps", int64(st.ClockSteps)},
		{"clock_jumped", oneIf(st.ClockJumped)},
	} {
		b.WriteString("ebb_" + row.name + ":" + formatInt(row.n) + "\r\n")
	}
}
