//go:build !race

package racetest

// Enabled says that this program runs under the race detector.
const Enabled = false
