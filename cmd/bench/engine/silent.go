package engine

import "fmt"

// silent drops what an engine wants to log, but not the reason for which it gives up.
type silent struct{}

func (silent) Infof(string, ...any)    {}
func (silent) Errorf(string, ...any)   {}
func (silent) Warningf(string, ...any) {}
func (silent) Debugf(string, ...any)   {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
