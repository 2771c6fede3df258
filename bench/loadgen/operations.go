package main

import (
	"bytes"
	"fmt"
	"math/rand"
	"net/url"
)

const (
	jsonType       = "application/json;odata=nometadata"
	batchType      = "multipart/mixed; boundary=batch_0f8fad5b-d9cb-469f-a165-70867728950e"
	batchSize      = 100 // inserts of a transaction that seeds
	ownedEntities  = 64  // entities per connection that only this connection updates
	batchPartStart = "--changeset_7c9e6679-7425-40de-944b-e07fc1f90ae7\r\n" +
		"Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
)

// operation is one kind of request: how it is written and which status answers it.
type operation struct {
	name    string
	verb    string
	status  int
	headers string
	content string // Content-Type; empty without a body
	prepare func(w *writer, c *connection)
	hist    *histogram
}

// operations has every kind of request that the generator can make. prepare fills w.target and w.body.
var operations = map[string]operation{
	"create_table": {verb: "POST", status: 204, content: jsonType, prepare: (*writer).createTable,
		headers: "Prefer: return-no-content\r\n"},
	"get":  {verb: "GET", status: 200, prepare: (*writer).get},
	"page": {verb: "GET", status: 200, prepare: (*writer).query},
	"insert": {verb: "POST", status: 204, content: jsonType, prepare: (*writer).insert,
		headers: "Prefer: return-no-content\r\n"},
	"merge": {verb: "PATCH", status: 204, content: jsonType, prepare: (*writer).merge,
		headers: "If-Match: *\r\n"},
	"update": {verb: "PUT", status: 204, content: jsonType, prepare: (*writer).update},
	"upsert": {verb: "PUT", status: 204, content: jsonType, prepare: (*writer).upsert},
	"batch":  {verb: "POST", status: 202, content: batchType, prepare: (*writer).batch},
	"seed":   {verb: "POST", status: 202, content: batchType, prepare: (*writer).seed},
}

// writer turns operations into request bytes. It reuses its buffers for each request.
type writer struct {
	job      *Job
	signer   *signer
	random   *rand.Rand
	data     dataset
	keys     keyChooser
	common   string
	target   []byte
	path     int // how much of target is path: what is signed
	body     []byte
	part     []byte
	extra    []byte // headers of this one request
	pk, rk   []byte
	made     int // new entities so far
	seeded   int // seeded batches so far
	revision int
	matches  map[int]int // entities that match, by the first of their partition
	selected [][]byte    // how the properties of a $select start in an answer; empty: no $select
}

func newWriter(job *Job) (*writer, error) {
	signing, err := newSigner(job.Account, job.Key)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewSource(job.Seed))
	data, err := openDataset(job)
	if err != nil {
		return nil, err
	}
	keys, err := newKeyChooser(job.Keys, data.entities(), random)
	if err != nil {
		return nil, err
	}
	common := fmt.Sprintf("Host: %s\r\nAccept: application/json;odata=minimalmetadata\r\n"+
		"DataServiceVersion: 3.0\r\nx-ms-version: 2019-02-02\r\n", job.Address)
	return &writer{job: job, signer: signing, random: random, data: data, keys: keys, common: common,
		matches: map[int]int{}, selected: selectedProperties(job.Query)}, nil
}

// write puts the connection's next request into its buffer.
func (w *writer) write(c *connection) {
	w.target = append(w.target[:0], w.job.BasePath...)
	w.target = append(w.target, '/')
	w.path, w.body, w.extra = 0, w.body[:0], w.extra[:0]
	if len(c.next) == 0 {
		c.entities = -1
	}
	c.operation.prepare(w, c)
	if w.path == 0 {
		w.path = len(w.target)
	}
	op, out := c.operation, c.out[:0]
	out = append(out, op.verb...)
	out = append(out, ' ')
	out = append(out, w.target...)
	out = append(out, " HTTP/1.1\r\n"...)
	out = append(out, w.common...)
	out = append(out, op.headers...)
	out = append(out, w.extra...)
	out = w.signer.appendHeaders(out, op.verb, op.content, w.target[:w.path])
	if op.content != "" {
		out = append(out, "Content-Type: "...)
		out = append(out, op.content...)
		out = append(out, "\r\nContent-Length: "...)
		out = appendDecimal(out, len(w.body))
		out = append(out, '\r', '\n')
	}
	out = append(out, '\r', '\n')
	c.out = append(out, w.body...)
}

func (w *writer) createTable(*connection) {
	w.target = append(w.target, "Tables"...)
	w.body = append(append(append(w.body, `{"TableName":"`...), w.job.Table...), `"}`...)
}

func (w *writer) get(c *connection) {
	w.addressSeeded(w.keys.next())
	c.key = append(append(append(c.key[:0], `"PartitionKey":"`...), w.pk...), `","RowKey":"`...)
	c.key = append(append(c.key, w.rk...), '"')
	w.appendQuery(c)
}

func (w *writer) query(c *connection) {
	w.target = append(append(w.target, w.job.Table...), "()"...)
	w.path = len(w.target)
	if len(c.next) == 0 {
		w.appendQuery(c)
		c.asked = append(c.asked[:0], w.target[w.path:]...)
		return
	}
	w.target = append(append(w.target, c.asked...), c.next...)
}

func (w *writer) insert(c *connection) {
	w.target = append(w.target, w.job.Table...)
	n := w.newKeys(c, true)
	w.body = appendEntity(w.body, n, 0, w.pk, w.rk)
}

func (w *writer) merge(*connection) {
	n := w.keys.next()
	w.addressSeeded(n)
	w.revision++
	w.body = appendMerge(w.body, n, w.revision)
}

// update replaces an entity that only this connection updates, under the ETag of its last update;
// the first update is unconditional and only learns the ETag. The entities of all connections are
// spread over the table: not all of them are in its first partition.
func (w *writer) update(c *connection) {
	owned := c.turn % len(c.etags)
	stride := max(w.job.Entities/(len(c.etags)*w.job.Connections), 1)
	n := (owned*w.job.Connections + c.number) * stride
	w.addressSeeded(n)
	w.extra = append(w.extra, "If-Match: "...)
	if len(c.etags[owned]) == 0 {
		w.extra = append(w.extra, '*')
	} else {
		w.extra = append(w.extra, c.etags[owned]...)
	}
	w.extra = append(w.extra, '\r', '\n')
	w.revision++
	w.body = w.data.body(w.body, n, w.revision)
}

// upsert is insert-or-replace, alternating between an existing entity and a new one.
func (w *writer) upsert(c *connection) {
	w.revision++
	n := w.keys.next()
	if w.revision%2 == 0 {
		w.addressSeeded(n)
	} else {
		n = w.newKeys(c, true)
		w.appendEntityAddress()
	}
	w.body = appendEntity(w.body, n, w.revision, w.pk, w.rk)
}

// batch is a transaction of inserts, always into the same partition, or into one of the connection's own.
func (w *writer) batch(c *connection) {
	w.startBatch()
	for range w.job.Inserts {
		n := w.newKeys(c, false)
		w.part = appendEntity(w.part[:0], n, 0, w.pk, w.rk)
		if w.job.Shapes > 1 {
			w.part = append(w.part[:len(w.part)-1], `,"Shape`...)
			w.part = append(appendDecimal(w.part, n%w.job.Shapes), `":true}`...)
		}
		w.appendBatchInsert()
	}
	c.entities = w.job.Inserts
	w.endBatch()
}

// seed is the next transaction of the seeded set: 100 entities, or what is left of a partition.
// A server with a constant answer never conflicts, so for it the set starts again.
func (w *writer) seed(c *connection) {
	w.startBatch()
	first, end := w.data.transaction(w.seeded % w.data.transactions())
	for n := first; n < end; n++ {
		w.part = w.data.body(w.part[:0], n, 0)
		w.appendBatchInsert()
	}
	c.entities = end - first
	w.seeded++
	w.endBatch()
}

// exhausted says that the whole set is seeded.
func (w *writer) exhausted() bool {
	return w.seeded >= w.data.transactions() && w.seeded > 0 && !w.job.Constant
}

func (w *writer) startBatch() {
	w.target = append(w.target, "$batch"...)
	w.body = append(w.body, "--batch_0f8fad5b-d9cb-469f-a165-70867728950e\r\nContent-Type: multipart/mixed; "+
		"boundary=changeset_7c9e6679-7425-40de-944b-e07fc1f90ae7\r\n\r\n"...)
}

// appendBatchInsert appends the insert of the entity in w.part.
func (w *writer) appendBatchInsert() {
	w.body = append(w.body, batchPartStart+"POST http://"...)
	w.body = append(w.body, w.job.Address...)
	w.body = append(w.body, w.job.BasePath...)
	w.body = append(w.body, '/')
	w.body = append(w.body, w.job.Table...)
	w.body = append(w.body, " HTTP/1.1\r\nAccept: application/json;odata=minimalmetadata\r\n"+
		"DataServiceVersion: 3.0\r\nPrefer: return-no-content\r\nContent-Type: "+jsonType+
		"\r\nContent-Length: "...)
	w.body = appendDecimal(w.body, len(w.part))
	w.body = append(w.body, "\r\n\r\n"...)
	w.body = append(append(w.body, w.part...), '\r', '\n')
}

func (w *writer) endBatch() {
	w.body = append(w.body, "--changeset_7c9e6679-7425-40de-944b-e07fc1f90ae7--\r\n"+
		"--batch_0f8fad5b-d9cb-469f-a165-70867728950e--\r\n"...)
}

// newKeys makes keys that no run has written before, and returns the entity's number.
func (w *writer) newKeys(c *connection, spread bool) int {
	n := w.made
	w.made++
	w.pk = append(w.pk[:0], w.job.Unique...)
	filled := partitionEntities
	if w.job.Apart {
		w.pk = appendPadded(append(w.pk, '-'), c.number, 3)
		filled *= w.job.Connections
	}
	if spread {
		w.pk = appendPadded(append(w.pk, '-'), n/filled, 6)
	}
	w.rk = appendPadded(w.rk[:0], n, 10)
	return n
}

func (w *writer) addressSeeded(n int) {
	w.pk, w.rk = w.data.keys(w.pk[:0], w.rk[:0], n)
	w.appendEntityAddress()
}

func (w *writer) appendEntityAddress() {
	w.target = append(append(w.target, w.job.Table...), "(PartitionKey='"...)
	w.target = append(append(w.target, w.pk...), "',RowKey='"...)
	w.target = append(append(w.target, w.rk...), "')"...)
}

var partitionMark = []byte("{partition}")

// appendQuery appends the job's query; {partition} in it becomes a partition of the seeded set.
func (w *writer) appendQuery(c *connection) {
	w.path = len(w.target)
	if w.job.Query == "" {
		return
	}
	w.target = append(append(w.target, '?'), w.job.Query...)
	at := bytes.Index(w.target, partitionMark)
	if at < 0 {
		return
	}
	n := w.keys.next()
	w.pk, w.rk = w.data.keys(w.pk[:0], w.rk[:0], n)
	c.entities = w.matching(n)
	rest := append(w.part[:0], w.target[at+len(partitionMark):]...)
	w.part = rest
	w.target = append(append(w.target[:at], w.pk...), rest...)
}

// matching is how many entities a query of entity n's partition must find.
func (w *writer) matching(n int) int {
	first, end := w.data.partition(n)
	if w.job.Matches == "" {
		return end - first
	}
	found, known := w.matches[first]
	if !known {
		found, w.part = holding(w.data, first, end, []byte(w.job.Matches), w.part)
		w.matches[first] = found
	}
	return found
}

// continuation turns the two headers of a page into the query parameters of the next one.
func continuation(out, head []byte) []byte {
	partition := header(head, []byte("x-ms-continuation-nextpartitionkey"))
	row := header(head, []byte("x-ms-continuation-nextrowkey"))
	out = out[:0]
	if partition != nil {
		out = append(append(out, "&NextPartitionKey="...), url.QueryEscape(string(partition))...)
	}
	if row != nil {
		out = append(append(out, "&NextRowKey="...), url.QueryEscape(string(row))...)
	}
	return out
}

func appendDecimal(out []byte, number int) []byte {
	width := 1
	for rest := number / 10; rest > 0; rest /= 10 {
		width++
	}
	return appendPadded(out, number, width)
}
