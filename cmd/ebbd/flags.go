package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ebbkv/ebb/cmd/ebbd/server"
)

// version is set by the linker. Without, it is that of the module, or of its commit, if the build
// knows one.
var version = buildVersion(debug.ReadBuildInfo())

func buildVersion(info *debug.BuildInfo, ok bool) string {
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "dev"
	}
	return info.Main.Version
}

// flags are the parsed options.
type flags struct {
	addresses []string
	options   server.Options
	metrics   string // address; "": none
	jsonLogs  bool
	logLevel  slog.Level
	ignored   []string // names in the configuration that have no effect
}

const usage = `ebbd serves Redis clients (RESP2 and RESP3) from one Ebb store.

Usage:
  ebbd [options]
  ebbd backup [options] FILE  makes a store of a running server's data
  ebbd check [options]        verifies the store of a server that is down

Examples:
  ebbd                                              data in ./data, port 6379 of this machine
  ebbd --dir /var/lib/ebbd --addr 0.0.0.0:6379 --requirepass-file /etc/ebbd/password
  ebbd --dir data --port 6380
  ebbd --appendfsync everysec --cache 2GiB          up to a second of writes may be lost in a crash
  redis-cli -p 6379 set greeting hello              "OK" comes when the value is on disk

Options:
`

// texts are the options that parseFlags turns into something else.
type texts struct {
	cache, maxBytes, page, bulk, replies  *size
	passwordFile, certificate, key, level string
	authorities, authClients              string
	port                                  uint16
	config                                string
	showVersion, help                     bool
}

func (f *flags) register(set *pflag.FlagSet) *texts {
	o, t := &f.options, &texts{}
	set.StringVar(&o.Dir, "dir", "data", "`directory` of the store, created if absent")
	set.StringVar(&o.BackupDir, "backup-dir", "",
		"`directory` of the backups that SAVE and BGSAVE make while the server runs")
	set.StringSliceVar(&f.addresses, "addr", []string{"127.0.0.1:6379"},
		"`host:port` to listen on; may be repeated; one with a minus before it may be absent")
	set.Var((*port)(&t.port), "port", "`port` to listen on at 127.0.0.1, short for --addr")
	set.StringVar(&o.AppendFsync, "appendfsync", "always",
		"when writes are synced: always (before the reply), everysec, no")
	set.StringVar(&o.Password, "requirepass", "",
		"`password` of the default user; other users see it in ps")
	set.StringVar(&t.passwordFile, "requirepass-file", "", "`file` with the password in its first line")
	set.IntVar(&o.MaxClients, "maxclients", 10000, "most connections at the same time")
	set.IntVar(&o.Databases, "databases", 16, "number of databases for SELECT")
	set.Var((*seconds)(&o.Timeout), "timeout",
		"idle `time` after which a client is disconnected, seconds or such as 5m; 0: never")
	t.cache = sizeFlag(set, "cache", "", "memory for pages of the store, such as 512MiB; default: "+
		"384MiB, or a quarter of the memory of the machine if that is less")
	t.maxBytes = sizeFlag(set, "max-bytes", "",
		"bound on the size of the store, such as 10GiB; default: none")
	t.page = sizeFlag(set, "page-size", "", "page size of a new store, 4KiB to 64KiB: keys are at "+
		"most a quarter of it; default: 16KiB")
	t.bulk = sizeFlag(set, "proto-max-bulk-len", "512MiB",
		"longest argument of a command, and longest string")
	t.replies = sizeFlag(set, "max-replies", "256MiB",
		"most replies of one client that wait in memory: more disconnect it")
	set.StringVar(&t.certificate, "tls-cert-file", "",
		"PEM `file` with the certificate: the addresses take TLS only")
	set.StringVar(&t.key, "tls-key-file", "", "PEM `file` with the key of the certificate")
	set.StringVar(&t.authorities, "tls-ca-cert-file", "",
		"PEM `file` of authorities: clients need a certificate of one")
	set.StringVar(&t.authClients, "tls-auth-clients", "yes",
		"with --tls-ca-cert-file, whether clients need a certificate: yes, no, optional")
	set.StringVar(&f.metrics, "metrics", "", "`host:port` that answers GET /metrics, for Prometheus")
	set.StringVar(&t.config, "config", "",
		"`file` in the format of redis.conf; options of the command line count more")
	set.BoolVar(&f.jsonLogs, "json", false, "logs as JSON")
	set.StringVar(&t.level, "log-level", "info", "debug, info, warn or error")
	set.BoolVar(&t.showVersion, "version", false, "print the version")
	set.BoolVarP(&t.help, "help", "h", false, "print this")
	set.Usage = func() {}
	return t
}

func parseFlags(args []string, stdout io.Writer) (f flags, err error) {
	set := pflag.NewFlagSet("ebbd", pflag.ContinueOnError)
	set.SortFlags = false
	t := f.register(set)
	if err := set.Parse(args); err != nil {
		return f, err
	}
	o := &f.options
	switch {
	case t.help:
		fmt.Fprint(stdout, usage+set.FlagUsages())
		return f, pflag.ErrHelp
	case t.showVersion:
		fmt.Fprintln(stdout, "ebbd", version)
		return f, pflag.ErrHelp
	case set.NArg() > 0:
		return f, unexpected(set.Arg(0))
	}
	if set.Changed("port") && !set.Changed("addr") {
		f.addresses = addressesOf(nil, fmt.Sprint(t.port))
	}
	if t.config != "" {
		if err := f.readConfig(set, t.config); err != nil {
			return f, err
		}
	}
	if o.MaxClients < 1 || o.Databases < 1 || o.Databases > 1024 || o.Timeout < 0 {
		return f, errors.New(
			"--maxclients and --databases (at most 1024) must be positive, --timeout not negative",
		)
	}
	for _, address := range append(f.addresses, f.metrics) {
		address = strings.TrimPrefix(address, "-")
		if _, _, err := net.SplitHostPort(address); err != nil && address != "" {
			return f, fmt.Errorf("%q is no address, as 127.0.0.1:6379, [::1]:6379 or :6379", address)
		}
	}
	o.CacheBytes, o.MaxBytes, o.PageSize = t.cache.n, t.maxBytes.n, int(t.page.n)
	o.MaxBulk, o.MaxReplies, o.Version = int(min(t.bulk.n, 1<<30-64)), int(t.replies.n), version
	if err := f.logLevel.UnmarshalText([]byte(t.level)); err != nil {
		return f, fmt.Errorf("--log-level: %w", err)
	}
	return f, f.readFiles(t)
}

// unexpected is the error for an argument that is no option.
func unexpected(arg string) error {
	if info, err := os.Stat(arg); err == nil && !info.IsDir() {
		return fmt.Errorf("unexpected argument %q: a configuration is read with --config %s", arg, arg)
	} else if err == nil {
		return fmt.Errorf("unexpected argument %q: the directory of the store is --dir %s", arg, arg)
	}
	return fmt.Errorf("unexpected argument %q: commands are check and backup, all else begins with --", arg)
}

// readFiles reads the password and the certificate.
func (f *flags) readFiles(t *texts) error {
	o := &f.options
	if t.passwordFile != "" {
		password, err := readPassword(t.passwordFile)
		if err != nil {
			return err
		}
		o.Password = password
	}
	if t.certificate != "" || t.key != "" {
		pair, err := tls.LoadX509KeyPair(t.certificate, t.key)
		if err != nil {
			return fmt.Errorf("--tls-cert-file and --tls-key-file: %w", err)
		}
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	if t.authorities == "" {
		return nil
	}
	auth, ok := map[string]tls.ClientAuthType{
		"yes": tls.RequireAndVerifyClientCert, "no": tls.NoClientCert,
		"optional": tls.VerifyClientCertIfGiven,
	}[t.authClients]
	switch {
	case o.TLS == nil:
		return errors.New("--tls-ca-cert-file needs --tls-cert-file and --tls-key-file")
	case !ok:
		return fmt.Errorf("--tls-auth-clients is %q: want yes, no or optional", t.authClients)
	}
	o.TLS.ClientAuth = auth
	var err error
	o.TLS.ClientCAs, err = readAuthorities(t.authorities)
	return err
}

// readPassword reads the first line of a file.
func readPassword(path string) (string, error) {
	text, err := os.ReadFile(path)
	first, _, _ := strings.Cut(string(text), "\n")
	first = strings.TrimSuffix(first, "\r")
	if err == nil && first == "" { // it would be none, and the server open to all
		err = fmt.Errorf("--requirepass-file: the first line of %s is empty", path)
	}
	return first, err
}

// seconds is a flag of a duration, of which a number alone means seconds, as in Redis.
type seconds time.Duration

func (s *seconds) String() string { return fmt.Sprint(time.Duration(*s).Seconds()) }
func (s *seconds) Type() string   { return "time" }

// Set parses 300, 5m or 1h30m.
func (s *seconds) Set(text string) error {
	if _, err := strconv.ParseUint(text, 10, 64); err == nil {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	*s = seconds(d)
	return err
}

// port is a flag of a TCP port.
type port uint16

func (p *port) String() string { return fmt.Sprint(uint16(*p)) }
func (p *port) Type() string   { return "port" }

// Set parses 0 to 65535.
func (p *port) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return errors.New("want a number from 0 to 65535")
	}
	*p = port(n)
	return nil
}

// size is a flag of bytes with a unit.
type size struct {
	n    int64
	text string
}

func sizeFlag(set *pflag.FlagSet, name, value, usage string) *size {
	s := &size{}
	if value != "" {
		_ = s.Set(value) // the defaults are right
	}
	set.Var(s, name, usage)
	return s
}

func (s *size) String() string { return s.text }
func (s *size) Type() string   { return "size" }

// Set parses a number of bytes: 1048576, 512KiB, 10MiB, 2GiB.
func (s *size) Set(text string) error {
	units := []struct {
		suffix string
		shift  int
	}{
		{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"kb", 10}, {"mb", 20}, {"gb", 30}, {"", 0},
	}
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > 1<<62>>u.shift {
			break
		}
		s.n, s.text = n<<u.shift, text
		return nil
	}
	return errors.New("want a number of bytes with KiB, MiB or GiB, such as 512MiB")
}
