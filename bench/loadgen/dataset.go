package main

import (
	"bytes"
	"fmt"
	"os"
)

// dataset is the seeded set: its entities by number, and how they are divided for transactions.
type dataset interface {
	entities() int
	keys(partitionKey, rowKey []byte, n int) ([]byte, []byte)
	// body is the whole entity as JSON; a revision above 0 changes some of its values.
	body(out []byte, n, revision int) []byte
	// least is the smallest number of bytes in an entity's JSON.
	least() int
	transactions() int
	// transaction returns the first entity of a transaction and the one after its last.
	transaction(number int) (first, end int)
	// partition returns the same for the partition of entity n.
	partition(n int) (first, end int)
}

func openDataset(job *Job) (dataset, error) {
	if job.Data == "" {
		return madeEntities(max(job.Entities, 1)), nil
	}
	return readEntities(job.Data)
}

// madeEntities is a set of that many entities, derived from their numbers (entities.go).
type madeEntities int

func (m madeEntities) entities() int { return int(m) }

func (m madeEntities) keys(partitionKey, rowKey []byte, n int) ([]byte, []byte) {
	partitionKey = appendPadded(append(partitionKey, 'p'), n/partitionEntities, 6)
	return partitionKey, appendPadded(rowKey, n, 10)
}

func (m madeEntities) body(out []byte, n, revision int) []byte {
	partitionKey, rowKey := m.keys(make([]byte, 0, 16), make([]byte, 0, 16), n)
	return appendEntity(out, n, revision, partitionKey, rowKey)
}

func (m madeEntities) least() int { return entityLeast }

func (m madeEntities) transactions() int { return (int(m) + batchSize - 1) / batchSize }

func (m madeEntities) transaction(number int) (int, int) {
	return number * batchSize, min((number+1)*batchSize, int(m))
}

func (m madeEntities) partition(n int) (int, int) {
	first := n - n%partitionEntities
	return first, min(first+partitionEntities, int(m))
}

// readData is a set of entities from a file with a line for each: PartitionKey, RowKey and the entity as JSON
// with both in it, separated by tabs; the lines of a partition are consecutive.
type readData struct {
	text   []byte
	lines  []int // where each entity's line starts, and where the last one ends
	starts []int // the first entity of each partition, and the number of entities
	groups []int // the first entity of each transaction, and the number of entities
	of     []int // the partition of each entity
	short  int   // bytes of the shortest entity's JSON
}

func readEntities(path string) (*readData, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	data := &readData{text: text}
	var partition []byte
	for at := 0; at < len(text); {
		line := text[at:]
		end := bytes.IndexByte(line, '\n')
		if end < 0 || bytes.Count(line[:end], []byte{'\t'}) != 2 {
			return nil, fmt.Errorf("%s: entity %d is no line of two keys and JSON", path, len(data.lines))
		}
		number := len(data.lines)
		key := line[:bytes.IndexByte(line, '\t')]
		if number == 0 || !bytes.Equal(key, partition) {
			partition = key
			data.starts = append(data.starts, number)
		}
		if (number-data.starts[len(data.starts)-1])%batchSize == 0 {
			data.groups = append(data.groups, number)
		}
		data.of = append(data.of, len(data.starts)-1)
		data.lines = append(data.lines, at)
		at += end + 1
	}
	if len(data.lines) == 0 {
		return nil, fmt.Errorf("%s has no entity", path)
	}
	data.short = len(text)
	data.starts = append(data.starts, len(data.lines))
	data.groups = append(data.groups, len(data.lines))
	data.lines = append(data.lines, len(text))
	for n := range data.of {
		_, _, body := data.line(n)
		data.short = min(data.short, len(body))
	}
	return data, nil
}

func (d *readData) entities() int { return len(d.of) }

func (d *readData) line(n int) (partitionKey, rowKey, body []byte) {
	line := d.text[d.lines[n] : d.lines[n+1]-1]
	first := bytes.IndexByte(line, '\t')
	second := first + 1 + bytes.IndexByte(line[first+1:], '\t')
	return line[:first], line[first+1 : second], line[second+1:]
}

func (d *readData) keys(partitionKey, rowKey []byte, n int) ([]byte, []byte) {
	partition, row, _ := d.line(n)
	return append(partitionKey, partition...), append(rowKey, row...)
}

func (d *readData) body(out []byte, n, _ int) []byte {
	_, _, body := d.line(n)
	return append(out, body...)
}

func (d *readData) least() int { return d.short }

func (d *readData) transactions() int { return len(d.groups) - 1 }

func (d *readData) transaction(number int) (int, int) { return d.groups[number], d.groups[number+1] }

func (d *readData) partition(n int) (int, int) {
	return d.starts[d.of[n]], d.starts[d.of[n]+1]
}

// holding counts the entities from first to end that have the text in their JSON.
func holding(data dataset, first, end int, text, scratch []byte) (int, []byte) {
	found := 0
	for n := first; n < end; n++ {
		scratch = data.body(scratch[:0], n, 0)
		if bytes.Contains(scratch, text) {
			found++
		}
	}
	return found, scratch
}
