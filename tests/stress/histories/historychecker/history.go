package main

import (
	"encoding/json"
	"fmt"
	"math"
)

// A history is what concurrent clients did in one partition: one line of the input. tests/stress/histories/recording.py writes it.
type history struct {
	Name       string      `json:"name"`
	Operations []operation `json:"operations"`
}

// An operation has a client, the moments of its call and of its answer, and what was asked and answered.
type operation struct {
	Client int      `json:"client"`
	Call   int64    `json:"call"`
	Return *int64   `json:"return"` // null: there was no answer, so a write may have been applied, or may yet be
	Get    *int     `json:"get"`    // the row of a point read
	List   bool     `json:"list"`   // a read of the whole partition
	Writes []write  `json:"writes"` // one write, or those of an entity group transaction
	Rows   []found  `json:"rows"`   // the answer of a read: what there is, in order
	Until  *int     `json:"until"`  // of a page that ended early: the first row that it does not tell of
	Done   []int64  `json:"done"`   // the answer of writes: the version of each, 0 where none was told
	Error  *refusal `json:"error"`  // the answer of writes that were refused
}

// A write of one row. `n` is replaced by inserts, replacements and upserts, which clear `m`; merges set `m` and keep `n`.
type write struct {
	Kind  string `json:"kind"`
	Row   int    `json:"row"`
	Value int64  `json:"value"`
	If    int64  `json:"if"` // the version in If-Match; -1 for *
}

type found struct {
	Row     int   `json:"row"`
	N       int64 `json:"n"`
	M       int64 `json:"m"`
	Version int64 `json:"version"` // 0: not told
}

type refusal struct {
	Index int    `json:"index"`
	Why   string `json:"why"`
}

const (
	exists    = "exists"    // 409 EntityAlreadyExists
	missing   = "missing"   // 404 ResourceNotFound
	condition = "condition" // 412 UpdateConditionNotSatisfied
)

const (
	insert        = "insert"
	replace       = "replace"
	merge         = "merge"
	upsert        = "upsert"
	insertOrMerge = "insert or merge"
	remove        = "delete"
)

const anyVersion = -1

// never is the answer's moment of an operation without an answer.
const never = math.MaxInt64

func parse(line []byte) (history, error) {
	var read history
	if err := json.Unmarshal(line, &read); err != nil {
		return read, err
	}
	for index, each := range read.Operations {
		if err := each.fault(); err != nil {
			return read, fmt.Errorf("%s, operation %d: %w", read.Name, index, err)
		}
	}
	return read, nil
}

func (o operation) fault() error {
	kinds := 0
	rows := []int{}
	if o.Get != nil {
		kinds++
		rows = append(rows, *o.Get)
	}
	if o.List {
		kinds++
	}
	if len(o.Writes) > 0 {
		kinds++
	}
	if kinds != 1 {
		return fmt.Errorf("it is not one of get, list and writes")
	}
	for _, each := range o.Writes {
		rows = append(rows, each.Row)
		switch each.Kind {
		case insert, replace, merge, upsert, insertOrMerge, remove:
		default:
			return fmt.Errorf("%q is no kind of write", each.Kind)
		}
	}
	for _, each := range o.Rows {
		rows = append(rows, each.Row)
	}
	for _, row := range rows {
		if row < 0 || row >= rowsMax {
			return fmt.Errorf("row %d is not below %d", row, rowsMax)
		}
	}
	if len(o.Writes) > 0 && o.Return != nil && o.Error == nil && len(o.Done) != len(o.Writes) {
		return fmt.Errorf("%d writes have %d versions", len(o.Writes), len(o.Done))
	}
	return nil
}
