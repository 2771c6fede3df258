package sdk

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

func TestServiceClientCreatesAndDeletesATable(t *testing.T) {
	svc, name := service(t), freshName("Go")
	created := of(svc.CreateTable(ctx, name, nil)).must(t)
	same(t, "the name echoed", *created.TableName, name)
	of(svc.DeleteTable(ctx, name, nil)).must(t)
	failure := of(svc.DeleteTable(ctx, name, nil)).fails(t, 404, aztables.ResourceNotFound)
	same(t, "message", messageOf(t, failure), "The specified resource does not exist.") // wire 3.4
}

func TestTableClientCreatesAndDeletesItsTable(t *testing.T) {
	table, err := aztables.NewClientWithSharedKey(
		setting(t, "TABLESTONE_TEST_ENDPOINT")+"/"+freshName("go"), credential(t), options())
	if err != nil {
		t.Fatal(err)
	}
	of(table.CreateTable(ctx, nil)).must(t)
	add(t, table, withKeys("p", "r", nil))
	of(table.Delete(ctx, nil)).must(t)
	of(table.GetEntity(ctx, "p", "r", nil)).fails(t, 404, aztables.TableNotFound) // wire 3.4: at once invisible
}

func TestConnectionString(t *testing.T) {
	text := fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;TableEndpoint=%s",
		setting(t, "TABLESTONE_TEST_ACCOUNT"), setting(t, "TABLESTONE_TEST_KEY"), setting(t, "TABLESTONE_TEST_ENDPOINT"))
	svc := of(aztables.NewServiceClientFromConnectionString(text, options())).must(t)
	name := freshName("go")
	of(svc.CreateTable(ctx, name, nil)).must(t)
	of(svc.DeleteTable(ctx, name, nil)).must(t)
}

func TestCreateTableThatExists(t *testing.T) {
	svc, name := service(t), freshName("go")
	of(svc.CreateTable(ctx, name, nil)).must(t)
	defer svc.DeleteTable(ctx, name, nil)
	for _, again := range []string{name, strings.ToUpper(name)} { // wire 1.4: case is ignored
		failure := of(svc.CreateTable(ctx, again, nil)).fails(t, 409, aztables.TableAlreadyExists)
		same(t, "message", messageOf(t, failure), "The table specified already exists.")
	}
}

func TestTableNamesRefused(t *testing.T) {
	const characters = "The specifed resource name contains invalid characters."
	const length = "The specified resource name length is not within the permissible limits."
	cases := []struct {
		name, message string
		code          aztables.TableErrorCode
	}{ // source: wire 1.4
		{"with-hyphen", characters, "InvalidResourceName"},
		{"with blank", characters, "InvalidResourceName"},
		{"1digitfirst", characters, "InvalidResourceName"},
		{"tablé", characters, "InvalidResourceName"},
		{"ab", length, aztables.OutOfRangeInput},
		{strings.Repeat("a", 64), length, aztables.OutOfRangeInput},
		{"tables", "One of the request inputs is not valid.", aztables.InvalidInput},
		{"Tables", "One of the request inputs is not valid.", aztables.InvalidInput},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			failure := of(service(t).CreateTable(ctx, c.name, nil)).fails(t, 400, c.code)
			same(t, "message", messageOf(t, failure), c.message)
		})
	}
}

// Tables of one test share a prefix, and this idiom lists them (wire 3.1).
func prefixed(prefix string) string {
	return fmt.Sprintf("TableName ge '%s' and TableName lt '%s{'", prefix, prefix)
}

func fourTables(t *testing.T) (*aztables.ServiceClient, string) {
	t.Helper()
	svc, prefix := service(t), freshName("GoList")
	for _, last := range []string{"C", "a", "D", "b"} {
		of(svc.CreateTable(ctx, prefix+last, nil)).must(t)
		t.Cleanup(func() { svc.DeleteTable(ctx, prefix+last, nil) })
	}
	return svc, prefix
}

func tablePages(t *testing.T, svc *aztables.ServiceClient, list *aztables.ListTablesOptions) [][]string {
	t.Helper()
	pages := [][]string{}
	for pager := svc.NewListTablesPager(list); pager.More(); {
		page := of(pager.NextPage(ctx)).must(t)
		names := []string{}
		for _, table := range page.Tables {
			names = append(names, *table.Name)
		}
		pages = append(pages, names)
	}
	return pages
}

func TestListTablesKeepsCaseAndOrders(t *testing.T) {
	svc, prefix := fourTables(t)
	pages := tablePages(t, svc, &aztables.ListTablesOptions{Filter: to.Ptr(prefixed(prefix))})
	same(t, "tables", pages, [][]string{{prefix + "a", prefix + "b", prefix + "C", prefix + "D"}})
	all := map[string]bool{}
	for _, page := range tablePages(t, svc, nil) {
		for _, name := range page {
			all[name] = true
		}
	}
	for _, last := range []string{"a", "b", "C", "D"} {
		if !all[prefix+last] {
			t.Errorf("%s is missing in the listing of all tables", prefix+last)
		}
	}
}

func TestListTablesInPages(t *testing.T) {
	svc, prefix := fourTables(t)
	three := &aztables.ListTablesOptions{Filter: to.Ptr(prefixed(prefix)), Top: to.Ptr(int32(3))}
	same(t, "pages", tablePages(t, svc, three), [][]string{{prefix + "a", prefix + "b", prefix + "C"}, {prefix + "D"}})

	first := of(svc.NewListTablesPager(three).NextPage(ctx)).must(t)
	if first.NextTableName == nil {
		t.Fatal("the first page carries no continuation token")
	}
	resumed := &aztables.ListTablesOptions{Filter: three.Filter, Top: three.Top, NextTableName: first.NextTableName}
	same(t, "resumed", tablePages(t, svc, resumed), [][]string{{prefix + "D"}})
}

func TestListTablesMetadata(t *testing.T) {
	svc, prefix := fourTables(t)
	cases := []struct {
		format  aztables.MetadataFormat
		members int
	}{ // source: wire 3.1
		{aztables.MetadataFormatNone, 0},
		{aztables.MetadataFormatMinimal, 0},
		{aztables.MetadataFormatFull, 3},
	}
	for _, c := range cases {
		t.Run(string(c.format), func(t *testing.T) {
			page, err := svc.NewListTablesPager(&aztables.ListTablesOptions{
				Filter: to.Ptr("TableName eq '" + prefix + "C'"), Format: to.Ptr(c.format)}).NextPage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			same(t, "tables found", len(page.Tables), 1)
			got := members{}
			if value := page.Tables[0].Value; len(value) > 0 {
				if err := json.Unmarshal(value, &got); err != nil {
					t.Fatal(err)
				}
			}
			same(t, "odata members", len(got), c.members)
			if c.members > 0 {
				name := prefix + "C"
				same(t, "odata.type", got["odata.type"], setting(t, "TABLESTONE_TEST_ACCOUNT")+".Tables")
				same(t, "odata.id", got["odata.id"], setting(t, "TABLESTONE_TEST_ENDPOINT")+"/Tables('"+name+"')")
				same(t, "odata.editLink", got["odata.editLink"], "Tables('"+name+"')")
			}
		})
	}
}

func TestWrongKeyIsRefused(t *testing.T) {
	cred := of(aztables.NewSharedKeyCredential(setting(t, "TABLESTONE_TEST_ACCOUNT"), "bm90IHRoZSBrZXkgb2YgdGhlIGFjY291bnQ=")).must(t)
	svc := of(aztables.NewServiceClientWithSharedKey(setting(t, "TABLESTONE_TEST_ENDPOINT"), cred, options())).must(t)
	of(svc.NewListTablesPager(nil).NextPage(ctx)).fails(t, 403, "AuthenticationFailed") // wire 8.4
	_, err := svc.NewClient("any").SubmitTransaction(ctx, []aztables.TransactionAction{
		{ActionType: aztables.TransactionTypeAdd, Entity: encoded(t, withKeys("p", "r", nil))}}, nil)
	wantFailure(t, err, 403, "AuthenticationFailed") // wire 7.3: the outer answer
}
