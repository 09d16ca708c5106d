//go:build !linux

package main

import (
	"io"
	"os"
)

func copyData(out, in *os.File) error {
	_, err := io.Copy(out, in)
	return err
}
