package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// silent requires that no reply comes for a moment.
func (c *client) silent() {
	c.t.Helper()
	require.NoError(c.t, c.nc.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	_, err := c.r.Peek(1)
	require.Error(c.t, err)
	require.NoError(c.t, c.nc.SetReadDeadline(time.Time{}))
}

func TestClientPause(t *testing.T) {
	for mode, waits := range map[string]map[string]bool{
		"WRITE": {"SET k w": true, "GET k": false, "INCR n": true, "PING": false},
		"ALL":   {"SET k w": true, "GET k": true, "CLIENT ID": false},
		"":      {"GET k": true, "NOPE": false},
	} {
		for line, waiting := range waits {
			t.Run(mode+"_"+line, func(t *testing.T) {
				s := start(t, Options{})
				admin, c := s.client(), s.client()
				require.Equal(t, "OK", c.line("SET k v"))
				require.Equal(t, "OK", admin.do(append([]string{"CLIENT", "PAUSE", "3600000"},
					words(mode)...)...))
				c.send(encode(words(line)...))
				if waiting {
					c.silent()
				} else {
					c.receive()
				}
				require.Equal(t, "OK", admin.line("CLIENT UNPAUSE"))
				if waiting {
					require.NotContains(t, c.receive(), "error")
				}
				require.Equal(t, "PONG", c.line("PING"))
			})
		}
	}
}

// TestAPauseHoldsAPipelineAndATransaction: what came before it is answered, and a queue is filled.
func TestAPauseHoldsAPipelineAndATransaction(t *testing.T) {
	s := start(t, Options{})
	admin, c := s.client(), s.client()
	require.Equal(t, "OK", admin.line("CLIENT PAUSE 3600000 WRITE"))
	c.send(encode("PING") + encode("MULTI") + encode("SET", "k", "v") + encode("EXEC"))
	require.Equal(t, "PONG", c.receive())
	require.Equal(t, "OK", c.receive())
	require.Equal(t, "QUEUED", c.receive())
	c.silent()
	require.Equal(t, "OK", admin.line("CLIENT PAUSE 1 WRITE"), "a shorter one does not end it")
	c.silent()
	require.Equal(t, "OK", admin.line("CLIENT UNPAUSE"))
	require.Equal(t, `[OK]`, c.receive())
}

func TestAPauseEndsByItselfAndWithTheServer(t *testing.T) {
	s := start(t, Options{})
	c := s.client()
	require.Equal(t, "OK", c.line("CLIENT PAUSE 10"))
	require.Equal(t, "OK", c.line("SET k v"))
	require.Equal(t, "OK", c.line("CLIENT PAUSE 3600000"))
	c.send(encode("GET", "k"))
	c.silent()
	s.shutdown()
	require.Equal(t, `"v"`, c.receive())
	for _, wrong := range []string{"-1", "x", "99999999999999999999", "1 SOMETIMES", "1 ALL ALL"} {
		s := start(t, Options{})
		require.Contains(t, s.client().line("CLIENT PAUSE "+wrong), "ERR", wrong)
	}
}
