package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A verdict is one line of the output.
type verdict struct {
	Name         string `json:"name"`
	Operations   int    `json:"operations"`
	Linearizable bool   `json:"linearizable"`
	Undecided    bool   `json:"undecided"` // the time was over before there was an answer
	Why          string `json:"why"`
}

// judge says whether the operations can be put in an order that explains every answer and respects real time.
func judge(read history, limit time.Duration, pictures string) (verdict, error) {
	asked := read.porcupine()
	result, info := porcupine.CheckOperationsVerbose(model, asked, limit)
	told := verdict{
		Name:         read.Name,
		Operations:   len(read.Operations),
		Linearizable: result == porcupine.Ok,
		Undecided:    result == porcupine.Unknown,
	}
	if result == porcupine.Ok {
		return told, nil
	}
	if result == porcupine.Illegal {
		told.Why = explanation(asked, info)
	}
	if pictures == "" {
		return told, nil
	}
	path := filepath.Join(pictures, strings.ReplaceAll(read.Name, "/", "_")+".html")
	file, err := os.Create(path)
	if err != nil {
		return told, err
	}
	defer file.Close()
	return told, porcupine.Visualize(model, info, file)
}

// porcupine gives the operations as the library wants them. An operation without an answer lasts until somebody saw what
// it wrote, or for ever: a bound for its moment makes the search much shorter.
func (read history) porcupine() []porcupine.Operation {
	seen := map[int64]int64{}
	for _, each := range read.Operations {
		if each.Return == nil {
			continue
		}
		for _, row := range each.Rows {
			for _, value := range []int64{row.N, row.M} {
				if before, known := seen[value]; !known || *each.Return < before {
					seen[value] = *each.Return
				}
			}
		}
	}
	asked := make([]porcupine.Operation, 0, len(read.Operations))
	for index := range read.Operations {
		each := &read.Operations[index]
		end := int64(never)
		if each.Return != nil {
			end = *each.Return
		} else if len(each.Writes) == 0 {
			continue
		}
		for _, write := range each.Writes {
			if until, known := seen[write.Value]; known && each.Return == nil && write.Kind != remove {
				end = min(end, max(until, each.Call))
			}
		}
		asked = append(asked, porcupine.Operation{ClientId: each.Client, Input: each, Call: each.Call, Return: end})
	}
	return asked
}

// explanation names the operations that the longest order leaves out first.
func explanation(asked []porcupine.Operation, info porcupine.LinearizationInfo) string {
	longest := []int{}
	for _, orders := range info.PartialLinearizations() {
		for _, order := range orders {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	placed := map[int]bool{}
	state := partition{}
	for _, index := range longest {
		placed[index] = true
		_, state = step(state, asked[index].Input.(*operation))
	}
	first := -1
	for index, each := range asked {
		if !placed[index] && (first < 0 || each.Return < asked[first].Return) {
			first = index
		}
	}
	if first < 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d operations have an order, after which the partition is %s; then client %d: %s",
		len(longest), len(asked), state, asked[first].ClientId, asked[first].Input.(*operation))
}
