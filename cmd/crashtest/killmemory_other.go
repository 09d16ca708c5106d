//go:build !linux

package main

import "errors"

const starves = false

func (h hunger) starve() error { return errors.ErrUnsupported }
