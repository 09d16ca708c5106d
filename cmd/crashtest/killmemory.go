package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// With kill -memory a process is not killed from outside: from a random moment on it has little
// address space left, and a goroutine beside its work uses that up. The runtime then ends the
// process wherever the others happen to be, or a call of the engine's is refused memory and says
// so.

// hunger is what a child receives: when it begins, and how many bytes are left then.
type hunger struct {
	after time.Duration
	left  uint64
}

// mostLeft bounds hunger.left. The heap takes address space in pieces of 64 MiB.
const mostLeft = 96 << 20

func (h hunger) args() []string {
	return []string{h.after.String(), strconv.FormatUint(h.left, 10)}
}

func parseHunger(args []string) (h hunger, err error) {
	if h.after, err = time.ParseDuration(args[0]); err != nil {
		return h, err
	}
	h.left, err = strconv.ParseUint(args[1], 10, 64)
	return h, err
}

// head keeps the beginning of what a child says on standard error: a runtime that ends lists all
// goroutines.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	const most = 4 << 10
	if room := most - h.Len(); room > 0 {
		h.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// noMemory are the words of the runtime, and of the system, for what a child is meant to die of.
var noMemory = []string{
	"out of memory",
	"cannot allocate memory",
	"failed to create new OS thread",
	"pthread_create failed",
}

// starved judges how a child ended: by the runtime, or with an error of the engine's.
func (r *killReport) starved(end *os.ProcessState, said string) error {
	for _, words := range noMemory {
		if !strings.Contains(said, words) {
			continue
		}
		switch {
		case end.ExitCode() == 2 && !strings.Contains(said, "panic:"):
			r.OutOfMemory++
			return nil
		case end.ExitCode() == 1:
			r.Refused++
			return nil
		}
	}
	return fmt.Errorf("child without memory ended by itself: %v: %s", end, said)
}
