package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/ebbkv/ebb/cmd/ebbd/server"
)

func main() {
	// The first signal ends the server gracefully, the second one has its usual force.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program but for the process around it; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "check" {
		return runCheck(ctx, args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "backup" {
		return runBackup(ctx, args[1:], stdout, stderr)
	}
	if len(args) == 1 && (args[0] == "help" || args[0] == "version") {
		args = []string{"--" + args[0]}
	}
	f, err := parseFlags(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	log := newLogger(f, stderr)
	if err == nil {
		err = serve(ctx, f, log)
		var wrong server.OptionError
		if err == nil {
			return 0
		} else if !errors.As(err, &wrong) {
			log.Error("ebbd ends", "error", err)
			return 1
		}
	}
	fmt.Fprintf(stderr, "ebbd: %v\nebbd --help lists the options\n", err)
	return 2
}

func newLogger(f flags, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: f.logLevel}
	if f.jsonLogs {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// serve runs the server until ctx ends, a client sends SHUTDOWN or a listener fails.
func serve(ctx context.Context, f flags, log *slog.Logger) error {
	if err := os.MkdirAll(f.options.Dir, 0o700); err != nil {
		return err
	}
	if len(f.ignored) > 0 {
		log.Warn("parameters of Redis without effect here", "names", strings.Join(f.ignored, " "))
	}
	f.options.Logger = log
	s, err := server.Open(f.options)
	if err != nil {
		return err
	}
	failed := make(chan error, len(f.addresses)+1)
	if f.metrics != "" {
		l, err := net.Listen("tcp", f.metrics)
		if err != nil {
			return errors.Join(err, shutdown(s))
		}
		log.Info("metrics", "address", l.Addr().String())
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", s.Metrics())
		web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
		defer web.Close()
		go func() { failed <- web.Serve(l) }()
	}
	for _, addr := range f.addresses {
		addr, optional := strings.CutPrefix(addr, "-")
		l, err := net.Listen("tcp", addr)
		if optional && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
			log.Warn("this machine does not have an address that is optional", "error", err)
			continue
		}
		if err != nil {
			return errors.Join(err, shutdown(s))
		}
		log.Info("ready", "address", l.Addr().String(), "dir", f.options.Dir,
			"appendfsync", f.options.AppendFsync, "tls", f.options.TLS != nil)
		go func() { failed <- s.Serve(l) }()
	}
	var cause error
	select {
	case <-ctx.Done():
		log.Info("signal: ending")
	case <-s.Stopped():
		log.Info("SHUTDOWN: ending")
	case cause = <-failed:
	}
	return errors.Join(cause, shutdown(s))
}

// shutdownTime is how long clients get for their last replies.
const shutdownTime = 10 * time.Second

func shutdown(s *server.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	return s.Shutdown(ctx)
}
