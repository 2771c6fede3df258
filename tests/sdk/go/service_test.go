// Package sdk drives a running Table service with the aztables package, unmodified, and says what an application may
// expect of it. It knows the protocol's documented outcomes ("wire 3.9" and so on name the rule); it must not know
// which server answers. TABLESTONE_TEST_ENDPOINT, TABLESTONE_TEST_ACCOUNT and TABLESTONE_TEST_KEY say where the service is.
package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

var ctx = context.Background()

// A server error must show as itself, so nothing is retried.
func options() *aztables.ClientOptions {
	return &aztables.ClientOptions{ClientOptions: azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}}
}

func setting(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set: it says where the Table service is", name)
	}
	return value
}

func credential(t *testing.T) *aztables.SharedKeyCredential {
	t.Helper()
	cred := of(aztables.NewSharedKeyCredential(setting(t, "TABLESTONE_TEST_ACCOUNT"), setting(t, "TABLESTONE_TEST_KEY"))).must(t)
	return cred
}

func service(t *testing.T) *aztables.ServiceClient {
	t.Helper()
	client := of(aztables.NewServiceClientWithSharedKey(setting(t, "TABLESTONE_TEST_ENDPOINT"), credential(t), options())).must(t)
	return client
}

var tablesNamed atomic.Int64

// Fresh on every call and in every process: several SDKs may use one server at once.
func freshName(prefix string) string {
	return fmt.Sprintf("%s%x%x", prefix, time.Now().UnixNano(), tablesNamed.Add(1))
}

// A table that is deleted when the test ends.
func newTable(t *testing.T) *aztables.Client {
	t.Helper()
	name := freshName("go")
	svc := service(t)
	of(svc.CreateTable(ctx, name, nil)).must(t)
	t.Cleanup(func() {
		if _, err := svc.DeleteTable(ctx, name, nil); err != nil {
			t.Errorf("deleting the test's table: %v", err)
		}
	})
	return svc.NewClient(name)
}

// The two results of a call of the SDK, and what the test expects of them.
type outcome[T any] struct {
	value T
	err   error
}

func of[T any](value T, err error) outcome[T] {
	return outcome[T]{value, err}
}

func (o outcome[T]) must(t *testing.T) T {
	t.Helper()
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.value
}

func (o outcome[T]) fails(t *testing.T, status int, code aztables.TableErrorCode) *azcore.ResponseError {
	t.Helper()
	return wantFailure(t, o.err, status, code)
}

type members = map[string]any

func encoded(t *testing.T, entity any) []byte {
	t.Helper()
	body, err := json.Marshal(entity)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func decoded(t *testing.T, body []byte) aztables.EDMEntity {
	t.Helper()
	var entity aztables.EDMEntity
	if err := json.Unmarshal(body, &entity); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return entity
}

// A plain map, and not EDMEntity, because EDMEntity doubles the quotes of its keys (TestQuotedKeysOfEDMEntity).
func withKeys(partitionKey, rowKey string, properties members) members {
	entity := members{"PartitionKey": partitionKey, "RowKey": rowKey}
	for name, value := range properties {
		entity[name] = value
	}
	return entity
}

func add(t *testing.T, table *aztables.Client, entity members) azcore.ETag {
	t.Helper()
	response := of(table.AddEntity(ctx, encoded(t, entity), nil)).must(t)
	return response.ETag
}

func get(t *testing.T, table *aztables.Client, partitionKey, rowKey string) aztables.EDMEntity {
	t.Helper()
	response := of(table.GetEntity(ctx, partitionKey, rowKey, nil)).must(t)
	return decoded(t, response.Value)
}

// The pages of a listing, each as the row keys it holds.
func pagesOf(t *testing.T, table *aztables.Client, list *aztables.ListEntitiesOptions) [][]string {
	t.Helper()
	pages := [][]string{}
	for pager := table.NewListEntitiesPager(list); pager.More(); {
		page := of(pager.NextPage(ctx)).must(t)
		rowKeys := []string{}
		for _, body := range page.Entities {
			rowKeys = append(rowKeys, decoded(t, body).RowKey)
		}
		if pages = append(pages, rowKeys); len(pages) > 100 {
			t.Fatal("the listing does not end")
		}
	}
	return pages
}

func rowKeysOf(t *testing.T, table *aztables.Client, list *aztables.ListEntitiesOptions) []string {
	t.Helper()
	rowKeys := []string{}
	for _, page := range pagesOf(t, table, list) {
		rowKeys = append(rowKeys, page...)
	}
	return rowKeys
}

func filtered(filter string) *aztables.ListEntitiesOptions {
	return &aztables.ListEntitiesOptions{Filter: to.Ptr(filter)}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if gotText, wantText := fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want); gotText != wantText {
		t.Errorf("%s is %s, want %s", what, gotText, wantText)
	}
}

// The text of an error as the service sent it: RequestId and Time follow it (wire 8.1).
func messageOf(t *testing.T, failure *azcore.ResponseError) string {
	t.Helper()
	body := of(runtime.Payload(failure.RawResponse)).must(t)
	var payload struct {
		Error struct {
			Message struct{ Lang, Value string } `json:"message"`
		} `json:"odata.error"`
	}
	if err := json.Unmarshal(body, &payload); err != nil {
		t.Fatalf("the error's body is no JSON: %v in %q", err, body)
	}
	same(t, "lang", payload.Error.Message.Lang, "en-US")
	text, rest, found := strings.Cut(payload.Error.Message.Value, "\n")
	if !found || !strings.HasPrefix(rest, "RequestId:") || !strings.Contains(rest, "\nTime:") {
		t.Errorf("RequestId and Time are missing in %q", payload.Error.Message.Value)
	}
	return text
}

func failureOf(t *testing.T, err error) *azcore.ResponseError {
	t.Helper()
	var failure *azcore.ResponseError
	if !errors.As(err, &failure) {
		t.Fatalf("want an error of the service, got %v", err)
	}
	return failure
}

func wantFailure(t *testing.T, err error, status int, code aztables.TableErrorCode) *azcore.ResponseError {
	t.Helper()
	failure := failureOf(t, err)
	if failure.StatusCode != status || failure.ErrorCode != string(code) {
		t.Errorf("answered %d %q, want %d %q", failure.StatusCode, failure.ErrorCode, status, code)
	}
	return failure
}
