// Package racetest reports to tests whether the race detector watches them, and spares it those that it
// has nothing to see in. Only tests import it.
package racetest
