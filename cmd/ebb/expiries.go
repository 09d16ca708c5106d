package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// Files have no expiry. What export takes out of a store with --expiries, and import puts in, is a
// line of JSON for each file whose key has one: {"file": its slash-separated path below the
// directory, "expires": an instant, as the command shows and takes it}. A path that is no UTF-8,
// which a JSON string cannot hold, is {"file_base64": ...} instead.
type expiryLine struct {
	File    string `json:"file,omitempty"`
	Base64  []byte `json:"file_base64,omitempty"`
	Expires string `json:"expires"`
}

func newExpiryLine(file string, at time.Time) expiryLine {
	if !utf8.ValidString(file) {
		return expiryLine{Base64: []byte(file), Expires: showInstant(at)}
	}
	return expiryLine{File: file, Expires: showInstant(at)}
}

// file gives the path, in whichever way it is written.
func (l expiryLine) file() (string, error) {
	switch {
	case l.File != "" && len(l.Base64) > 0:
		return "", errors.New("it names two files")
	case l.File == "" && len(l.Base64) == 0:
		return "", errors.New("it names no file")
	}
	return l.File + string(l.Base64), nil
}

// expiryWriter writes such lines. Its zero value drops them.
type expiryWriter struct {
	file *os.File
	buf  *bufio.Writer
}

// createExpiries makes the file of --expiries at path; without a path, lines are dropped.
func createExpiries(path, dir string, own ownFiles, overwrite bool) (w expiryWriter, err error) {
	if path == "" {
		return expiryWriter{}, nil
	}
	f, err := createBeside("--expiries", path, dir, own, overwrite)
	if err != nil {
		return expiryWriter{}, err
	}
	return expiryWriter{f, bufio.NewWriter(f)}, nil
}

// createBeside makes a file that goes with the directory of an export, and must not lie below it:
// import would take it for one of the values. Errors name the flag, and are not wrapped: a hint about
// the store would mislead.
func createBeside(flagName, path, dir string, own ownFiles, overwrite bool) (*os.File, error) {
	below, err := liesBelow(path, dir)
	if err == nil && below {
		err = fmt.Errorf("%s lies below %s, among the files of values", path, dir)
	}
	if info, statErr := os.Stat(path); statErr == nil && own.has(info) {
		err = fmt.Errorf("%s: %w", path, errOwnFile)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %v", flagName, err)
	}
	flag := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if !overwrite {
		flag |= os.O_EXCL
	}
	f, err := os.OpenFile(path, flag, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s: %s exists; --overwrite replaces it", flagName, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %v", flagName, err)
	}
	return f, nil
}

func liesBelow(path, dir string) (bool, error) {
	path, err := resolve(path)
	if err != nil {
		return false, err
	}
	if dir, err = resolve(dir); err != nil {
		return false, err
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel), nil // without a way from one to the other it is elsewhere
}

// resolve gives the absolute path without symbolic links, as far as it is there.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for there := path; ; there = filepath.Dir(there) {
		real, err := filepath.EvalSymlinks(there)
		switch {
		case err == nil:
			return filepath.Join(real, path[len(there):]), nil
		case !errors.Is(err, fs.ErrNotExist) || there == filepath.Dir(there):
			return "", err
		}
	}
}

// add writes a line.
func (w expiryWriter) add(file string, at time.Time) error {
	if w.file == nil {
		return nil
	}
	line, err := json.Marshal(newExpiryLine(file, at))
	if err == nil {
		_, err = w.buf.Write(append(line, '\n'))
	}
	return w.named(err)
}

// close ends the file. Errors name it.
func (w expiryWriter) close() error {
	if w.file == nil {
		return nil
	}
	return w.named(errors.Join(w.buf.Flush(), w.file.Close()))
}

func (w expiryWriter) named(err error) error {
	if err != nil {
		return fmt.Errorf("--expiries: %v", err)
	}
	return nil
}

// readExpiries reads what export has written: which file's key expires when.
func readExpiries(path string) (map[string]time.Time, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--expiries: %v", err)
	}
	defer f.Close()
	all := map[string]time.Time{}
	lines := bufio.NewReader(f)
	for no := 1; ; no++ {
		text, err := lines.ReadString('\n')
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("--expiries: %v", err)
		}
		if strings.TrimSpace(text) != "" {
			file, at, err := readExpiry(text)
			if err != nil {
				return nil, fmt.Errorf("--expiries: %s, line %d: %v", path, no, err)
			}
			if before, named := all[file]; named && !before.Equal(at) {
				return nil, fmt.Errorf(
					"--expiries: %s, line %d: the file has another expiry in a line before", path, no)
			}
			all[file] = at
		}
		if err == io.EOF {
			return all, nil
		}
	}
}

func readExpiry(text string) (file string, at time.Time, err error) {
	var line expiryLine
	if err := json.Unmarshal([]byte(text), &line); err != nil {
		return "", time.Time{}, err
	}
	var expires instant
	file, err = line.file()
	if err == nil {
		err = expires.Set(line.Expires)
	}
	return file, expires.Time, err
}
