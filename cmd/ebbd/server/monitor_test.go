package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMonitorShowsCommandsThatArrive, with their database and without passwords.
func TestMonitorShowsCommandsThatArrive(t *testing.T) {
	s := start(t, Options{})
	m, c := s.client(), s.client()
	require.Equal(t, "OK", m.line("MONITOR"))
	c.line("AUTH secret")
	c.line("nosuch 1")
	c.line("CONFIG GET dir")
	c.send(encode("SELECT", "3") + encode("SET", "k\"\n\x01", "v") + encode("GET", "k"))
	for range 3 {
		c.receive()
	}
	c.line("MULTI")
	c.line("DEL k")
	c.line("EXEC")
	at := c.nc.LocalAddr().String()
	for _, want := range []string{
		`[0 %s] "SELECT" "3"`, `[3 %s] "SET" "k\"\n\x01" "v"`, `[3 %s] "GET" "k"`, `[3 %s] "MULTI"`,
		`[3 %s] "DEL" "k"`, `[3 %s] "EXEC"`,
	} {
		got := m.receive()
		_, got, _ = strings.Cut(got, " ")
		require.Equal(t, fmt.Sprintf(want, at), got)
	}
	require.Equal(t, "RESET", m.line("RESET"))
	require.Zero(t, s.hub.monitors.Load())
	c.line("PING")
	require.Equal(t, "PONG", m.line("PING"))
}
