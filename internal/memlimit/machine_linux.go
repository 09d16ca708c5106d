package memlimit

import "os"

func machine() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return total(string(text))
}
