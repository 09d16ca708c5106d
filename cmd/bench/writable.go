package main

import (
	"errors"
	"io/fs"
	"os"
)

// writable finds out whether a file can be written, before hours go into what is to be in it. "" is
// no file. Nothing stays of the attempt: what is there keeps its content, and what was not there is
// not there afterwards.
func writable(name string) error {
	if name == "" {
		return nil
	}
	info, err := os.Stat(name)
	if err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return nil // Its reader would take the end of the attempt for the end of the results.
	}
	made := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	err = f.Close()
	if made {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}
