package offheap

import "testing"

const memoryPage = 4 << 10

// BenchmarkFirstTouch writes one byte to each memory page of a new map, and gives the map back:
// what a frame costs before anything is done with it. A host that has taken memory back makes the
// first runs cost many times the later ones.
func BenchmarkFirstTouch(b *testing.B) {
	const pages = 256
	for range b.N / pages {
		m, err := Alloc(pages * memoryPage)
		if err != nil {
			b.Fatal(err)
		}
		for at := 0; at < len(m); at += memoryPage {
			m[at] = 1
		}
		if err := Free(m); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkColdCopy copies memory pages that no cache holds to others: what a changed page costs at
// least.
func BenchmarkColdCopy(b *testing.B) {
	const size = 256 << 20
	m, err := Alloc(size)
	if err != nil {
		b.Fatal(err)
	}
	for at := 0; at < len(m); at += memoryPage {
		m[at] = 1
	}
	from, to := m[:size/2], m[size/2:]
	at := 0
	b.ResetTimer()
	for range b.N {
		at = (at + 5003*memoryPage) % (size / 2) // far from the one before
		copy(to[at:at+memoryPage], from[at:])
	}
	b.StopTimer()
	if err := Free(m); err != nil {
		b.Fatal(err)
	}
}
