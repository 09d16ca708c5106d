package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// redisNames are the names that Redis's configuration has for options of ours, where they differ.
var redisNames = map[string]string{
	"loglevel": "log-level",
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
	port := ""
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
		case "port", "tls-port":
			port = value
			continue
		}
		if err := f.configure(set, given, name, value); err != nil {
			return fmt.Errorf("%s, line %d: %w", path, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
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

// addressesOf joins the hosts of bind with a port. A host with a minus is optional in Redis.
func addressesOf(bind []string, port string) (addresses []string) {
	if len(bind) == 0 {
		bind = []string{"127.0.0.1"}
	}
	if port == "" {
		port = "6379"
	}
	for _, host := range bind {
		if host = strings.TrimPrefix(host, "-"); host == "*" {
			host = ""
		}
		addresses = append(addresses, net.JoinHostPort(host, port))
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
	case "timeout":
		value = strings.TrimSuffix(value, "s") + "s" // a number of seconds
	case "maxmemory":
		return errors.New("there is no eviction: cache bounds the memory, max-bytes the store")
	}
	if own, ok := redisNames[name]; ok {
		name = own
	}
	if name == "config" || name == "version" || name == "help" {
		return fmt.Errorf("%s is an option of the command line only", name)
	}
	if set.Lookup(name) == nil {
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
