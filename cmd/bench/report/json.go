package report

import (
	"encoding/json"
	"io"
)

// JSON writes everything, single results included.
func (rep *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(rep)
}
