package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ebbkv/ebb/cmd/ebbd/server"
)

// redisNames are the names that Redis's configuration has for options of ours, where they differ.
var redisNames = map[string]string{
	"loglevel": "log-level",
}

// ignoredNames are parameters of Redis about what an Ebb store does not have: the files, memory and
// encodings of Redis, and replicas. A name with an asterisk stands for all that begin so.
var ignoredNames = []string{
	"acllog-max-len", "activedefrag", "active-*", "activerehashing", "always-show-logo", "aof-*",
	"appenddirname", "appendfilename", "auto-aof-*", "client-output-buffer-limit", "dbfilename",
	"disable-thp", "dynamic-hz", "hash-max-*", "hll-*", "hz", "io-threads*", "jemalloc-*",
	"latency-monitor-threshold", "lazyfree-*", "list-*", "maxmemory-samples", "maxmemory-eviction-*",
	"no-appendfsync-on-rewrite", "oom-score-adj*", "proc-title-template", "rdb*", "repl-*", "replica-*",
	"set-max-*", "set-proc-title", "stop-writes-on-bgsave-error", "stream-*", "tcp-backlog",
	"tcp-keepalive", "zset-max-*",
}

func withoutEffect(name string) bool {
	return slices.ContainsFunc(ignoredNames, func(ignored string) bool {
		start, many := strings.CutSuffix(ignored, "*")
		return name == ignored || many && strings.HasPrefix(name, start)
	})
}

// redisLevels are the levels of Redis under other names.
var redisLevels = map[string]string{
	"verbose": "debug", "notice": "info", "warning": "warn", "nothing": "error",
}

// readConfig takes what the command line leaves open from a file in the format of redis.conf: a name
// and a value in each line, # begins a comment line. Names are those of the options, or of parameters
// that CONFIG SET takes.
func (f *flags) readConfig(set *pflag.FlagSet, path string) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	given := map[string]bool{}
	set.Visit(func(flag *pflag.Flag) { given[flag.Name] = true })
	var bind []string
	port, tlsPort := "", ""
	var wrong []error
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		name, value, ok := configLine(lines.Text())
		if !ok {
			continue
		}
		switch name {
		case "bind":
			bind = strings.Fields(value)
			continue
		case "port":
			port = value
			continue
		case "tls-port":
			tlsPort = value
			continue
		}
		if err := f.configure(set, given, name, value); err != nil {
			wrong = append(wrong, fmt.Errorf("%s, line %d: %w", path, n, err))
		}
	}
	if err := lines.Err(); err != nil {
		wrong = append(wrong, fmt.Errorf("%s: %w", path, err))
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	if tlsPort != "" && tlsPort != "0" {
		if port != "" && port != "0" {
			return fmt.Errorf("%s: all addresses take TLS, or none: set port or tls-port to 0", path)
		}
		if port = tlsPort; set.Lookup("tls-cert-file").Value.String() == "" {
			return fmt.Errorf("%s: tls-port needs tls-cert-file and tls-key-file", path)
		}
	}
	if given["port"] {
		port = set.Lookup("port").Value.String()
	}
	if (len(bind) > 0 || port != "") && !given["addr"] {
		f.addresses = addressesOf(bind, port)
	}
	return nil
}

// configLine splits a line into a name in lower case and a value without quotes; ok false: it is
// empty or a comment.
func configLine(text string) (name, value string, ok bool) {
	text = strings.TrimSpace(text)
	if text == "" || text[0] == '#' {
		return "", "", false
	}
	name, value, _ = strings.Cut(text, " ")
	value = strings.TrimSpace(value)
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		value = value[1 : len(value)-1]
	}
	return strings.ToLower(name), value, true
}

// addressesOf joins the hosts of bind with a port. An address keeps the minus of its host.
func addressesOf(bind []string, port string) (addresses []string) {
	if len(bind) == 0 {
		bind = []string{"127.0.0.1"}
	}
	if port == "" {
		port = "6379"
	}
	for _, host := range bind {
		host, optional := strings.CutPrefix(host, "-")
		if host == "*" {
			host = ""
		}
		address := net.JoinHostPort(host, port)
		if optional {
			address = "-" + address
		}
		addresses = append(addresses, address)
	}
	return addresses
}

// configure sets one option, or one parameter of the server.
func (f *flags) configure(set *pflag.FlagSet, given map[string]bool, name, value string) error {
	switch name {
	case "appendonly":
		if value != "yes" {
			return errors.New("appendonly is always yes; see appendfsync")
		}
		return nil
	case "save":
		return nil // there are no snapshots to take: commits are on disk
	case "daemonize", "supervised":
		if value != "no" {
			return fmt.Errorf("%s is always no: a supervisor such as systemd starts ebbd", name)
		}
		return nil
	case "logfile", "pidfile", "unixsocket", "include", "user", "aclfile", "rename-command",
		"loadmodule", "replicaof", "slaveof", "masterauth":
		if value == "" {
			return nil
		}
		if name == "logfile" {
			return errors.New("logfile is not there: logs go to standard error")
		}
		return fmt.Errorf("%s is not there", name)
	case "loglevel":
		if level, ok := redisLevels[value]; ok {
			value = level
		}
	case "maxmemory":
		if value == "0" {
			return nil
		}
		return errors.New("there is no eviction: cache bounds the memory, max-bytes the store")
	}
	if own, ok := redisNames[name]; ok {
		name = own
	}
	if name == "config" || name == "version" || name == "help" {
		return fmt.Errorf("%s is an option of the command line only", name)
	}
	if withoutEffect(name) {
		f.ignored = append(f.ignored, name)
		return nil
	}
	if set.Lookup(name) == nil {
		if !server.IsParameter(name) {
			return fmt.Errorf("no parameter has the name %q", name)
		}
		if f.options.Parameters == nil {
			f.options.Parameters = map[string]string{}
		}
		f.options.Parameters[name] = value
		return nil
	}
	if given[name] {
		return nil
	}
	return set.Set(name, value)
}
