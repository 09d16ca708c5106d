package memlimit

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

var installed = windows.NewLazySystemDLL("kernel32.dll").NewProc("GetPhysicallyInstalledSystemMemory")

func machine() int64 {
	var kb uint64
	if installed.Find() != nil {
		return 0
	}
	if ok, _, _ := installed.Call(uintptr(unsafe.Pointer(&kb))); ok == 0 || kb >= 1<<53 {
		return 0
	}
	return int64(kb) << 10
}
