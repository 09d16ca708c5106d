package workload

import (
	"math/bits"
	"time"
)

// latencies is a histogram of durations with an error below one percent: 128 buckets for each power
// of two of nanoseconds.
type latencies struct {
	count   uint64
	buckets [64 << latencyBits]uint32
}

const latencyBits = 7

func (l *latencies) add(d time.Duration) {
	l.count++
	l.buckets[latencyBucket(uint64(d))]++
}

func latencyBucket(ns uint64) int {
	shift := max(bits.Len64(ns)-latencyBits-1, 0)
	return shift<<latencyBits + int(ns>>shift)
}

func (l *latencies) merge(other *latencies) {
	l.count += other.count
	for i, n := range other.buckets {
		l.buckets[i] += n
	}
}

// percentile is the duration that p percent of all do not exceed; 0 if there are none.
func (l *latencies) percentile(p float64) time.Duration {
	rank, seen := uint64(p/100*float64(l.count)), uint64(0)
	for i, n := range l.buckets {
		if seen += uint64(n); seen > rank || seen == l.count && n > 0 {
			return latencyValue(i)
		}
	}
	return 0
}

// latencyValue is the middle of a bucket.
func latencyValue(i int) time.Duration {
	shift := max(i>>latencyBits-1, 0)
	low := uint64(i - shift<<latencyBits)
	return time.Duration(low<<shift + 1<<shift>>1)
}
