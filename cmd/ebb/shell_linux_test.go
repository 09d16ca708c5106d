package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// openPty opens a pseudo terminal of 24 lines. It skips the test where there are none.
func openPty(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminals: ", err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	control := func(request uintptr, arg unsafe.Pointer) {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, ours.Fd(), request, uintptr(arg))
		require.Zero(t, errno)
	}
	var number, locked int32
	size := [4]uint16{24, 80}
	control(syscall.TIOCSPTLCK, unsafe.Pointer(&locked))
	control(syscall.TIOCGPTN, unsafe.Pointer(&number))
	control(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = theirs.Close() })
	return ours, theirs
}

// TestSIGTERMEndsTheShellAtItsPrompt: the read of a terminal kept it alive until the second signal.
func TestSIGTERMEndsTheShellAtItsPrompt(t *testing.T) {
	ours, theirs := openPty(t)
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), self, "shell", storePath(t))
	command.Env = append(os.Environ(), asCommand+"=1", "NO_COLOR=1")
	command.Stdin, command.Stdout, command.Stderr = theirs, theirs, theirs
	require.NoError(t, command.Start())
	require.NoError(t, theirs.Close())
	shown := make([]byte, 1)
	_, err = ours.Read(shown) // the prompt
	require.NoError(t, err)
	require.NoError(t, command.Process.Signal(syscall.SIGTERM))
	require.Error(t, command.Wait())
	require.Equal(t, exitError, command.ProcessState.ExitCode())
}

// TestShellOnATerminal types at a pseudo terminal: prompt, completion, a page of output, an error that
// does not end it, and Ctrl-D.
func TestShellOnATerminal(t *testing.T) {
	ours, theirs := openPty(t)
	s := storePath(t)
	for i := range 30 {
		good(t, "put", s, fmt.Sprintf("key%02d", i), "v")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), self, "shell", s)
	command.Env = append(os.Environ(), asCommand+"=1", "NO_COLOR=1", "TERM=xterm")
	command.Stdin, command.Stdout, command.Stderr = theirs, theirs, theirs
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, command.Start())
	require.NoError(t, theirs.Close())
	var mu sync.Mutex
	var shown bytes.Buffer
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := ours.Read(b)
			mu.Lock()
			shown.Write(b[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	expect := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			_, behind, found := strings.Cut(shown.String(), text)
			if found {
				shown.Reset()
				shown.WriteString(behind)
			}
			return found
		}, 20*time.Second, time.Millisecond, "%s", text)
	}
	enter := func(text string) {
		_, err := io.WriteString(ours, text)
		require.NoError(t, err)
	}
	expect("test.ebb> ")
	enter("get key0\t")
	expect("key07")
	enter("3\r")
	expect("key03\tv")
	expect("test.ebb> ")
	enter("get nothing\r")
	expect("not found")
	expect("test.ebb> ")
	enter("begin\r")
	expect("test.ebb*> ")
	enter("scan\r")
	expect("key22\tv")
	expect(askMore)
	enter("q")
	expect("test.ebb*> ")
	enter("\x04")
	expect("it is rolled back")
	require.NoError(t, command.Wait())
}
