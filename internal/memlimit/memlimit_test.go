package memlimit

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// tree is files of a fake system, by name.
type tree map[string]string

func (t tree) limit() int64 {
	files := fstest.MapFS{}
	for name, text := range t {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return cgroups(files)
}

// Lines of mountinfo as Linux has them.
const (
	mountV2     = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountV1     = "33 28 0:29 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
	mountCPU    = "34 28 0:30 / /sys/fs/cgroup/cpu rw shared:10 - cgroup cgroup rw,cpu\n"
	mountHybrid = "32 28 0:28 / /sys/fs/cgroup/unified rw shared:8 - cgroup2 cgroup2 rw\n"
	mountDocker = "33 28 0:29 /docker/c0 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
)

// TestLimitIsTheLeastOfAllGroupsAbove, of both versions, as hosts and containers show them.
func TestLimitIsTheLeastOfAllGroupsAbove(t *testing.T) {
	for _, c := range []struct {
		name string
		tree tree
		want int64
	}{
		{"no_groups", tree{}, 0},
		{"no_mounts", tree{"proc/self/cgroup": "0::/a\n"}, 0},
		{"v2_own", tree{
			"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/memory.max": "2000\n",
		}, 1000},
		{"v2_parent", tree{
			"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "2000\n",
		}, 2000},
		{"v2_high", tree{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/a/memory.max": "2000\n", "sys/fs/cgroup/a/memory.high": "1500\n",
		}, 1500},
		{"v2_unlimited", tree{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.high": "max\n",
		}, 0},
		{"v2_container", tree{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/memory.max": "3000\n",
		}, 3000},
		{"v2_moved_away", tree{
			"proc/self/cgroup": "0::/../../x\n", "proc/self/mountinfo": mountV2,
			"sys/fs/cgroup/memory.max": "3000\n",
		}, 3000},
		{"v1_own", tree{
			"proc/self/cgroup":                               "5:cpu:/c\n4:memory:/a/b\n0::/\n",
			"proc/self/mountinfo":                            mountCPU + mountHybrid + mountV1,
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "4000\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes":   "9223372036854771712\n",
			"sys/fs/cgroup/cpu/c/memory.limit_in_bytes":      "1\n",
		}, 4000},
		{"v1_parent", tree{
			"proc/self/cgroup": "4:memory,cpu:/a/b\n", "proc/self/mountinfo": mountV1,
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes":   "5000\n",
		}, 5000},
		{"v1_unlimited", tree{
			"proc/self/cgroup": "4:memory:/a\n", "proc/self/mountinfo": mountV1,
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
		}, 0},
		{"v1_container", tree{
			"proc/self/cgroup": "4:memory:/docker/c0/x\n", "proc/self/mountinfo": mountDocker,
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "7000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "6000\n",
		}, 6000},
		{"v1_like_name", tree{
			"proc/self/cgroup": "4:memory:/docker/c01\n", "proc/self/mountinfo": mountDocker,
			"sys/fs/cgroup/memory/1/memory.limit_in_bytes": "1\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "6000\n",
		}, 6000},
		{"garbage", tree{
			"proc/self/cgroup": "\n:\n0::/a\nx", "proc/self/mountinfo": "a b c\n - \n - cgroup2\n" + mountV2,
			"sys/fs/cgroup/a/memory.max": "much\n", "sys/fs/cgroup/memory.max": "-5\n",
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, c.tree.limit()) })
	}
}

func TestMemoryOfTheMachineIsRead(t *testing.T) {
	require.Equal(t, int64(24683520<<10), total("MemTotal:       24683520 kB\nMemFree: 5 kB\n"))
	for _, text := range []string{"", "MemFree: 5 kB\n", "MemTotal:\n", "MemTotal: -5 kB\n",
		"MemTotal: 99999999999999999999 kB\n"} {
		require.Zero(t, total(text), text)
	}
}

// TestLimitOfTheRuntimeCounts beside that of the system.
func TestLimitOfTheRuntimeCounts(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	debug.SetMemoryLimit(math.MaxInt64)
	all := Bytes()
	debug.SetMemoryLimit(64 << 20)
	require.Equal(t, int64(64<<20), Bytes())
	debug.SetMemoryLimit(math.MaxInt64)
	require.Equal(t, all, Bytes())
}

func BenchmarkBytes(b *testing.B) {
	for b.Loop() {
		Bytes()
	}
}
