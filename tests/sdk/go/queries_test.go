package sdk

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

var noon = time.Date(2020, 2, 29, 12, 0, 0, 123456700, time.UTC)

// Rows 1 to 4 of partition p; row 4 has no property of its own. Row 5 is alone in q.
func fiveEntities(t *testing.T) *aztables.Client {
	t.Helper()
	table := newTable(t)
	for row := 1; row <= 5; row++ {
		entity := aztables.EDMEntity{Entity: aztables.Entity{PartitionKey: "p", RowKey: fmt.Sprint(row)}}
		if row != 4 {
			entity.Properties = members{
				"Name": fmt.Sprintf("it's %c", 'a'+row-1), "Number": int32(row), "Large": aztables.EDMInt64(row) << 40,
				"Ratio": float64(row) + 0.5, "Even": row%2 == 0, "When": aztables.EDMDateTime(noon.AddDate(0, 0, row)),
				"Id":    aztables.EDMGUID(fmt.Sprintf("0000000%d-0000-4000-8000-000000000000", row)),
				"Bytes": aztables.EDMBinary{byte(row), 0xff},
			}
		}
		if row == 5 {
			entity.PartitionKey = "q"
		}
		of(table.AddEntity(ctx, encoded(t, entity), nil)).must(t)
	}
	return table
}

func TestFilters(t *testing.T) {
	table := fiveEntities(t)
	cases := []struct {
		filter string
		rows   []string
	}{ // source: wire 6.1 to 6.4
		{"PartitionKey eq 'p'", []string{"1", "2", "3", "4"}},
		{"PartitionKey eq 'p' and RowKey eq '2'", []string{"2"}},
		{"PartitionKey eq 'p' and RowKey ge '2' and RowKey lt '4'", []string{"2", "3"}},
		{"PartitionKey gt 'p'", []string{"5"}},
		{"(PartitionKey eq 'q') or (RowKey eq '1')", []string{"1", "5"}},
		{"'p' lt PartitionKey", []string{"5"}},
		{"Name eq 'it''s b'", []string{"2"}},
		{"Name gt 'it''s b'", []string{"3", "5"}},
		{"Number gt 2", []string{"3", "5"}},
		{"Number ne 2", []string{"1", "3", "5"}}, // row 4 has no Number
		{"not (Number eq 2)", []string{"1", "3", "4", "5"}},
		{"Large eq 2199023255552L", []string{"2"}},
		{"Large eq 2199023255552L", []string{"2"}},
		{"Ratio le 2.5", []string{"1", "2"}},
		{"Even eq true", []string{"2"}},
		{"Even", []string{"2"}},
		{"not Even and PartitionKey eq 'p'", []string{"1", "3", "4"}},
		{"When gt datetime'2020-03-03T12:00:00.1234566Z'", []string{"3", "5"}},
		{"When eq datetime'2020-03-03T12:00:00.1234567Z'", []string{"3"}},
		{"Id eq guid'00000003-0000-4000-8000-000000000000'", []string{"3"}},
		{"Bytes eq X'02ff'", []string{"2"}},
		{"Bytes ge binary'03'", []string{"3", "5"}},
		{"Number gt 1 and not (Even or Ratio gt 4.0)", []string{"3"}},
		{"Absent eq 1", []string{}},
		{"Timestamp gt datetime'2000-01-01T00:00:00Z'", []string{"1", "2", "3", "4", "5"}},
		{"Number eq 1.0", []string{}},               // wire 6.4: a literal is never narrowed
		{"Name lt 5", []string{"1", "2", "3", "5"}}, // wire 6.4: a mismatch reads as less
	}
	for _, c := range cases {
		t.Run(c.filter, func(t *testing.T) {
			same(t, "rows", rowKeysOf(t, table, filtered(c.filter)), c.rows)
		})
	}
}

func TestFiltersRefused(t *testing.T) {
	table := fiveEntities(t)
	cases := []struct {
		filter  string
		status  int
		code    aztables.TableErrorCode
		message string // "" where the text is open
	}{ // source: wire 6.4, 6.5, 6.8
		{"aaa bbb ccc", 400, aztables.InvalidInput, "Syntax error at position 7 in 'aaa bbb ccc'."},
		{"Number EQ 1", 400, aztables.InvalidInput, ""},
		{"Number eq", 400, aztables.InvalidInput, ""},
		{"PartitionKey eq 5", 400, aztables.InvalidInput, "A binary operator with incompatible types was detected. " +
			"Found operand types 'Edm.String' and 'Edm.Int32' for operator kind 'Equal'."},
		{"1 eq 2", 501, aztables.NotImplemented, "The requested operation is not implemented on the specified resource."},
	}
	for _, c := range cases {
		t.Run(c.filter, func(t *testing.T) {
			failure := of(table.NewListEntitiesPager(filtered(c.filter)).NextPage(ctx)).fails(t, c.status, c.code)
			if c.message != "" {
				same(t, "message", messageOf(t, failure), c.message)
			}
		})
	}
}

func TestSelect(t *testing.T) { // wire 5.6
	table := fiveEntities(t)
	page, err := table.NewListEntitiesPager(&aztables.ListEntitiesOptions{
		Filter: to.Ptr("RowKey eq '1'"), Select: to.Ptr("RowKey,Number,Absent")}).NextPage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := members{}
	if err := json.Unmarshal(page.Entities[0], &got); err != nil {
		t.Fatal(err)
	}
	if _, found := got["odata.etag"]; !found {
		t.Error("a projection keeps odata.etag")
	}
	delete(got, "odata.etag")
	same(t, "members", got, members{"RowKey": "1", "Number": float64(1), "Absent": nil})
}

func TestTopIsThePageSize(t *testing.T) { // wire 6.7
	table := fiveEntities(t)
	two := &aztables.ListEntitiesOptions{Top: to.Ptr(int32(2))}
	same(t, "pages", pagesOf(t, table, two), [][]string{{"1", "2"}, {"3", "4"}, {"5"}})
	five := &aztables.ListEntitiesOptions{Top: to.Ptr(int32(5))}
	same(t, "pages", rowKeysOf(t, table, five), []string{"1", "2", "3", "4", "5"})
	zero := &aztables.ListEntitiesOptions{Top: to.Ptr(int32(0))}
	same(t, "pages", pagesOf(t, table, zero), [][]string{{}})
	for _, top := range []int32{1001, -1} {
		failure := of(table.NewListEntitiesPager(&aztables.ListEntitiesOptions{Top: to.Ptr(top)}).NextPage(ctx)).fails(t, 400, aztables.InvalidInput)
		same(t, "message", messageOf(t, failure), "One of the request inputs is not valid.")
	}
}

func TestListingResumesFromAContinuationToken(t *testing.T) { // wire 6.9
	table := fiveEntities(t)
	list := &aztables.ListEntitiesOptions{Top: to.Ptr(int32(2)), Filter: to.Ptr("Number ge 1")}
	first := of(table.NewListEntitiesPager(list).NextPage(ctx)).must(t)
	if first.NextPartitionKey == nil || first.NextRowKey == nil {
		t.Fatal("the first page carries no continuation token")
	}
	list.NextPartitionKey, list.NextRowKey = first.NextPartitionKey, first.NextRowKey
	same(t, "rows resumed", rowKeysOf(t, table, list), []string{"3", "5"})
}

func TestPagesOverUnusualKeys(t *testing.T) { // wire 6.9, 6.10: a token for every key, in ordinal order
	table := newTable(t)
	want := []string{"", " ", "%", "'", "+", "1!4!cA--", ";", "A", "a", "a b", "é", "中", "😀", "\uffee"}
	for _, key := range want {
		add(t, table, withKeys(key, key, nil))
	}
	pages := pagesOf(t, table, &aztables.ListEntitiesOptions{Top: to.Ptr(int32(1))})
	got := []string{}
	for _, page := range pages {
		got = append(got, page...)
	}
	same(t, "keys in order", got, want)
}

func TestAPageHoldsAThousand(t *testing.T) { // wire 6.6
	table := newTable(t)
	for first := 0; first < 1001; first += 100 {
		actions := []aztables.TransactionAction{}
		for row := first; row < min(first+100, 1001); row++ {
			actions = append(actions, aztables.TransactionAction{ActionType: aztables.TransactionTypeAdd,
				Entity: encoded(t, withKeys("p", fmt.Sprintf("%04d", row), nil))})
		}
		of(table.SubmitTransaction(ctx, actions, nil)).must(t)
	}
	sizes, next := []int{}, 0
	for _, page := range pagesOf(t, table, nil) {
		sizes = append(sizes, len(page))
		for _, rowKey := range page {
			same(t, "row", rowKey, fmt.Sprintf("%04d", next))
			next++
		}
	}
	same(t, "page sizes", sizes, []int{1000, 1})
}
