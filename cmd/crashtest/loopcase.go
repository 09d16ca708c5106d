package main

import (
	"fmt"
	"io"
	"path/filepath"
)

// loopCase is an image, and what must be true of the store on it. It is written as a line.
type loopCase struct {
	image string
	seed  uint64 // of what the writer did
	claims
}

// loopLine is the form of the line: the image comes last, for its name may hold anything.
const loopLine = "%d acked=%d begun=%d purged=%d %s"

func (c loopCase) String() string {
	return fmt.Sprintf(loopLine, c.seed, c.acked, c.begun, c.purged, c.image)
}

func parseLoopCase(line string) (c loopCase, err error) {
	if _, err := fmt.Sscanf(line, loopLine, &c.seed, &c.acked, &c.begun, &c.purged, &c.image); err != nil {
		return c, fmt.Errorf("line %q: %w", line, err)
	}
	return c, nil
}

// take makes the image. What was acknowledged before that must be on it; what begins after it
// cannot be.
func (c *loopCase) take(d testDisk, w *loopWriter) (after progress, err error) {
	heard := false
	err = d.copyTo(c.image, func() (err error) {
		after, err = w.said()
		if !heard {
			c.claims, heard = after.afterPowerCut(), true
		}
		c.begun = after.begun
		return err
	})
	return after, err
}

// judge looks at the store on a copy of the image, with the model of what the writer does.
func (c loopCase) judge(m *killModel) (f found, err error) {
	err = mountCopy(c.image, func(root string) error {
		f, err = m.look(filepath.Join(root, loopStore), c.claims)
		return err
	})
	return f, err
}

// judgeImage judges an image that was kept.
func judgeImage(line string, stdout io.Writer) error {
	c, err := parseLoopCase(line)
	if err != nil {
		return err
	}
	m := newKillModel(c.seed)
	if _, err := c.judge(m); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "survived, at commit %d\n", m.seq)
	return nil
}
