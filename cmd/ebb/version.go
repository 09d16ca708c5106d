package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of the command",
		Long: `Version prints the version of the command, of Go, the platform, and the revision of the source
if it is known. A report of a bug should have this line.`,
		Args: args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			return printVersion(a)
		},
	}
}

func printVersion(a *app) error {
	v := versionOf(debug.ReadBuildInfo())
	if a.json {
		return a.printJSON(v)
	}
	_, err := fmt.Fprintln(a.out, v)
	return err
}

type version struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Revision string `json:"revision,omitempty"` // of the source, if the build knew it
}

// String is the line that a report of a bug should have.
func (v version) String() string {
	revision := ""
	if v.Revision != "" {
		revision = ", revision " + v.Revision
	}
	return fmt.Sprintf("ebb %s (%s, %s%s)", v.Version, v.Go, v.Platform, revision)
}

func versionOf(info *debug.BuildInfo, ok bool) version {
	v := version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}
