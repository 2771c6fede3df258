package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

func at(call, end int64, asked operation) operation {
	asked.Call, asked.Return = call, &end
	return asked
}

func unanswered(call int64, writes ...write) operation { return operation{Call: call, Writes: writes} }

func wrote(version int64, writes ...write) operation {
	asked := operation{Writes: writes}
	for range writes {
		asked.Done = append(asked.Done, version)
	}
	return asked
}

func refused(index int, why string, writes ...write) operation {
	return operation{Writes: writes, Error: &refusal{index, why}}
}

func got(index int, rows ...found) operation { return operation{Get: &index, Rows: rows} }

func listed(rows ...found) operation { return operation{List: true, Rows: rows} }

func listedUntil(until int, rows ...found) operation {
	return operation{List: true, Rows: rows, Until: &until}
}

func ins(row int, value int64) write             { return write{insert, row, value, 0} }
func put(row int, value int64) write             { return write{upsert, row, value, 0} }
func over(row int, value, version int64) write   { return write{replace, row, value, version} }
func merged(row int, value, version int64) write { return write{merge, row, value, version} }
func del(row int, version int64) write           { return write{remove, row, 0, version} }
func is(row int, n, version int64) found         { return found{row, n, 0, version} }
func with(row int, n, m, version int64) found    { return found{row, n, m, version} }

var right = map[string][]operation{
	"nothing":                           {},
	"a write is read":                   {at(1, 2, wrote(10, ins(0, 1))), at(3, 4, got(0, is(0, 1, 10)))},
	"a read beside a write sees either": {at(1, 9, wrote(10, ins(0, 1))), at(2, 3, got(0)), at(4, 5, got(0, is(0, 1, 10)))},
	"a condition that does not hold": {
		at(1, 2, wrote(10, ins(0, 1))), at(3, 4, refused(0, condition, over(0, 2, 9))), at(5, 6, got(0, is(0, 1, 10))),
	},
	"one of two that name a version": {
		at(1, 2, wrote(10, ins(0, 1))), at(3, 6, wrote(11, over(0, 2, 10))), at(4, 5, refused(0, condition, over(0, 3, 10))),
	},
	"a merge keeps what it does not name": {
		at(1, 2, wrote(10, ins(0, 1))), at(3, 4, wrote(11, merged(0, 2, anyVersion))), at(5, 6, got(0, with(0, 1, 2, 11))),
	},
	"a replacement does not": {
		at(1, 2, wrote(10, write{insertOrMerge, 0, 2, 0})), at(3, 4, got(0, with(0, 0, 2, 10))),
		at(5, 6, wrote(11, over(0, 1, anyVersion))), at(7, 8, got(0, is(0, 1, 11))),
	},
	"a transaction":            {at(1, 2, wrote(10, ins(0, 1), ins(1, 2))), at(3, 4, listed(is(0, 1, 10), is(1, 2, 10)))},
	"a transaction is refused": {at(1, 2, wrote(10, ins(1, 1))), at(3, 4, refused(1, exists, ins(0, 2), ins(1, 3))), at(5, 6, got(0))},
	"no answer, and applied":   {unanswered(1, ins(0, 1)), at(3, 4, got(0)), at(5, 6, got(0, is(0, 1, 10)))},
	"no answer, and lost":      {unanswered(1, ins(0, 1)), at(3, 4, got(0)), at(5, 6, wrote(10, ins(0, 2)))},
	"no answer, and its version is learned": {
		unanswered(1, put(0, 1)), at(3, 4, got(0, is(0, 1, 10))), at(5, 6, wrote(11, over(0, 2, 10))),
	},
	"no answer, and overwritten unseen": {
		at(1, 2, wrote(10, ins(0, 1))), unanswered(3, over(0, 2, 10)), at(5, 6, refused(0, condition, over(0, 3, 10))),
		at(7, 8, wrote(12, put(0, 4))),
	},
	"a delete without an answer, applied late": {
		at(1, 2, wrote(10, ins(0, 1))), unanswered(3, del(0, anyVersion)), at(5, 6, got(0, is(0, 1, 10))), at(7, 8, got(0)),
	},
	"a page that ends early": {at(1, 2, wrote(10, ins(0, 1), ins(2, 2))), at(3, 4, listedUntil(2, is(0, 1, 10)))},
}

var wrong = map[string][]operation{
	"a write is lost":                 {at(1, 2, wrote(10, ins(0, 1))), at(3, 4, got(0))},
	"a read goes back":                {at(1, 9, wrote(10, ins(0, 1))), at(2, 3, got(0, is(0, 1, 10))), at(4, 5, got(0))},
	"a value from nowhere":            {at(3, 4, got(0, is(0, 1, 10)))},
	"a value before it was written":   {at(1, 2, got(0, is(0, 1, 10))), at(3, 4, wrote(10, ins(0, 1)))},
	"two inserts":                     {at(1, 4, wrote(10, ins(0, 1))), at(2, 3, wrote(11, ins(0, 2)))},
	"a version names two writes":      {at(1, 2, wrote(10, ins(0, 1))), at(3, 4, wrote(11, over(0, 2, 10))), at(5, 6, wrote(12, over(0, 3, 10)))},
	"a version comes twice":           {at(1, 2, wrote(10, ins(0, 1))), at(3, 4, wrote(10, over(0, 2, anyVersion)))},
	"a version of an earlier life":    {at(1, 2, wrote(10, ins(0, 1))), at(3, 4, wrote(0, del(0, 10))), at(5, 6, wrote(10, ins(0, 2)))},
	"another version than was told":   {at(1, 2, wrote(10, ins(0, 1))), at(3, 4, got(0, is(0, 1, 11)))},
	"a condition that held":           {at(1, 2, wrote(10, ins(0, 1))), at(3, 4, refused(0, condition, over(0, 2, 10)))},
	"half a transaction in a list":    {at(1, 9, wrote(10, ins(0, 1), ins(1, 2))), at(2, 3, listed(is(0, 1, 10)))},
	"half a transaction in two reads": {at(1, 9, wrote(10, ins(0, 1), ins(1, 2))), at(2, 3, got(0, is(0, 1, 10))), at(4, 5, got(1))},
	"half of a refused transaction":   {at(1, 2, wrote(10, ins(1, 1))), at(3, 4, refused(1, exists, ins(0, 2), ins(1, 3))), at(5, 6, got(0, is(0, 2, 11)))},
	"no answer, and half applied":     {unanswered(1, ins(0, 1), ins(1, 2)), at(3, 4, listed(is(1, 2, 10)))},
	"no answer, and applied twice": {
		unanswered(1, put(0, 1)), at(2, 3, got(0, is(0, 1, 10))), at(4, 5, wrote(11, put(0, 2))), at(6, 7, got(0, is(0, 1, 12))),
	},
	"its own insert is in the way": {at(1, 2, refused(0, exists, ins(0, 1))), at(3, 4, got(0, is(0, 1, 10)))},
	"a merge loses a property":     {at(1, 2, wrote(10, ins(0, 1))), at(3, 4, wrote(11, merged(0, 2, anyVersion))), at(5, 6, got(0, with(0, 0, 2, 11)))},
	"the wrong operation is blamed": {
		at(1, 2, wrote(10, ins(1, 1))), at(3, 4, refused(0, exists, ins(0, 2), ins(1, 3))),
	},
	"a page lacks a row before its end": {at(1, 2, wrote(10, ins(0, 1), ins(2, 2))), at(3, 4, listedUntil(2))},
}

func verdictOf(t *testing.T, name string, operations []operation) verdict {
	t.Helper()
	line, err := json.Marshal(history{Name: name, Operations: operations})
	if err != nil {
		t.Fatal(err)
	}
	read, err := parse(line)
	if err != nil {
		t.Fatal(err)
	}
	told, err := judge(read, time.Minute, "")
	if err != nil {
		t.Fatal(err)
	}
	return told
}

func TestARightHistoryIsLinearizable(t *testing.T) {
	for name, operations := range right {
		if told := verdictOf(t, name, operations); !told.Linearizable {
			t.Errorf("%s: %s", name, told.Why)
		}
	}
}

func TestAWrongHistoryIsNot(t *testing.T) {
	for name, operations := range wrong {
		if told := verdictOf(t, name, operations); told.Linearizable || told.Undecided || told.Why == "" {
			t.Errorf("%s: %+v", name, told)
		}
	}
}

func TestTheStatusSaysWhetherAllAreRight(t *testing.T) {
	line := func(name string, operations []operation) string {
		text, _ := json.Marshal(history{Name: name, Operations: operations})
		return string(text) + "\n"
	}
	fine, broken := line("fine", right["a transaction"]), line("broken/1", wrong["two inserts"])
	pictures := t.TempDir()
	for _, each := range []struct {
		input  string
		status int
		lines  int
	}{{fine, 0, 1}, {fine + broken + fine, 1, 3}, {"{", 2, 0}, {`{"operations":[{}]}`, 2, 0}, {"", 0, 0}} {
		var output bytes.Buffer
		if status := run(strings.NewReader(each.input), &output, time.Minute, pictures); status != each.status {
			t.Errorf("%q: status %d", each.input, status)
		}
		if lines := strings.Count(output.String(), "\n"); lines != each.lines {
			t.Errorf("%q: %d verdicts", each.input, lines)
		}
	}
	if _, err := os.Stat(pictures + "/broken_1.html"); err != nil {
		t.Error(err)
	}
}
