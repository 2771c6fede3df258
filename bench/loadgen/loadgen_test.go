package main

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSignatureIsThatOfThePublishedVector(t *testing.T) {
	const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
	cases := []struct{ source, verb, content, path, signature string }{
		{"auth 1.8 P10", "GET", "", "/devstoreaccount1/MyTable(PartitionKey='pk',RowKey='rk')",
			"DU618kqnnftj60wqJSJsOrmL68VKhdjBOW7FBowVYgM="},
		{"auth 1.8 P2", "POST", "application/json;odata=nometadata", "/devstoreaccount1/MyTable",
			"hF1ZX7/OW8lcsYxf5vVNW0GO8pIDR4fybU74/VKeSu0="},
	}
	for _, c := range cases {
		s, err := newSigner("devstoreaccount1", key)
		if err != nil {
			t.Fatal(err)
		}
		s.date = []byte("Mon, 06 May 2024 07:08:09 GMT")
		headers := string(s.appendHeaders(nil, c.verb, c.content, []byte(c.path)))
		if !strings.Contains(headers, "SharedKey devstoreaccount1:"+c.signature+"\r\n") {
			t.Errorf("%s: %s", c.source, headers)
		}
	}
}

func TestAnswersAreReadHoweverTheyArrive(t *testing.T) {
	cases := []struct {
		name, answer, body string
		status             int
	}{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", 200},
		{"chunks", "HTTP/1.1 202 A\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
			"hello", 202},
		{"no body", "HTTP/1.1 204 No Content\r\nETag: W/\"x\"\r\n\r\n", "", 204},
	}
	for _, c := range cases {
		for cut := 1; cut < len(c.answer); cut++ {
			var r response
			if whole, err := r.feed([]byte(c.answer[:cut])); whole != 0 || err != nil {
				t.Fatalf("%s cut at %d: whole %d, %v", c.name, cut, whole, err)
			}
			whole, err := r.feed([]byte(c.answer))
			if whole != len(c.answer) || err != nil || r.status != c.status {
				t.Fatalf("%s cut at %d: whole %d, status %d, %v", c.name, cut, whole, r.status, err)
			}
			if body := string(r.body([]byte(c.answer), nil)); body != c.body {
				t.Fatalf("%s: body %q", c.name, body)
			}
		}
	}
}

func TestQuantilesAreWithinABucketOfTheTruth(t *testing.T) {
	var h histogram
	for value := int64(1); value <= 1_000_000; value++ {
		h.record(value)
	}
	for q, truth := range map[float64]float64{0.5: 500_000, 0.99: 990_000} {
		if got := float64(h.quantile(q)); got < truth || got > truth*(1+1.0/subBuckets)+1 {
			t.Errorf("quantile %v: %v instead of %v", q, got, truth)
		}
	}
}

func TestZipfKeysAreSkewedAsYCSBsAre(t *testing.T) {
	keys := newZipfKeys(1000, rand.New(rand.NewSource(1)))
	counts := map[int]int{}
	for range 100_000 {
		n := keys.next()
		if n < 0 || n >= 1000 {
			t.Fatalf("key %d", n)
		}
		counts[n]++
	}
	// With theta 0.99 over 1,000 keys the most popular one has 1/zeta = 13 % of all draws.
	top := counts[int(scramble(0)%1000)]
	if top < 12_000 || top > 15_000 {
		t.Errorf("the most popular key was drawn %d times", top)
	}
}

func TestEntityIsOneKiBWithTenProperties(t *testing.T) {
	body := appendEntity(nil, 12345, 0, []byte("p000012"), []byte("0000012345"))
	if len(body) < 1000 || len(body) > 1100 {
		t.Errorf("%d bytes", len(body))
	}
	if names := strings.Count(string(body), `":`) - 2 - strings.Count(string(body), "@odata.type"); names != 10 {
		t.Errorf("%d properties", names)
	}
}

func TestAFileOfEntitiesIsSeededByPartitionsAndHundreds(t *testing.T) {
	var text strings.Builder
	for n := range 250 {
		partition := "a"
		if n >= 205 {
			partition = "b"
		}
		fmt.Fprintf(&text, "%s\t%03d\t{\"N\":%d}\n", partition, n, n)
	}
	path := filepath.Join(t.TempDir(), "entities")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	data, err := readEntities(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(data.entities(), data.transactions(), data.groups); got != "250 4 [0 100 200 205 250]" {
		t.Errorf("entities, transactions and where they start: %s", got)
	}
	for n, expected := range map[int][2]int{0: {0, 205}, 204: {0, 205}, 205: {205, 250}, 249: {205, 250}} {
		if first, end := data.partition(n); [2]int{first, end} != expected {
			t.Errorf("entity %d is in the partition from %d to %d", n, first, end)
		}
	}
	pk, rk := data.keys(nil, nil, 249)
	if string(pk) != "b" || string(rk) != "249" || string(data.body(nil, 249, 0)) != `{"N":249}` {
		t.Errorf("%s %s %s", pk, rk, data.body(nil, 249, 0))
	}
	if found, _ := holding(data, 205, 250, []byte(`"N":21`), nil); found != 10 {
		t.Errorf("%d entities hold the text", found)
	}
}

func TestConnectionsThatWriteApartShareNoPartition(t *testing.T) {
	w, err := newWriter(&Job{Key: "AAAA", Keys: "uniform", Unique: "new", Apart: true, Connections: 2})
	if err != nil {
		t.Fatal(err)
	}
	for number, want := range []string{"new-000-000000", "new-001-000000"} {
		if w.newKeys(&connection{number: number}, true); string(w.pk) != want {
			t.Errorf("connection %d writes to %s", number, w.pk)
		}
	}
	w.made = 2 * partitionEntities
	if w.newKeys(&connection{number: 1}, true); string(w.pk) != "new-001-000001" {
		t.Errorf("after a full partition comes %s", w.pk)
	}
	if w.newKeys(&connection{number: 1}, false); string(w.pk) != "new-001" {
		t.Errorf("a transaction goes to %s", w.pk)
	}
}
