package main

import (
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/anishathalye/porcupine"
)

// rowsMax is the number of rows that a partition has in a history.
const rowsMax = 8

// A row of the model: what the service says an entity is. A version of 0 is not known, because no answer told it.
type row struct {
	present bool
	n, m    int64
	version int64
	last    int64 // the latest version that any entity of this key is known to have had
}

// A partition is the state that every operation reads or changes at one moment.
type partition [rowsMax]row

// model is the sequential specification of one partition, with the answers that the service gives.
var model = porcupine.Model{
	Init: func() interface{} { return partition{} },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		ok, after := step(state.(partition), input.(*operation))
		return ok, after
	},
	Hash:              hash,
	DescribeOperation: func(input, _ interface{}) string { return input.(*operation).String() },
	DescribeState:     func(state interface{}) string { return state.(partition).String() },
}

// step says whether the answer of an operation is right in this state, and gives the state after it.
func step(state partition, asked *operation) (bool, partition) {
	if asked.Get != nil {
		return state.reads(asked, *asked.Get, *asked.Get+1)
	}
	if asked.List {
		until := rowsMax
		if asked.Until != nil {
			until = *asked.Until
		}
		return state.reads(asked, 0, until)
	}
	wrong := state.refuses(asked.Writes)
	if asked.Return == nil { // The moment of this step is free: at the very end it stands for a write that was lost.
		if wrong != nil {
			return true, state
		}
		return true, state.after(asked.Writes, nil)
	}
	if asked.Error != nil {
		return wrong != nil && *wrong == *asked.Error, state
	}
	if wrong != nil {
		return false, state
	}
	for index, each := range asked.Writes {
		if version := asked.Done[index]; version != 0 && version <= state[each.Row].last {
			return false, state // an ETag that came before, or that is earlier
		}
	}
	return true, state.after(asked.Writes, asked.Done)
}

// reads compares the rows from first to until with an answer. The answer may tell versions that were not known.
func (p partition) reads(asked *operation, first, until int) (bool, partition) {
	answer := asked.Rows
	for index := first; index < until; index++ {
		if len(answer) == 0 || answer[0].Row != index {
			if p[index].present {
				return false, p
			}
			continue
		}
		here, seen := &p[index], answer[0]
		answer = answer[1:]
		if !here.present || here.n != seen.N || here.m != seen.M {
			return false, p
		}
		if seen.Version == 0 {
			continue
		}
		if here.version != 0 {
			if here.version != seen.Version {
				return false, p
			}
			continue
		}
		if seen.Version <= here.last {
			return false, p
		}
		here.version, here.last = seen.Version, seen.Version
	}
	return len(answer) == 0, p
}

// refuses is the error of the first write whose condition does not hold, or nil.
func (p partition) refuses(writes []write) *refusal {
	for index, each := range writes {
		here := p[each.Row]
		switch {
		case each.Kind == insert && here.present:
			return &refusal{index, exists}
		case each.Kind == insert || each.Kind == upsert || each.Kind == insertOrMerge:
		case !here.present:
			return &refusal{index, missing}
		// A client names a version that some answer told it, and that answer came before.
		case each.If != anyVersion && each.If != here.version:
			return &refusal{index, condition}
		}
	}
	return nil
}

// after is the partition when all writes were applied, with these versions or with unknown ones.
func (p partition) after(writes []write, versions []int64) partition {
	for index, each := range writes {
		here := &p[each.Row]
		if each.Kind == remove {
			*here = row{last: here.last}
			continue
		}
		if each.Kind == merge || each.Kind == insertOrMerge {
			here.m = each.Value
		} else {
			here.n, here.m = each.Value, 0
		}
		here.present, here.version = true, 0
		if versions != nil && versions[index] != 0 {
			here.version, here.last = versions[index], versions[index]
		}
	}
	return p
}

var seed = maphash.MakeSeed()

func hash(state interface{}) uint64 { return maphash.Comparable(seed, state.(partition)) }

func (p partition) String() string {
	told := []string{}
	for index, each := range p {
		if each.present {
			told = append(told, fmt.Sprintf("%d: n=%d m=%d version %d", index, each.n, each.m, each.version))
		}
	}
	return "{" + strings.Join(told, "; ") + "}"
}

func (o *operation) String() string {
	told := []string{}
	for _, each := range o.Writes {
		told = append(told, each.String())
	}
	text := strings.Join(told, " + ")
	if o.Get != nil {
		text = fmt.Sprintf("get %d", *o.Get)
	}
	if o.List {
		text = "list"
	}
	switch {
	case o.Return == nil:
		return text + " -> no answer"
	case o.Error != nil:
		return fmt.Sprintf("%s -> refused, %d: %s", text, o.Error.Index, o.Error.Why)
	case len(o.Writes) > 0:
		return fmt.Sprintf("%s -> %d", text, o.Done)
	}
	state := partition{}
	for _, each := range o.Rows {
		state[each.Row] = row{present: true, n: each.N, m: each.M, version: each.Version}
	}
	return fmt.Sprintf("%s -> %s", text, state)
}

func (w write) String() string {
	text := fmt.Sprintf("%s %d", w.Kind, w.Row)
	if w.Kind != remove {
		text += fmt.Sprintf(" := %d", w.Value)
	}
	switch {
	case w.Kind == insert || w.Kind == upsert || w.Kind == insertOrMerge:
	case w.If == anyVersion:
		text += " if there"
	default:
		text += fmt.Sprintf(" if version %d", w.If)
	}
	return text
}
