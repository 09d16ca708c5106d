package main

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyData copies a file with its holes: a killed store may leave gigabytes of them. What has been
// written as zeros is written again, because a log whose space is not there yet would be slower
// than it was.
func copyData(out, in *os.File) error {
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := out.Truncate(info.Size()); err != nil {
		return err
	}
	for end := int64(0); ; {
		start, err := in.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // Nothing but a hole is left.
		}
		if err == nil {
			end, err = in.Seek(start, unix.SEEK_HOLE)
		}
		if err != nil {
			return err
		}
		part := io.NewSectionReader(in, start, end-start)
		if _, err := io.Copy(io.NewOffsetWriter(out, start), part); err != nil {
			return err
		}
	}
}
