package main

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/cespare/xxhash/v2"
)

// copyImage copies a file and leaves holes where there are only zeros.
func copyImage(to, from string) (err error) {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	size, err := eachPart(from, func(part []byte, off int64) error {
		if bytes.Count(part, []byte{0}) == len(part) {
			return nil
		}
		_, err := out.WriteAt(part, off)
		return err
	})
	if err != nil {
		return err
	}
	return out.Truncate(size)
}

func sameImages(a, b string) (bool, error) {
	digest := func(name string) (uint64, error) {
		d := xxhash.New()
		_, err := eachPart(name, func(part []byte, _ int64) error { _, err := d.Write(part); return err })
		return d.Sum64(), err
	}
	x, err1 := digest(a)
	y, err2 := digest(b)
	return x == y, errors.Join(err1, err2)
}

// eachPart reads a file from its begin to its end, and gives its size.
func eachPart(name string, do func(part []byte, off int64) error) (size int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(f, b)
		if n > 0 {
			if err := do(b[:n], size); err != nil {
				return size, err
			}
		}
		size += int64(n)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return size, nil
		case err != nil:
			return size, err
		}
	}
}
