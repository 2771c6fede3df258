package main

import (
	"bytes"
	"fmt"
	"strings"
)

// What an answer must be, beyond its status. Every answer is checked, so the check must cost little compared to
// what a server spends on it.

var (
	insertDone = []byte("HTTP/1.1 204")
	rowKey     = []byte(`"RowKey":`)
	emptyList  = []byte(`"value":[]`)
)

// pagesMost is more pages than any query here has.
const pagesMost = 100_000

// rowKeyMark is the index of the rarest letter in rowKey, so that few other texts are compared in vain.
const rowKeyMark = 4

// complaint says what is wrong with an answer, empty if nothing is, and whether the query continues.
func (l *load) complaint(c *connection) (string, bool) {
	status := c.response.status
	if status != c.operation.status {
		return fmt.Sprintf("status %d instead of %d: %.300s", status, c.operation.status, l.body(c)), false
	}
	if l.job.Constant {
		return "", false
	}
	switch c.operation.name {
	case "batch", "seed":
		body := l.body(c)
		if done := bytes.Count(body, insertDone); done != c.entities {
			return fmt.Sprintf("%d of %d inserts done: %.600s", done, c.entities, body), false
		}
	case "get":
		return c.part.writer.complaintOfEntity(l.body(c), c.key), false
	case "page":
		return l.follow(c)
	case "insert", "merge", "update", "upsert":
		return complaintOfETag(c), false
	}
	return "", false
}

// complaintOfETag checks the ETag in the answer to a write, which must differ from the last update's.
func complaintOfETag(c *connection) string {
	tag := header(c.head(), []byte("etag"))
	if len(tag) == 0 {
		return "no ETag in the answer"
	}
	if c.operation.name == "update" && bytes.Equal(tag, c.etags[c.turn%len(c.etags)]) {
		return fmt.Sprintf("the ETag %s again", tag)
	}
	return ""
}

func (l *load) body(c *connection) []byte {
	if c.response.length < 0 {
		l.scratch = c.response.body(c.in[:c.filled], l.scratch)
		return l.scratch
	}
	return c.response.body(c.in[:c.filled], nil)
}

// complaintOfEntity checks the answer to a point read: the entity's key and length, or the selected properties.
func (w *writer) complaintOfEntity(body, key []byte) string {
	for _, name := range w.selected {
		if !bytes.Contains(body, name) {
			return fmt.Sprintf("no %s in the answer: %.300s", name, body)
		}
	}
	if len(w.selected) > 0 {
		return ""
	}
	if !bytes.Contains(body, key) {
		return fmt.Sprintf("no %s in the answer: %.300s", key, body)
	}
	if len(body) < w.data.least() {
		return fmt.Sprintf("%d bytes are no whole entity: %.300s", len(body), body)
	}
	return ""
}

// follow counts the entities of a page. If the server may continue and something is left to find, it remembers
// where the next page starts.
func (l *load) follow(c *connection) (string, bool) {
	job, body := c.part.job, l.body(c)
	found := countEntities(body)
	if found == 0 && !bytes.Contains(body, emptyList) {
		return fmt.Sprintf("no list of entities: %.300s", body), false
	}
	expected := job.ExpectEntities
	if c.entities >= 0 {
		expected = c.entities
	}
	c.seen += found
	c.page++
	l.next = continuation(l.next, c.head())
	if len(l.next) > 0 && (job.Walks > 0 || expected == 0 || c.seen < expected) {
		if bytes.Equal(l.next, c.next) {
			return fmt.Sprintf("a page that leads to itself: %s", l.next), false
		}
		if c.page > pagesMost {
			return fmt.Sprintf("%d pages and no end", c.page), false
		}
		c.next = append(c.next[:0], l.next...)
		return "", true
	}
	seen := c.seen
	c.startAnew()
	if seen != expected && expected >= 0 {
		return fmt.Sprintf("%d entities instead of %d", seen, expected), false
	}
	return "", false
}

// startAnew forgets the query in progress.
func (c *connection) startAnew() { c.next, c.page, c.seen = c.next[:0], 0, 0 }

// countEntities is bytes.Count of rowKey at a few percent of its cost: a page has a MiB.
func countEntities(body []byte) int {
	count := 0
	for at := 0; ; {
		step := bytes.IndexByte(body[at:], rowKey[rowKeyMark])
		if step < 0 {
			return count
		}
		at += step + 1
		if start := at - 1 - rowKeyMark; start >= 0 && bytes.HasPrefix(body[start:], rowKey) {
			count++
		}
	}
}

// selectedProperties is how the selected properties of a query start in an answer.
func selectedProperties(query string) [][]byte {
	var found [][]byte
	for _, option := range strings.Split(query, "&") {
		names, isSelect := strings.CutPrefix(option, "$select=")
		if !isSelect {
			continue
		}
		for _, name := range strings.Split(names, ",") {
			found = append(found, []byte(`"`+name+`":`))
		}
	}
	return found
}
