package sdk

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

func TestAddEntityEchoesTheEntity(t *testing.T) {
	table := newTable(t)
	response := of(table.AddEntity(ctx, encoded(t, withKeys("p", "r", members{"Name": "x"})), nil)).must(t)
	entity := decoded(t, response.Value)
	same(t, "keys", []string{entity.PartitionKey, entity.RowKey}, []string{"p", "r"})
	same(t, "properties", entity.Properties, members{"Name": "x"})
	same(t, "odata.etag", entity.ETag, string(response.ETag))
	if age := time.Since(time.Time(entity.Timestamp)); age < -time.Minute || age > time.Minute {
		t.Errorf("Timestamp is %v away from this machine's clock", age)
	}
}

func TestETagDerivesFromTimestamp(t *testing.T) { // wire 4
	table := newTable(t)
	add(t, table, withKeys("p", "r", nil))
	response := of(table.GetEntity(ctx, "p", "r", nil)).must(t)
	var entity struct {
		Timestamp string
		ETag      string `json:"odata.etag"`
	}
	if err := json.Unmarshal(response.Value, &entity); err != nil {
		t.Fatal(err)
	}
	want := `W/"datetime'` + url.QueryEscape(entity.Timestamp) + `'"`
	same(t, "ETag", []string{string(response.ETag), entity.ETag}, []string{want, want})
}

func TestMetadataFormats(t *testing.T) {
	table := newTable(t)
	full := []string{"odata.etag", "odata.metadata", "odata.type", "odata.id", "odata.editLink"}
	cases := []struct {
		format  aztables.MetadataFormat
		members []string
	}{ // source: wire 5.2
		{aztables.MetadataFormatNone, nil},
		{aztables.MetadataFormatMinimal, []string{"odata.etag", "odata.metadata"}},
		{aztables.MetadataFormatFull, full},
	}
	check := func(t *testing.T, body []byte, present []string) {
		t.Helper()
		got := members{}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		expected := map[string]bool{}
		for _, name := range present {
			expected[name] = true
		}
		for _, name := range full {
			if _, found := got[name]; found != expected[name] {
				t.Errorf("%s: present %v, want %v in %s", name, found, expected[name], body)
			}
		}
		same(t, "Name", got["Name"], "x")
	}
	for _, c := range cases {
		t.Run(string(c.format), func(t *testing.T) {
			rowKey := string(c.format)
			rowKey = rowKey[strings.Index(rowKey, "=")+1:]
			added, err := table.AddEntity(ctx, encoded(t, withKeys("p", rowKey, members{"Name": "x"})),
				&aztables.AddEntityOptions{Format: to.Ptr(c.format)})
			if err != nil {
				t.Fatal(err)
			}
			check(t, added.Value, c.members)
			got := of(table.GetEntity(ctx, "p", rowKey, &aztables.GetEntityOptions{Format: to.Ptr(c.format)})).must(t)
			check(t, got.Value, c.members)
			same(t, "ETag at this level", got.ETag, added.ETag)

			list := filtered("RowKey eq '" + rowKey + "'")
			list.Format = to.Ptr(c.format)
			page := of(table.NewListEntitiesPager(list).NextPage(ctx)).must(t)
			same(t, "entities listed", len(page.Entities), 1)
			inList := []string{}
			for _, name := range c.members {
				if name != "odata.metadata" { // of the list, not of its entities
					inList = append(inList, name)
				}
			}
			check(t, page.Entities[0], inList)
		})
	}
}

func TestAddEntityThatExists(t *testing.T) {
	table := newTable(t)
	add(t, table, withKeys("p", "r", members{"Kept": true}))
	failure := of(table.AddEntity(ctx, encoded(t, withKeys("p", "r", nil)), nil)).fails(t, 409, aztables.EntityAlreadyExists)
	same(t, "message", messageOf(t, failure), "The specified entity already exists.")
	same(t, "properties", get(t, table, "p", "r").Properties, members{"Kept": true})
}

func TestAddEntityWithoutAKey(t *testing.T) {
	table := newTable(t)
	for _, entity := range []members{{"PartitionKey": "p"}, {"RowKey": "r"}, {"Other": 1}} {
		_, err := table.AddEntity(ctx, encoded(t, entity), nil)
		// The SDK asks the service first and puts its own words in place of the service's error.
		if err == nil || err.Error() != "entity must have a PartitionKey and RowKey" {
			t.Errorf("%v: %v", entity, err)
		}
	}
	failure := of(table.AddEntity(ctx, []byte(`{"PartitionKey":"p","RowKey":null}`), nil)).fails(t, 400, aztables.PropertiesNeedValue) // wire 9
	same(t, "message", messageOf(t, failure), "The values are not specified for all properties in the entity.")
}

func TestMissingEntityAndMissingTable(t *testing.T) {
	table, absent := newTable(t), service(t).NewClient(freshName("absent"))
	entity := encoded(t, withKeys("p", "r", nil))
	cases := []struct {
		name string
		call func(table *aztables.Client) error
		code aztables.TableErrorCode // in a table that exists; "" where the call succeeds there
	}{ // source: wire 3.9
		{"get", func(c *aztables.Client) error { _, err := c.GetEntity(ctx, "p", "r", nil); return err }, aztables.ResourceNotFound},
		{"update", func(c *aztables.Client) error { _, err := c.UpdateEntity(ctx, entity, nil); return err }, aztables.ResourceNotFound},
		{"delete", func(c *aztables.Client) error { _, err := c.DeleteEntity(ctx, "p", "r", nil); return err }, aztables.ResourceNotFound},
		{"list", func(c *aztables.Client) error { _, err := c.NewListEntitiesPager(nil).NextPage(ctx); return err }, ""},
		{"upsert", func(c *aztables.Client) error { _, err := c.UpsertEntity(ctx, entity, nil); return err }, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			failure := wantFailure(t, c.call(absent), 404, aztables.TableNotFound)
			same(t, "message", messageOf(t, failure), "The table specified does not exist.")
			if err := c.call(table); c.code != "" {
				failure := wantFailure(t, err, 404, c.code)
				same(t, "message", messageOf(t, failure), "The specified resource does not exist.")
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	of(absent.AddEntity(ctx, entity, nil)).fails(t, 404, aztables.TableNotFound)
}

// What the caller holds when it names a precondition.
const (
	anyTag = "none, so *" // the SDK sends *
	latest = "the latest"
	stale  = "a stale one"
)

func TestUpdateEntity(t *testing.T) {
	before, after := members{"Old": "kept?", "Both": "old"}, members{"Both": "new", "New": true}
	merged := members{"Old": "kept?", "Both": "new", "New": true}
	cases := []struct {
		mode   aztables.UpdateMode
		tag    string
		result members // nil where 412 is due
	}{ // source: wire 3.9, 3.10
		{aztables.UpdateModeMerge, anyTag, merged},
		{aztables.UpdateModeMerge, latest, merged},
		{aztables.UpdateModeMerge, stale, nil},
		{aztables.UpdateModeReplace, anyTag, after},
		{aztables.UpdateModeReplace, latest, after},
		{aztables.UpdateModeReplace, stale, nil},
	}
	table := newTable(t)
	for _, c := range cases {
		t.Run(string(c.mode)+" with ETag "+c.tag, func(t *testing.T) {
			rowKey := freshName("r")
			old := add(t, table, withKeys("p", rowKey, before))
			options := &aztables.UpdateEntityOptions{UpdateMode: c.mode}
			if c.tag != anyTag {
				options.IfMatch = &old
			}
			current := old
			if c.tag == stale {
				again := of(table.UpdateEntity(ctx, encoded(t, withKeys("p", rowKey, before)), nil)).must(t)
				current = again.ETag
			}
			response, err := table.UpdateEntity(ctx, encoded(t, withKeys("p", rowKey, after)), options)
			entity := get(t, table, "p", rowKey)
			if c.result == nil {
				failure := wantFailure(t, err, 412, aztables.UpdateConditionNotSatisfied)
				same(t, "message", messageOf(t, failure), "The update condition specified in the request was not satisfied.")
				same(t, "properties", entity.Properties, before)
				same(t, "ETag stored", entity.ETag, string(current))
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			same(t, "properties", entity.Properties, c.result)
			same(t, "ETag stored", entity.ETag, string(response.ETag))
			if response.ETag == old {
				t.Error("the ETag did not change")
			}
		})
	}
}

func TestUpsertEntity(t *testing.T) {
	before, after := members{"Old": "kept?", "Both": "old"}, members{"Both": "new"}
	cases := []struct {
		name    string
		options *aztables.UpsertEntityOptions
		present bool
		result  members
	}{ // source: wire 3.9
		{"by default", nil, false, after},
		{"by default", nil, true, members{"Old": "kept?", "Both": "new"}},
		{"merge", &aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeMerge}, false, after},
		{"merge", &aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeMerge}, true, members{"Old": "kept?", "Both": "new"}},
		{"replace", &aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeReplace}, false, after},
		{"replace", &aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeReplace}, true, after},
	}
	table := newTable(t)
	for _, c := range cases {
		name := c.name + " of an absent entity"
		if c.present {
			name = c.name + " of a present entity"
		}
		t.Run(name, func(t *testing.T) {
			rowKey := freshName("r")
			if c.present {
				add(t, table, withKeys("p", rowKey, before))
			}
			response := of(table.UpsertEntity(ctx, encoded(t, withKeys("p", rowKey, after)), c.options)).must(t)
			entity := get(t, table, "p", rowKey)
			same(t, "properties", entity.Properties, c.result)
			same(t, "ETag stored", entity.ETag, string(response.ETag))
		})
	}
}

func TestDeleteEntity(t *testing.T) {
	table := newTable(t)
	for _, tag := range []string{anyTag, latest, stale} { // source: wire 3.9
		t.Run("with ETag "+tag, func(t *testing.T) {
			entity := withKeys("p", freshName("r"), nil)
			rowKey := entity["RowKey"].(string)
			held := add(t, table, entity)
			if tag == stale {
				of(table.UpdateEntity(ctx, encoded(t, entity), nil)).must(t)
			}
			options := &aztables.DeleteEntityOptions{}
			if tag != anyTag {
				options.IfMatch = &held
			}
			_, err := table.DeleteEntity(ctx, "p", rowKey, options)
			if tag == stale {
				wantFailure(t, err, 412, aztables.UpdateConditionNotSatisfied)
				get(t, table, "p", rowKey)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			of(table.GetEntity(ctx, "p", rowKey, nil)).fails(t, 404, aztables.ResourceNotFound)
		})
	}
}

func TestMalformedETagIsRefused(t *testing.T) { // wire 4: the recorded request of this SDK's own tests
	table := newTable(t)
	add(t, table, withKeys("p", "r", nil))
	_, err := table.DeleteEntity(ctx, "p", "r",
		&aztables.DeleteEntityOptions{IfMatch: to.Ptr(azcore.ETag("GolangRocksOnAzure"))})
	failure := wantFailure(t, err, 400, aztables.InvalidInput)
	same(t, "message", messageOf(t, failure), "The etag value 'GolangRocksOnAzure' specified in one of the request "+
		"headers is not valid. Please make sure only one etag value is specified and is valid.")
}

var unusualKeys = []string{ // wire 1.3
	" ", " lead and trail ", "it's", "''", "a%20b", "100%", "1+1=2", "a,b;c", "a&b=c", `"double"`, "a:b@c!$*(){}[]<>|^`~",
	"é", "中文", "😀 astral", "%27", "PartitionKey='x'",
}

func TestUnusualKeys(t *testing.T) {
	table := newTable(t)
	for index, key := range unusualKeys {
		other := unusualKeys[len(unusualKeys)-1-index]
		t.Run(key, func(t *testing.T) {
			add(t, table, withKeys(key, other, members{"N": 1}))
			same(t, "N as added", get(t, table, key, other).Properties["N"], int32(1))
			of(table.UpdateEntity(ctx, encoded(t, withKeys(key, other, members{"N": 2})), nil)).must(t)
			of(table.UpsertEntity(ctx, encoded(t, withKeys(key, other, members{"M": 3})), nil)).must(t)
			filter := "PartitionKey eq '" + strings.ReplaceAll(key, "'", "''") +
				"' and RowKey eq '" + strings.ReplaceAll(other, "'", "''") + "'"
			page := of(table.NewListEntitiesPager(filtered(filter)).NextPage(ctx)).must(t)
			if len(page.Entities) != 1 {
				t.Fatalf("%s finds %d entities", filter, len(page.Entities))
			}
			entity := decoded(t, page.Entities[0])
			same(t, "keys", []string{entity.PartitionKey, entity.RowKey}, []string{key, other})
			same(t, "properties", entity.Properties, members{"N": int32(2), "M": int32(3)})
			of(table.DeleteEntity(ctx, key, other, nil)).must(t)
		})
	}
	same(t, "entities left", len(rowKeysOf(t, table, nil)), 0)
}

// The SDK refuses to address an entity by an empty PartitionKey; inserts, listings and filters are all it has for it.
func TestEmptyKeys(t *testing.T) { // wire 1.3
	table := newTable(t)
	for _, keys := range [][2]string{{"", ""}, {"", "r"}, {"p", ""}} {
		add(t, table, withKeys(keys[0], keys[1], members{"Name": "x"}))
	}
	same(t, "rows", rowKeysOf(t, table, nil), []string{"", "r", ""})
	same(t, "rows", rowKeysOf(t, table, filtered("PartitionKey eq ''")), []string{"", "r"})
	same(t, "rows", rowKeysOf(t, table, filtered("PartitionKey eq 'p' and RowKey eq ''")), []string{""})

	same(t, "properties", get(t, table, "p", "").Properties, members{"Name": "x"})
	of(table.UpsertEntity(ctx, encoded(t, withKeys("p", "", members{"N": 1})), nil)).must(t)
	same(t, "properties", get(t, table, "p", "").Properties, members{"Name": "x", "N": int32(1)})
	of(table.DeleteEntity(ctx, "p", "", nil)).must(t)
	_, err := table.GetEntity(ctx, "", "r", nil)
	if err == nil || err.Error() != "parameter partitionKey cannot be empty" {
		t.Error(err)
	}
}

func TestForbiddenKeyCharacters(t *testing.T) { // wire 1.3, 9
	table := newTable(t)
	for _, key := range []string{"a/b", `a\b`, "a#b", "a?b", "a\tb", "a\u007fb", "a\u0085b"} {
		t.Run(key, func(t *testing.T) {
			failure := of(table.AddEntity(ctx, encoded(t, withKeys("p", key, nil)), nil)).fails(t, 400, aztables.OutOfRangeInput)
			same(t, "message", messageOf(t, failure), "The 'RowKey' parameter of value '"+key+"' is out of range.")
		})
	}
}

// EDMEntity doubles the quotes of its keys in the body, whoever receives it. An insert therefore stores the doubled text;
// a transaction's upsert has the key once in the URL and doubled in the body, and the URL decides (wire 3.10).
func TestQuotedKeysOfEDMEntity(t *testing.T) {
	table := newTable(t)
	quoted := aztables.EDMEntity{Entity: aztables.Entity{PartitionKey: "p", RowKey: "it's"}}
	of(table.AddEntity(ctx, encoded(t, quoted), nil)).must(t)
	same(t, "rows after the insert", rowKeysOf(t, table, nil), []string{"it''s"})
	for _, kind := range []aztables.TransactionType{aztables.TransactionTypeInsertMerge, aztables.TransactionTypeInsertReplace} {
		_, err := table.SubmitTransaction(ctx, []aztables.TransactionAction{
			{ActionType: kind, Entity: encoded(t, quoted)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "rows after the transaction", rowKeysOf(t, table, nil), []string{"it''s", "it's"})
	}
}
