package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// page is the answer to a query, with so many entities.
func page(entities int) string {
	listed := make([]string, entities)
	for n := range listed {
		listed[n] = string(appendEntity(nil, n, 0, []byte("p000000"), appendPadded(nil, n, 10)))
	}
	return `{"odata.metadata":"http://host/account/$metadata#table","value":[` + strings.Join(listed, ",") + `]}`
}

// next is the continuation to a page, or nothing if the number is 0.
func next(number int) string {
	if number == 0 {
		return ""
	}
	return fmt.Sprintf("page %d", number)
}

type answer struct {
	body         string
	continuation string
}

// answered runs a job against a server that gives its answers in turn, and then repeats the last one forever.
func answered(t *testing.T, job Job, answers ...answer) (*Result, []string) {
	t.Helper()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := answers[min(len(asked), len(answers)-1)]
		asked = append(asked, r.URL.RawQuery)
		if now.continuation != "" {
			w.Header().Set("x-ms-continuation-NextPartitionKey", now.continuation)
		}
		if _, err := w.Write([]byte(now.body)); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	job.Address = server.Listener.Addr().String()
	job.BasePath, job.Account, job.Key, job.Table = "/account", "account", "a2V5", "Table"
	job.Connections = 1
	if job.Keys == "" {
		job.Keys = "uniform"
	}
	l, err := newLoad(&job)
	if err != nil {
		t.Fatal(err)
	}
	result, err := l.run()
	if err != nil {
		t.Fatal(err)
	}
	return result, asked
}

func get(query string) Job {
	return Job{Mix: []Share{{"get", 1}}, Entities: 1, Query: query, Requests: 2, ExpectEntities: -1}
}

func query(query string, expected int) Job {
	return Job{Mix: []Share{{"page", 1}}, Entities: 1000, Query: query, Requests: 2, ExpectEntities: expected}
}

// written runs a job of one kind of write against a server that answers each with this ETag.
func written(t *testing.T, operation, etag string) *Result {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	l, err := newLoad(&Job{
		Mix: []Share{{operation, 1}}, Entities: 1000, Keys: "uniform", Connections: 1, Seconds: 0.2,
		Address: server.Listener.Addr().String(), BasePath: "/account", Account: "account", Key: "a2V5", Table: "Table",
	})
	if err != nil {
		t.Fatal(err)
	}
	result, err := l.run()
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestAWriteIsAnsweredWithItsETag(t *testing.T) {
	for _, operation := range []string{"insert", "merge", "update", "upsert"} {
		if result := written(t, operation, ""); result.Errors == 0 {
			t.Errorf("%s: no ETag, and no complaint", operation)
		}
	}
	if result := written(t, "merge", `W/"x"`); result.Errors > 0 {
		t.Error(result.ErrorSamples)
	}
	if result := written(t, "update", `W/"x"`); result.Errors == 0 {
		t.Error("update: the same ETag for ever, and no complaint")
	}
}

func TestAnAnswerIsHeldToWhatWasAsked(t *testing.T) {
	entity := string(appendEntity(nil, 0, 0, []byte("p000000"), []byte("0000000000")))
	other := string(appendEntity(nil, 1, 0, []byte("p000000"), []byte("0000000001")))
	selected := `{"odata.metadata":"m","Name":"station-0000","Temperature":5.25}`
	partition := "$filter=PartitionKey%20eq%20'{partition}'"
	cases := []struct {
		name      string
		job       Job
		answer    answer
		complaint string
	}{
		{"an entity", get(""), answer{body: entity}, ""},
		{"nothing", get(""), answer{}, `get: no "PartitionKey":"p000000","RowKey":"0000000000" in`},
		{"another entity", get(""), answer{body: other}, `get: no "PartitionKey":"p000000","RowKey":"0000000000" in`},
		{"a part of it", get(""), answer{body: `{"PartitionKey":"p000000","RowKey":"0000000000"}`}, "get: 48 bytes are no whole entity"},
		{"what is selected", get("$select=Name,Temperature"), answer{body: selected}, ""},
		{"nothing selected", get("$select=Name,Temperature"), answer{}, `get: no "Name": in the answer`},
		{"less than selected", get("$format=json&$select=Name,Total"), answer{body: selected}, `get: no "Total": in`},
		{"a page", query(partition, 1000), answer{body: page(1000)}, ""},
		{"a page, with more behind it", query(partition, 1000), answer{page(1000), "more"}, ""},
		{"a page that lacks one", query(partition, 1000), answer{body: page(999)}, "page: 999 entities instead of 1000"},
		{"a page with one too many", query("", 5), answer{body: page(6)}, "page: 6 entities instead of 5"},
		{"no page", query(partition, 1000), answer{}, "page: no list of entities"},
		{"no match", query("", 0), answer{body: page(0)}, ""},
		{"no match, and no list", query("", 0), answer{}, "page: no list of entities"},
		{"no match, and no list, to be continued", query("", 0), answer{"", "more"}, "page: no list of entities"},
		{"no match, for ever", query("", 0), answer{page(0), "more"}, "page: a page that leads to itself"},
		{"a match where there is none", query("", 0), answer{body: page(1)}, "page: 1 entities instead of 0"},
		{"any number", query("", -1), answer{page(3), "more"}, ""},
		{"any number, and no list", query("", -1), answer{}, "page: no list of entities"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			result, _ := answered(t, c.job, c.answer)
			if wrong := result.Errors > 0; wrong != (c.complaint != "") {
				t.Fatalf("%d errors: %v", result.Errors, result.ErrorSamples)
			}
			if c.complaint != "" && !strings.HasPrefix(result.ErrorSamples[0], c.complaint) {
				t.Error(result.ErrorSamples)
			}
		})
	}
}

func TestAConstantAnswerIsTakenForAny(t *testing.T) {
	for _, job := range []Job{get(""), query("", 1000)} {
		job.Constant = true
		if result, _ := answered(t, job, answer{"", "more"}); result.Errors > 0 || result.Requests != 2 {
			t.Errorf("%d errors, %d requests: %v", result.Errors, result.Requests, result.ErrorSamples)
		}
	}
}

// The server may stop at any page with a continuation, even an empty one: the query only ends without one.
func TestAQueryIsFollowedToItsEndAndCountedOnce(t *testing.T) {
	cases := []struct {
		name     string
		job      Job
		sizes    []int
		requests int
		errors   int
	}{
		{"nothing in three pages", query("$filter=x", 0), []int{0, 0, 0}, 1, 0},
		{"a partition in three pages, one empty", query("$filter=p%20eq%20'{partition}'", -1), []int{600, 0, 400}, 1, 0},
		{"too few in two pages", query("$filter=x", 10), []int{4, 5}, 1, 1},
		{"a match on a later page", query("$filter=x", 0), []int{0, 1}, 1, 1},
		{"a walk", Job{Mix: []Share{{"page", 1}}, Entities: 1000, Query: "$top=1", Walks: 1, ExpectEntities: 3},
			[]int{1, 0, 2}, 3, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			answers := make([]answer, len(c.sizes))
			for n, size := range c.sizes {
				answers[n] = answer{page(size), next((n + 1) % len(c.sizes))}
			}
			if c.job.Requests > 0 {
				c.job.Requests = len(c.sizes)
			}
			result, asked := answered(t, c.job, answers...)
			if result.Requests != c.requests || result.RequestsAll != c.requests || result.Errors != c.errors {
				t.Errorf("%d requests, %d of all, %d errors: %v",
					result.Requests, result.RequestsAll, result.Errors, result.ErrorSamples)
			}
			for n, query := range asked {
				expected := asked[0]
				if n > 0 {
					expected += fmt.Sprintf("&NextPartitionKey=page+%d", n)
				}
				if query != expected {
					t.Errorf("page %d was asked for as %s", n, query)
				}
			}
		})
	}
}

// A page of the service may have no row key in its continuation: azure-sdk-for-net 19891, azure-sdk-for-go 5425.
func TestOnlyWhatAContinuationHasIsAskedFor(t *testing.T) {
	for head, expected := range map[string]string{
		"a: b\r\n\r\n": "",
		"x-ms-continuation-NextPartitionKey: 1!4!cA--\r\nx-ms-continuation-NextRowKey: 1!4!cg--\r\n": "&NextPartitionKey=1%214%21cA--&NextRowKey=1%214%21cg--",
		"x-ms-continuation-NextPartitionKey: 1!4!cA--\r\n":                                           "&NextPartitionKey=1%214%21cA--",
		"x-ms-continuation-NextPartitionKey: 1!4!cA--\r\nx-ms-continuation-NextRowKey: \r\n":         "&NextPartitionKey=1%214%21cA--",
	} {
		if found := string(continuation(nil, []byte(head))); found != expected {
			t.Errorf("%q is asked for as %q", head, found)
		}
	}
}

func TestEntitiesAreCounted(t *testing.T) {
	for _, entities := range []int{0, 1, 1000} {
		body := []byte(page(entities))
		if found := countEntities(body); found != entities || found != bytes.Count(body, rowKey) {
			t.Errorf("%d of %d", found, entities)
		}
	}
	for _, body := range []string{"", "K", `Key":`, `"RowKey"`, `"RowKe`, `KKKK"RowKey:`} {
		if found := countEntities([]byte(body)); found != 0 {
			t.Errorf("%d in %s", found, body)
		}
	}
}

func BenchmarkCountOfAPage(b *testing.B) {
	body := []byte(page(1000))
	for range b.N {
		countEntities(body)
	}
}

func BenchmarkCountOfAPageByTheLibrary(b *testing.B) {
	body := []byte(page(1000))
	for range b.N {
		bytes.Count(body, rowKey)
	}
}
