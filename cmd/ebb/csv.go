package main

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// A dump as CSV, as RFC 4180 and encoding/csv have it. The first record names the columns; each
// other one is a row of the store, or, with neither a key nor a time, the settings of a family as
// JSON in the column of the value. Expiry and time are empty where there is none.
//
// A key, a value or the name of a family stands as it is if that reads back the same: in UTF-8,
// without a carriage return, which readers of CSV drop, and without NUL. Any other one, and one that
// begins like this, is base64: and its bytes in the standard alphabet. With --hex or --base64 all of
// them are encoded, as hex: or base64:.
var csvColumns = []string{"family", "key", "value", "expiry", "time"}

const (
	csvHex    = "hex:"
	csvBase64 = "base64:"
)

// csvCell encodes bytes.
func (a *app) csvCell(b []byte) string {
	plain := utf8.Valid(b) && bytes.IndexByte(b, '\r') < 0 && bytes.IndexByte(b, 0) < 0 &&
		!bytes.HasPrefix(b, []byte(csvHex)) && !bytes.HasPrefix(b, []byte(csvBase64))
	switch {
	case a.hex:
		return csvHex + hex.EncodeToString(b)
	case a.base64 || !plain:
		return csvBase64 + base64.StdEncoding.EncodeToString(b)
	}
	return string(b)
}

// csvBytes decodes a cell.
func csvBytes(cell string) ([]byte, error) {
	if text, ok := strings.CutPrefix(cell, csvHex); ok {
		return hex.DecodeString(text)
	}
	if text, ok := strings.CutPrefix(cell, csvBase64); ok {
		return base64.StdEncoding.DecodeString(text)
	}
	return []byte(cell), nil
}

// csvRow writes one row of a dump. A row whose value is lost is left out: it is named elsewhere.
func (d *dumper) csvRow(r row) error {
	if r.lost {
		return nil
	}
	record := []string{d.app.csvCell([]byte(r.family)), d.app.csvCell(r.key), d.app.csvCell(r.value), "", ""}
	if !r.at.IsZero() {
		record[3] = showInstant(r.at)
	}
	if !r.ts.IsZero() {
		record[4] = showInstant(r.ts)
	}
	return d.csv.Write(record)
}

// csvSettings writes the settings of a family, which are an object of a dump in JSON.
func (d *dumper) csvSettings(family string, object map[string]any) error {
	delete(object, "family")
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return d.csv.Write([]string{d.app.csvCell([]byte(family)), "", string(text), "", ""})
}

// csvLines reads a dump in CSV as lines of one in JSON. Rows that are not of a dump may have fewer
// columns, in another order: the first record names them.
func csvLines(in io.Reader) func() (dumpLine, error) {
	r := csv.NewReader(in)
	r.ReuseRecord = true // The first record says how many fields each one has.
	var columns []int    // of csvColumns: where it is in a record, or -1
	cells := make([]string, len(csvColumns))
	return func() (line dumpLine, err error) {
		record, err := r.Read()
		if columns == nil && err == nil {
			if columns, err = csvHeader(record); err != nil {
				return dumpLine{at: 1}, err
			}
			record, err = r.Read()
		}
		var wrong *csv.ParseError
		if errors.As(err, &wrong) {
			return dumpLine{at: int64(wrong.StartLine)}, wrong.Err
		} else if err != nil {
			return dumpLine{}, err
		}
		begin, _ := r.FieldPos(0)
		for i, at := range columns {
			cells[i] = ""
			if at >= 0 {
				cells[i] = record[at]
			}
		}
		line, err = csvLine(cells)
		line.at = int64(begin)
		return line, err
	}
}

// csvHeader finds each of csvColumns in the first record. Any other name is an error: an expiry
// under another one would make rows that stay for ever.
func csvHeader(record []string) (columns []int, err error) {
	record[0] = strings.TrimPrefix(record[0], "\ufeff") // spreadsheets write a byte order mark
	columns = make([]int, len(csvColumns))
	for i, name := range csvColumns {
		columns[i] = slices.Index(record, name)
	}
	for i, name := range record {
		if at := slices.Index(csvColumns, name); at < 0 || columns[at] != i {
			return nil, fmt.Errorf("the first record names the columns, and %q is none of %s, or there twice",
				name, strings.Join(csvColumns, ","))
		}
	}
	if columns[1] < 0 || columns[2] < 0 {
		return nil, errors.New("the first record names no columns key and value")
	}
	return columns, nil
}

// csvLine reads one record, in the order of csvColumns.
func csvLine(record []string) (line dumpLine, err error) {
	var cells [3]string
	for i := range cells {
		b, cellErr := csvBytes(record[i])
		cells[i], err = string(b), errors.Join(err, cellErr)
	}
	if err != nil {
		return line, err
	}
	if record[1] == "" && record[4] == "" {
		if err := json.Unmarshal([]byte(cells[2]), &line); err != nil {
			return line, fmt.Errorf("a record without a key has settings as JSON: %v", err)
		}
		line = dumpLine{
			DefaultTTL: line.DefaultTTL, Retention: line.Retention, Partition: line.Partition,
			Sequence: line.Sequence,
		}
	} else {
		line.Key, line.Value = &cells[1], &cells[2]
	}
	line.Family, line.Expiry, line.Time = cells[0], record[3], record[4]
	return line, nil
}
