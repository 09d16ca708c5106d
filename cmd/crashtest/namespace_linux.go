package main

import (
	"os"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownMounts is set in the environment of a process that has mounts of its own.
const ownMounts = "CRASHTEST_OWN_MOUNTS"

// isolateMounts starts a mode that mounts file systems again, in a mount namespace of its own: when
// the mode is killed, the kernel unmounts and detaches all that is left. Where that is not allowed,
// the mode goes on without.
func isolateMounts(args []string) {
	if len(args) == 0 || !slices.Contains([]string{"loopfs", "powercut"}, args[0]) ||
		os.Getenv(ownMounts) != "" || os.Geteuid() != 0 {
		return
	}
	self, err := os.Executable()
	if err != nil {
		return
	}
	// The namespace is one of this thread until exec makes it that of the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Unshare(unix.CLONE_NEWNS) != nil {
		return
	}
	if unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") != nil {
		return
	}
	_ = syscall.Exec(self, os.Args, append(os.Environ(), ownMounts+"=1"))
}
