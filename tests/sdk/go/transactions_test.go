package sdk

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

const (
	addNew        = aztables.TransactionTypeAdd
	updateMerge   = aztables.TransactionTypeUpdateMerge
	updateReplace = aztables.TransactionTypeUpdateReplace
	insertMerge   = aztables.TransactionTypeInsertMerge
	insertReplace = aztables.TransactionTypeInsertReplace
	remove        = aztables.TransactionTypeDelete
)

func action(t *testing.T, kind aztables.TransactionType, rowKey string, properties members, tag *azcore.ETag) aztables.TransactionAction {
	t.Helper()
	return aztables.TransactionAction{ActionType: kind, Entity: encoded(t, withKeys("p", rowKey, properties)), IfMatch: tag}
}

func TestTransactionOfEveryAction(t *testing.T) {
	table := newTable(t)
	old := members{"Old": "kept?"}
	tags := map[string]azcore.ETag{}
	for _, rowKey := range []string{"merged", "replaced", "deleted", "deletedByTag", "mergedByTag", "upsertMerged", "upsertReplaced"} {
		tags[rowKey] = add(t, table, withKeys("p", rowKey, old))
	}
	fresh, both := members{"New": true}, members{"Old": "kept?", "New": true}
	star := to.Ptr(azcore.ETagAny)
	_, err := table.SubmitTransaction(ctx, []aztables.TransactionAction{
		action(t, addNew, "added", fresh, nil),
		action(t, updateMerge, "merged", fresh, star),
		action(t, updateMerge, "mergedByTag", fresh, to.Ptr(tags["mergedByTag"])),
		action(t, updateReplace, "replaced", fresh, to.Ptr(tags["replaced"])),
		action(t, remove, "deleted", nil, nil),
		action(t, remove, "deletedByTag", nil, to.Ptr(tags["deletedByTag"])),
		action(t, insertMerge, "upsertMerged", fresh, nil),
		action(t, insertReplace, "upsertReplaced", fresh, nil),
		action(t, insertMerge, "created by merge", fresh, nil),
		action(t, insertReplace, "created by replace", fresh, nil),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]members{"added": fresh, "merged": both, "mergedByTag": both, "replaced": fresh, "upsertMerged": both,
		"upsertReplaced": fresh, "created by merge": fresh, "created by replace": fresh}
	for rowKey, properties := range want {
		same(t, rowKey, get(t, table, "p", rowKey).Properties, properties)
	}
	same(t, "entities", len(rowKeysOf(t, table, nil)), len(want))
}

func TestTransactionTakesEveryType(t *testing.T) {
	table := newTable(t)
	sent := aztables.EDMEntity{Entity: aztables.Entity{PartitionKey: "p", RowKey: "%20 +é😀"}, Properties: members{
		"S": "a\r\n--changeset_x\r\n", "I": int32(1), "L": aztables.EDMInt64(1 << 40), "D": 0.1, "B": true,
		"T": aztables.EDMDateTime(noon), "G": aztables.EDMGUID("c9da6455-213d-42c9-9a79-3e9149a57833"), "X": aztables.EDMBinary("x")}}
	of(table.SubmitTransaction(ctx, []aztables.TransactionAction{{ActionType: insertReplace, Entity: encoded(t, sent)}}, nil)).must(t)
	same(t, "properties", get(t, table, "p", sent.RowKey).Properties, sent.Properties)
}

func TestTransactionOfAHundred(t *testing.T) {
	table := newTable(t)
	actions := []aztables.TransactionAction{}
	for row := range 100 {
		actions = append(actions, action(t, addNew, fmt.Sprintf("%03d", row), members{"N": row}, nil))
	}
	of(table.SubmitTransaction(ctx, actions, nil)).must(t)
	same(t, "entities", len(rowKeysOf(t, table, nil)), 100)
	same(t, "N of the last", get(t, table, "p", "099").Properties["N"], int32(99))
}

func TestEmptyTransactionIsRefusedByTheSDK(t *testing.T) {
	_, err := newTable(t).SubmitTransaction(ctx, nil, nil)
	if err == nil || err.Error() != "transaction cannot be empty" {
		t.Error(err)
	}
}

var (
	innerStatus = regexp.MustCompile(`\r\nHTTP/1\.1 (\d{3} [A-Za-z ]+)\r\n`)
	innerError  = regexp.MustCompile(`"code":"(\w+)","message":\{"lang":"en-US","value":"(.*?)\\nRequestId:`)
)

// The SDK hands a failed transaction over as the outer 202 with the whole answer in it (wire 7.3); this is its only part.
func innerFailure(t *testing.T, err error) (status, code, message string) {
	t.Helper()
	failure := failureOf(t, err)
	same(t, "outer status", failure.StatusCode, 202)
	body := of(runtime.Payload(failure.RawResponse)).must(t)
	statuses, errors := innerStatus.FindAllStringSubmatch(string(body), -1), innerError.FindAllStringSubmatch(string(body), -1)
	if len(statuses) != 1 || len(errors) != 1 {
		t.Fatalf("want one part with one error in %q", body)
	}
	return statuses[0][1], errors[0][1], errors[0][2]
}

func TestFailingTransactions(t *testing.T) {
	table := newTable(t)
	stale := add(t, table, withKeys("p", "present", members{"N": 1}))
	of(table.UpdateEntity(ctx, encoded(t, withKeys("p", "present", members{"N": 2})), nil)).must(t)
	one, star := members{"N": 1}, to.Ptr(azcore.ETagAny)
	tooMany := []aztables.TransactionAction{}
	for row := range 101 {
		tooMany = append(tooMany, action(t, addNew, fmt.Sprint(row), one, nil))
	}
	elsewhere := aztables.TransactionAction{ActionType: addNew, Entity: encoded(t, withKeys("q", "b", one))}
	cases := []struct {
		name                  string
		actions               []aztables.TransactionAction
		status, code, message string
	}{ // source: wire 7.3
		{"insert of a present entity", []aztables.TransactionAction{
			action(t, addNew, "a", one, nil), action(t, addNew, "b", one, nil), action(t, addNew, "present", one, nil)},
			"409 Conflict", "EntityAlreadyExists", "2:The specified entity already exists."},
		{"update of an absent entity", []aztables.TransactionAction{
			action(t, addNew, "a", one, nil), action(t, updateMerge, "absent", one, star)},
			"404 Not Found", "ResourceNotFound", "1:The specified resource does not exist."},
		{"delete of an absent entity", []aztables.TransactionAction{
			action(t, insertMerge, "present", one, nil), action(t, remove, "absent", nil, nil)},
			"404 Not Found", "ResourceNotFound", "1:The specified resource does not exist."},
		{"stale ETag", []aztables.TransactionAction{
			action(t, insertReplace, "a", one, nil), action(t, updateReplace, "present", one, &stale)},
			"412 Precondition Failed", "UpdateConditionNotSatisfied", "1:The update condition specified in the request was not satisfied."},
		{"one row twice", []aztables.TransactionAction{
			action(t, addNew, "a", one, nil), action(t, insertMerge, "a", one, nil)},
			"400 Bad Request", "InvalidDuplicateRow",
			"1:The batch request contains multiple changes with same row key. An entity can appear only once in a batch request."},
		{"two partitions", []aztables.TransactionAction{action(t, addNew, "a", one, nil), elsewhere},
			"400 Bad Request", "CommandsInBatchActOnDifferentPartitions", "1:All commands in a batch must operate on same entity group."},
		{"101 operations", tooMany, "400 Bad Request", "InvalidInput",
			"99:The batch request operation exceeds the maximum 100 changes per change set."},
		{"forbidden key", []aztables.TransactionAction{action(t, addNew, "a/b", one, nil)},
			"400 Bad Request", "OutOfRangeInput", "0:The 'RowKey' parameter of value 'a/b' is out of range."},
		{"one operation, insert of a present entity", []aztables.TransactionAction{action(t, addNew, "present", one, nil)},
			"409 Conflict", "EntityAlreadyExists", "The specified entity already exists."},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := table.SubmitTransaction(ctx, c.actions, nil)
			status, code, message := innerFailure(t, err)
			same(t, "failure", []string{status, code, message}, []string{c.status, c.code, c.message})
			same(t, "rows after it", rowKeysOf(t, table, nil), []string{"present"})
			same(t, "N after it", get(t, table, "p", "present").Properties["N"], int32(2))
		})
	}
	_, err := service(t).NewClient(freshName("absent")).SubmitTransaction(ctx, tooMany[:1], nil)
	status, code, message := innerFailure(t, err)
	same(t, "missing table", []string{status, code, message},
		[]string{"404 Not Found", "TableNotFound", "0:The table specified does not exist."})
}

func TestTransactionOverFourMebibytes(t *testing.T) { // wire 7.3: refused as a whole, before any part is read
	table := newTable(t)
	actions := []aztables.TransactionAction{}
	for row := range 5 {
		properties := members{}
		for _, name := range strings.Split("ABCDEFGHIJKLMNO", "") {
			properties[name] = strings.Repeat("é", 32760)
		}
		actions = append(actions, action(t, addNew, fmt.Sprint(row), properties, nil))
	}
	of(table.SubmitTransaction(ctx, actions, nil)).fails(t, 413, "RequestBodyTooLarge")
	same(t, "entities stored", len(rowKeysOf(t, table, nil)), 0)
}
