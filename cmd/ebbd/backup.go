package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ebbkv/ebb/kv"
)

const backupUsage = `ebbd backup makes a store of one moment of a running server's data.

The server goes on meanwhile. FILE is complete and verified before it appears; it must not
exist. Its directory is created. A server starts from it if its name is ebbd.ebb:
ebbd backup monday/ebbd.ebb, later ebbd --dir monday.

Usage:
  ebbd backup [options] FILE

Options:
`

// backupFlags are the options of ebbd backup.
type backupFlags struct {
	addr, passwordFile, ca string
	tls                    bool
}

func runBackup(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	set := pflag.NewFlagSet("ebbd backup", pflag.ContinueOnError)
	var f backupFlags
	var onPort port
	set.StringVar(&f.addr, "addr", "127.0.0.1:6379", "`host:port` of the server")
	set.Var(&onPort, "port", "`port` of the server at 127.0.0.1, short for --addr")
	set.StringVar(&f.passwordFile, "requirepass-file", "", "`file` with the password in its first line")
	set.BoolVar(&f.tls, "tls", false, "speak TLS")
	set.StringVar(&f.ca, "tls-ca-cert-file", "",
		"PEM `file` of the authorities that are trusted, with --tls; default: those of the system")
	set.Usage = func() {}
	err := set.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, backupUsage+set.FlagUsages())
		return 0
	case err == nil && set.NArg() != 1:
		err = errors.New("the name of one file is needed")
	}
	if err != nil {
		fmt.Fprintf(stderr, "ebbd: %v\nebbd backup --help lists the options\n", err)
		return 2
	}
	if set.Changed("port") && !set.Changed("addr") {
		f.addr = addressesOf(nil, onPort.String())[0]
	}
	if err := f.run(ctx, set.Arg(0)); err != nil {
		fmt.Fprintln(stderr, "ebbd: backup:", err)
		return 1
	}
	fmt.Fprintln(stdout, set.Arg(0))
	return 0
}

// run restores what the server sends.
func (f *backupFlags) run(ctx context.Context, path string) error {
	if _, err := os.Lstat(path); err == nil { // Restore would refuse it when the server has sent all.
		return fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	nc, err := f.dial(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
	r := bufio.NewReaderSize(nc, 64<<10)
	if f.passwordFile != "" {
		password, err := readPassword(f.passwordFile)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(nc, "*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n", len(password), password)
		if err != nil {
			return err
		}
		if _, err := replyLine(r, '+'); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(nc, "*1\r\n$10\r\nEBB.BACKUP\r\n"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return kv.Restore(ctx, path, &chunkReader{r: r})
}

func (f *backupFlags) dial(ctx context.Context) (net.Conn, error) {
	if !f.tls {
		return new(net.Dialer).DialContext(ctx, "tcp", f.addr)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		var err error
		if c.RootCAs, err = readAuthorities(f.ca); err != nil {
			return nil, err
		}
	}
	return (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", f.addr)
}

// readAuthorities reads the certificates of a PEM file.
func readAuthorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", path)
	}
	return pool, nil
}

// replyLine reads a line of the protocol that begins with kind, without it.
func replyLine(r *bufio.Reader, kind byte) (string, error) {
	line, err := r.ReadString('\n')
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", fmt.Errorf("the server has ended the connection: %w", err)
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" || line[0] != kind {
		return "", fmt.Errorf("the server says %q", line)
	}
	return line[1:], nil
}

// chunkReader reads bulk strings as one stream, which an empty one ends.
type chunkReader struct {
	r     *bufio.Reader
	left  int // of the present bulk string
	begun bool
	ended bool
}

func (c *chunkReader) Read(p []byte) (int, error) {
	if c.left == 0 && !c.ended {
		if c.begun {
			if _, err := c.r.Discard(2); err != nil {
				return 0, err
			}
		}
		text, err := replyLine(c.r, '$')
		if err != nil {
			return 0, err
		}
		if c.left, err = strconv.Atoi(text); err != nil || c.left < 0 {
			return 0, fmt.Errorf("the server says $%q", text)
		}
		c.begun, c.ended = true, c.left == 0
	}
	if c.ended {
		return 0, io.EOF
	}
	n, err := c.r.Read(p[:min(len(p), c.left)])
	c.left -= n
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
