package server

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/ebbkv/ebb/cmd/ebbd/keyspace"
)

// sortOptions are the options of SORT and SORT_RO.
type sortOptions struct {
	by            []byte // nil: the elements themselves
	get           [][]byte
	store         []byte
	offset, count int64
	desc, alpha   bool
	unsorted      bool // BY a pattern without a star
}

func parseSort(r *request) (o sortOptions, err error) {
	o.count = -1
	for i := 2; i < len(r.args); i++ {
		left := len(r.args) - i - 1
		switch word := r.word(i); {
		case word == "ASC":
			o.desc = false
		case word == "DESC":
			o.desc = true
		case word == "ALPHA":
			o.alpha = true
		case word == "LIMIT" && left >= 2:
			if o.offset, o.count, err = r.ints(i + 1); err != nil {
				return o, err
			}
			i += 2
		case word == "STORE" && left >= 1 && r.cmd.name == "sort":
			o.store = r.args[i+1]
			i++
		case word == "BY" && left >= 1:
			o.by = r.args[i+1]
			o.unsorted = !bytes.Contains(o.by, []byte("*"))
			i++
		case word == "GET" && left >= 1:
			o.get = append(o.get, r.args[i+1])
			i++
		default:
			return o, errSyntax
		}
	}
	return o, nil
}

// sorted is an element with what it is compared by.
type sorted struct {
	element []byte
	number  float64
	text    []byte // nil: the key of BY is absent
}

// sortCommand is SORT and SORT_RO.
func sortCommand(r *request) error {
	o, err := parseSort(r)
	if err != nil {
		return err
	}
	elements, err := sortInput(r, &o)
	if err != nil {
		return err
	}
	if !o.unsorted {
		if err := sortElements(r, elements, &o); err != nil {
			return err
		}
	}
	n := int64(len(elements))
	lo := min(max(o.offset, 0), n)
	hi := n
	if o.count >= 0 {
		hi = min(lo+o.count, n)
	}
	results, err := sortResults(r, elements[lo:hi], &o)
	if err != nil {
		return err
	}
	if o.store != nil {
		return sortStore(r, o.store, results)
	}
	r.w.Array(len(results))
	for _, result := range results {
		if result == nil {
			r.w.Null()
		} else {
			r.w.Bulk(result)
		}
	}
	return nil
}

// sortInput returns the elements of a list, a set or a sorted set.
func sortInput(r *request, o *sortOptions) (elements []sorted, err error) {
	row, err := r.sp.Load(r.args[1])
	if err != nil {
		return nil, err
	}
	add := func(element []byte) {
		elements = append(elements, sorted{element: append([]byte{}, element...)})
	}
	switch row.Type {
	case 0:
	case keyspace.TypeList:
		for _, element := range r.sp.Elements(&row, 0, row.Count, false) {
			add(element)
		}
	case keyspace.TypeSet:
		for member := range r.sp.Members(&row, nil) {
			add(member)
		}
	case keyspace.TypeZSet:
		for member := range r.sp.ByScore(&row, math.Inf(-1), math.Inf(1), o.desc && o.unsorted) {
			add(member)
		}
	default:
		return nil, errWrongType
	}
	return elements, r.tx.Err()
}

func sortElements(r *request, elements []sorted, o *sortOptions) error {
	for i := range elements {
		e := &elements[i]
		e.text = e.element
		if o.by != nil {
			var err error
			if e.text, err = lookupPattern(r, o.by, e.element); err != nil {
				return err
			}
		}
		if o.alpha || e.text == nil {
			continue
		}
		var ok bool
		if e.number, ok = parseFloat(bytes.TrimLeft(e.text, " ")); !ok {
			return replyError("ERR One or more scores can't be converted into double")
		}
	}
	slices.SortStableFunc(elements, func(a, b sorted) int {
		c := cmp.Compare(a.number, b.number)
		if o.alpha {
			c = bytes.Compare(a.text, b.text)
		}
		if c == 0 && (!o.alpha || o.by == nil) {
			c = bytes.Compare(a.element, b.element)
		}
		if o.desc {
			return -c
		}
		return c
	})
	return nil
}

// lookupPattern returns the string at the key, or the field of the hash at the key, that a pattern
// of BY or GET means for an element; nil: there is none.
func lookupPattern(r *request, pattern, element []byte) ([]byte, error) {
	if string(pattern) == "#" {
		return element, nil
	}
	star := bytes.IndexByte(pattern, '*')
	if star < 0 {
		return nil, nil
	}
	name, field := pattern, []byte(nil)
	if arrow := bytes.Index(pattern[star:], []byte("->")); arrow >= 0 && star+arrow+2 < len(pattern) {
		name, field = pattern[:star+arrow], pattern[star+arrow+2:]
	}
	key := slices.Concat(name[:star], element, name[star+1:])
	row, err := r.sp.Load(key)
	if err != nil {
		return nil, err
	}
	if field == nil {
		if row.Type != keyspace.TypeString {
			return nil, nil
		}
		return append([]byte{}, row.Value...), nil
	}
	if row.Type != keyspace.TypeHash {
		return nil, nil
	}
	value, ok, err := r.sp.GetField(&row, field)
	if err != nil || !ok {
		return nil, err
	}
	return append([]byte{}, value...), nil
}

func sortResults(r *request, elements []sorted, o *sortOptions) (results [][]byte, err error) {
	for _, e := range elements {
		if len(o.get) == 0 {
			results = append(results, e.element)
		}
		for _, pattern := range o.get {
			value, err := lookupPattern(r, pattern, e.element)
			if err != nil {
				return nil, err
			}
			results = append(results, value)
		}
	}
	return results, nil
}

// sortStore replaces a key by the list of results.
func sortStore(r *request, target []byte, results [][]byte) error {
	r.w.Int(int64(len(results)))
	if err := r.replace(target, len(results) > 0); err != nil || len(results) == 0 {
		return err
	}
	row, err := r.sp.LoadOrCreate(target, keyspace.TypeList)
	if err != nil {
		return err
	}
	for _, result := range results {
		if err := r.sp.Push(&row, false, result); err != nil {
			return err
		}
	}
	return r.sp.Save(target, &row)
}
