package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// openPty opens a pseudo terminal of so many lines and columns. It skips the test where there are none.
func openPty(t *testing.T, lines, columns uint16) (ours, theirs *os.File) {
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
	size := [4]uint16{lines, columns}
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
	ours, theirs := openPty(t, 24, 80)
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), self, "shell", storePath(t))
	command.Env = append(os.Environ(), asCommand+"=1", "NO_COLOR=1", historyVariable+"=")
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

// typist types at a pseudo terminal on which a command runs, and reads what the terminal shows.
type typist struct {
	t       *testing.T
	ours    *os.File
	command *exec.Cmd
	mu      sync.Mutex
	shown   bytes.Buffer
}

// startTyping starts the command on a pseudo terminal of 24 lines, with these variables too.
func startTyping(t *testing.T, env []string, args ...string) *typist {
	t.Helper()
	return startTypingOn(t, 24, 80, env, args...)
}

func startTypingOn(t *testing.T, lines, columns uint16, env []string, args ...string) *typist {
	t.Helper()
	ours, theirs := openPty(t, lines, columns)
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), self, args...)
	usual := []string{asCommand + "=1", "NO_COLOR=", "TERM=xterm", historyVariable + "="}
	command.Env = slices.Concat(os.Environ(), usual, env)
	command.Stdin, command.Stdout, command.Stderr = theirs, theirs, theirs
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, command.Start())
	require.NoError(t, theirs.Close())
	y := &typist{t: t, ours: ours, command: command}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := ours.Read(b)
			y.mu.Lock()
			y.shown.Write(b[:n])
			y.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return y
}

// expect waits for text, and forgets all up to its end.
func (y *typist) expect(text string) {
	y.t.Helper()
	require.Eventually(y.t, func() bool {
		y.mu.Lock()
		defer y.mu.Unlock()
		_, behind, found := strings.Cut(y.shown.String(), text)
		if found {
			y.shown.Reset()
			y.shown.WriteString(behind)
		}
		return found
	}, 20*time.Second, time.Millisecond, "%q", text)
}

func (y *typist) enter(text string) {
	y.t.Helper()
	_, err := io.WriteString(y.ours, text)
	require.NoError(y.t, err)
}

// TestShellOnATerminal types at a pseudo terminal: prompt, completion, a page of output, an error that
// does not end it, Ctrl-C, and Ctrl-D.
func TestShellOnATerminal(t *testing.T) {
	s := storePath(t)
	for i := range 30 {
		good(t, "put", s, fmt.Sprintf("key%02d", i), "v")
	}
	y := startTyping(t, []string{"NO_COLOR=1"}, "shell", s)
	y.expect("test.ebb> ")
	y.enter("get key0\t")
	y.expect("key07")
	y.enter("3\r")
	y.expect("key03\tv")
	y.expect("test.ebb> ")
	y.enter("get nothing\r")
	y.expect("not found")
	y.expect("test.ebb> ")
	y.enter("begin\r")
	y.expect("test.ebb*> ")
	y.enter("scan\r")
	y.expect("key22\tv")
	y.expect(askMore)
	y.enter("q")
	y.expect("test.ebb*> ")
	// Ctrl-C ended the shell, and the transaction with it.
	y.enter("del key04\x03get key05\r")
	y.expect("key05\tv")
	y.expect("test.ebb*> ")
	y.enter("\x04")
	y.expect("it is rolled back")
	require.NoError(t, y.command.Wait())
}

// TestTheHistoryIsThereInTheNextSession: it ended with each session.
func TestTheHistoryIsThereInTheNextSession(t *testing.T) {
	s, file := storePath(t), filepath.Join(t.TempDir(), "state", "history")
	good(t, "put", s, "greeting", "hello")
	for i, line := range []string{"get greeting\r", "\x1b[A\r"} { // then the arrow up
		y := startTyping(t, []string{"NO_COLOR=1", historyVariable + "=" + file}, "shell", s)
		y.expect("test.ebb> ")
		y.enter(line)
		y.expect("greeting\thello")
		y.expect("test.ebb> ")
		y.enter("\x04")
		require.NoError(t, y.command.Wait(), "session %d", i)
	}
	y := startTyping(t, []string{"NO_COLOR=1", historyVariable + "=" + file}, "shell", s, "--no-history")
	y.expect("test.ebb> ")
	y.enter("count\r")
	y.expect("1\r\n")
	y.expect("test.ebb> ")
	y.enter("\x04")
	require.NoError(t, y.command.Wait())
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "get greeting\n", string(kept))
}

// TestColoursAreForTerminals: rows and errors have them on one, and none with NO_COLOR. The other
// tests of the command read pipes, byte by byte.
func TestColoursAreForTerminals(t *testing.T) {
	s := storePath(t)
	good(t, "put", s, "a", "1", "--expire-at", "2100-01-02T03:04:05Z")
	shows := func(want string, env []string, args ...string) {
		t.Helper()
		y := startTyping(t, env, args...)
		y.expect(want)
		_ = y.command.Wait() // its code is another test's
	}
	scan := []string{"scan", s, "--expiry"}
	shows("\x1b[36ma\x1b[0m\t1\t\x1b[33m2100-01-02T03:04:05Z\x1b[0m\r\n", nil, scan...)
	shows("a\t1\t2100-01-02T03:04:05Z\r\n", []string{"NO_COLOR=1"}, scan...)
	shows("a\t1\t2100-01-02T03:04:05Z\r\n", []string{"TERM=dumb"}, scan...)
	shows("\x1b[33m2100-01-02T03:04:05Z\x1b[0m\t\x1b[36ma\x1b[0m", nil,
		"scan", s, "--expiring-before", "2200-01-01T00:00:00Z")
	shows("\x1b[31mebb:\x1b[0m get: not found", nil, "get", s, "b")
	shows("\x1b[32mno problems\x1b[0m", nil, "check", s)
	y := startTyping(t, nil, "shell", s)
	y.expect("\x1b[36mtest.ebb\x1b[0m> ")
	y.enter("scan\r")
	y.expect("\x1b[36ma\x1b[0m\t1\t\x1b[33m2100")
	y.expect("> ")
	y.enter("\x04")
	require.NoError(t, y.command.Wait())
}

// TestShellOnATerminalOfUnknownSize, as expect and some containers have it, put each character on a line
// of its own.
func TestShellOnATerminalOfUnknownSize(t *testing.T) {
	s := storePath(t)
	y := startTypingOn(t, 0, 0, []string{"NO_COLOR=1"}, "shell", s)
	y.expect("test.ebb> ")
	y.enter("count\r")
	y.expect("count\r\n0\r\n")
	y.expect("test.ebb> ")
	y.enter("\x04")
	require.NoError(t, y.command.Wait())
}

// TestAValueOnATerminalIsALine: the prompt stood behind it, and its bytes could move the cursor. In a
// pipe it is what was put, which the other tests hold.
func TestAValueOnATerminalIsALine(t *testing.T) {
	s := storePath(t)
	good(t, "put", s, "a", "hello")
	good(t, "put", s, "b", "two\n\x1b[2Jlines\n")
	for key, want := range map[string]string{"a": "hello\r\n", "b": "two\r\n\\x1b[2Jlines\r\n"} {
		y := startTyping(t, nil, "get", s, key)
		y.expect(want)
		require.NoError(t, y.command.Wait())
	}
}
