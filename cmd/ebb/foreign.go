package main

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/ebbkv/ebb/kv"
)

// What a file is that was given in place of another kind of file.
var (
	errIsBackup = errors.New("the file is a backup of an Ebb store")
	errIsBolt   = errors.New("the file is a store of bbolt")
	errIsStore  = errors.New("the file is an Ebb store")
)

// signatures are the bytes by which a file is known.
var signatures = []struct {
	off  int
	text string
	is   error
}{
	{0, "EBBBAK\x00", errIsBackup},
	{24, "Ebb kv\r\n", errIsStore},
	{16, "\xed\xda\x0c\xed", errIsBolt}, // on machines that store the low byte last
}

// recognized marks err, which says that the file at path is not what was expected, with what it is.
func recognized(err error, path string) error {
	f, openErr := os.Open(path)
	if openErr != nil {
		return err
	}
	defer f.Close()
	var head [32]byte
	if _, readErr := io.ReadFull(f, head[:]); readErr != nil {
		return err
	}
	for _, s := range signatures {
		if bytes.HasPrefix(head[s.off:], []byte(s.text)) {
			return marked{err, s.is}
		}
	}
	return err
}

// notAStore is recognized for an error of opening a store.
func notAStore(err error, path string) error {
	if errors.Is(err, kv.ErrNotDatabase) {
		return recognized(err, path)
	}
	return err
}
