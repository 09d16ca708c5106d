package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// loopWriter is a kill-child at work, and what it has said.
type loopWriter struct {
	child *exec.Cmd
	pipe  *os.File // what the child writes to, open for ourselves too
	begun chan struct{}
	marks chan progress
	ended chan struct{} // closed when the child is gone and all that it said was heard
	err   error         // why; set before that
}

// mark is written into the child's pipe: a reader of it has read all that the child reported
// before.
const mark = "mark"

// startWriter lets a child work on a new store. The store is there when startWriter returns.
func startWriter(store string, seed uint64) (*loopWriter, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	w := &loopWriter{
		pipe:  out,
		begun: make(chan struct{}),
		marks: make(chan progress),
		ended: make(chan struct{}),
	}
	w.child = exec.Command(self, "kill-child", store, strconv.FormatUint(seed, 10), "0")
	w.child.Stdout, w.child.Stderr = out, os.Stderr
	if err := w.child.Start(); err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	heard := make(chan error)
	go func() { heard <- w.listen(in) }()
	go func() {
		_ = w.child.Wait()
		_ = w.pipe.Close() // The listener reads to the end of what was said.
		w.err = errors.Join(fmt.Errorf("child ended: %v", w.child.ProcessState), <-heard, in.Close())
		close(w.ended)
	}()
	select {
	case <-w.begun:
		return w, nil
	case <-w.ended:
		return nil, w.err
	}
}

func (w *loopWriter) listen(in *os.File) error {
	var p progress
	var strange error
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if lines.Text() == mark {
			w.marks <- p
			continue
		}
		first := p.begun == 0
		if err := p.hear(lines.Text()); err != nil {
			strange = errors.Join(strange, err, w.child.Process.Kill())
		}
		if first && p.begun > 0 {
			close(w.begun)
		}
	}
	return strange
}

// said gives all that the child has said until now.
func (w *loopWriter) said() (progress, error) {
	if _, err := fmt.Fprintln(w.pipe, mark); err != nil {
		<-w.ended
		return progress{}, w.err
	}
	select {
	case p := <-w.marks:
		return p, nil
	case <-w.ended:
		return progress{}, w.err
	}
}

// stop kills the child.
func (w *loopWriter) stop() {
	_ = w.child.Process.Kill()
	<-w.ended
}
