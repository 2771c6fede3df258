package sdk

import (
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

const (
	authenticationFailed aztables.TableErrorCode = "AuthenticationFailed"
	authorizationFailure aztables.TableErrorCode = "AuthorizationFailure"
	permissionMismatch   aztables.TableErrorCode = "AuthorizationPermissionMismatch"
	resourceTypeMismatch aztables.TableErrorCode = "AuthorizationResourceTypeMismatch"
	protocolMismatch     aztables.TableErrorCode = "AuthorizationProtocolMismatch"
	sourceIPMismatch     aztables.TableErrorCode = "AuthorizationSourceIPMismatch"
)

var (
	policyStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	policyEnd   = time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)
)

// A service client that knows a signature and no key.
func signedService(t *testing.T, token string) *aztables.ServiceClient {
	t.Helper()
	client := of(aztables.NewServiceClientWithNoCredential(setting(t, "TABLESTONE_TEST_ENDPOINT")+"?"+token, options())).must(t)
	return client
}

// Signed here and not by GetAccountSASURL, whose signatures are for https alone (TestAccountSignatureOfTheClient).
func accountToken(t *testing.T, change func(*aztables.AccountSASSignatureValues)) string {
	t.Helper()
	values := aztables.AccountSASSignatureValues{
		Protocol:      "https,http",
		ExpiryTime:    time.Now().UTC().Add(time.Hour),
		Permissions:   "rwdlacu",
		Services:      "t",
		ResourceTypes: "sco",
	}
	if change != nil {
		change(&values)
	}
	signed := of(values.Sign(credential(t))).must(t)
	return signed.Encode()
}

func tableToken(t *testing.T, table string, permissions string, change func(*aztables.SASSignatureValues)) string {
	t.Helper()
	values := aztables.SASSignatureValues{
		TableName: table, Permissions: permissions, ExpiryTime: time.Now().UTC().Add(time.Hour),
	}
	if change != nil {
		change(&values)
	}
	token := of(values.Sign(credential(t))).must(t)
	return token
}

// A table with the entities p/a and p/b, and its name.
func filledTable(t *testing.T) (*aztables.Client, string) {
	t.Helper()
	name := freshName("go")
	svc := service(t)
	of(svc.CreateTable(ctx, name, nil)).must(t)
	t.Cleanup(func() {
		if _, err := svc.DeleteTable(ctx, name, nil); err != nil {
			t.Errorf("deleting the test's table: %v", err)
		}
	})
	table := svc.NewClient(name)
	add(t, table, withKeys("p", "a", nil))
	add(t, table, withKeys("p", "b", nil))
	return table, name
}

func listing(table *aztables.Client) error {
	_, err := table.NewListEntitiesPager(nil).NextPage(ctx)
	return err
}

func TestAccountSignature(t *testing.T) {
	svc := signedService(t, accountToken(t, nil))
	name := freshName("go")
	of(svc.CreateTable(ctx, name, nil)).must(t)
	table := svc.NewClient(name)
	add(t, table, withKeys("p", "it's +%20", nil))
	_, err := table.SubmitTransaction(ctx, []aztables.TransactionAction{
		{ActionType: aztables.TransactionTypeAdd, Entity: encoded(t, withKeys("p", "s", nil))},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the table", rowKeysOf(t, table, filtered("RowKey ge 'it'")), []string{"it's +%20", "s"})
	of(svc.DeleteTable(ctx, name, nil)).must(t)
}

func TestAccountSignatureNeedsLetterAndResource(t *testing.T) {
	_, name := filledTable(t)
	reader := signedService(t, accountToken(t, func(v *aztables.AccountSASSignatureValues) { v.Permissions = "rl" })).NewClient(name)
	same(t, "what it reads", rowKeysOf(t, reader, nil), []string{"a", "b"})
	of(reader.DeleteEntity(ctx, "p", "a", nil)).fails(t, 403, permissionMismatch)
	tables := signedService(t, accountToken(t, func(v *aztables.AccountSASSignatureValues) { v.ResourceTypes = "c" })).NewClient(name)
	wantFailure(t, listing(tables), 403, resourceTypeMismatch)
}

// What the client signs is for https: over http the service says so, and nothing else is wrong with it.
func TestAccountSignatureOfTheClient(t *testing.T) {
	_, name := filledTable(t)
	everything := aztables.AccountSASPermissions{Read: true, List: true}
	resources := aztables.AccountSASResourceTypes{Service: true, Container: true, Object: true}
	signed := of(service(t).GetAccountSASURL(resources, everything, time.Time{}, time.Now().Add(time.Hour))).must(t)
	client := of(aztables.NewServiceClientWithNoCredential(signed, options())).must(t)
	address := of(url.Parse(signed)).must(t)
	if address.Scheme == "https" {
		same(t, "what it reads", rowKeysOf(t, client.NewClient(name), nil), []string{"a", "b"})
	} else {
		wantFailure(t, listing(client.NewClient(name)), 403, protocolMismatch)
	}
}

func TestTableSignature(t *testing.T) {
	table, name := filledTable(t)
	signed := of(table.GetTableSASURL(aztables.SASPermissions{Read: true, Add: true}, time.Time{}, time.Now().Add(time.Hour))).must(t)
	_, token, _ := strings.Cut(signed, "?") // the SDK glues the table's name to an endpoint that ends without a slash
	limited := of(aztables.NewClientWithNoCredential(setting(t, "TABLESTONE_TEST_ENDPOINT")+"/"+name+"?"+token, options())).must(t)
	add(t, limited, withKeys("p", "c", nil))
	same(t, "what it reads", rowKeysOf(t, limited, nil), []string{"a", "b", "c"})
	of(limited.DeleteEntity(ctx, "p", "a", nil)).fails(t, 403, permissionMismatch)
	of(limited.UpsertEntity(ctx, encoded(t, withKeys("p", "a", nil)), nil)).fails(t, 403, permissionMismatch)
	of(limited.Delete(ctx, nil)).fails(t, 403, authorizationFailure)

	svc := signedService(t, tableToken(t, name, "r", nil))
	wantFailure(t, listing(svc.NewClient(name+"2")), 403, authenticationFailed)
	of(svc.CreateTable(ctx, freshName("go"), nil)).fails(t, 403, authorizationFailure)
}

func TestConditionsOfSignatures(t *testing.T) {
	_, name := filledTable(t)
	cases := map[string]struct {
		change func(*aztables.SASSignatureValues)
		code   aztables.TableErrorCode
	}{
		"expired":         {func(v *aztables.SASSignatureValues) { v.ExpiryTime = policyStart }, authenticationFailed},
		"not yet":         {func(v *aztables.SASSignatureValues) { v.StartTime = policyEnd; v.ExpiryTime = policyEnd.Add(time.Hour) }, authenticationFailed},
		"another address": {func(v *aztables.SASSignatureValues) { v.IPRange = aztables.IPRange{Start: net.IPv4(10, 0, 0, 1)} }, sourceIPMismatch},
		"https":           {func(v *aztables.SASSignatureValues) { v.Protocol = "https" }, protocolMismatch},
		"these addresses": {func(v *aztables.SASSignatureValues) {
			v.IPRange = aztables.IPRange{Start: net.IPv4(127, 0, 0, 0), End: net.IPv4(127, 0, 0, 9)}
		}, ""},
	}
	for title, one := range cases {
		t.Run(title, func(t *testing.T) {
			err := listing(signedService(t, tableToken(t, name, "r", one.change)).NewClient(name))
			if one.code != "" {
				wantFailure(t, err, 403, one.code)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestKeyUpdatedInUse(t *testing.T) {
	_, name := filledTable(t)
	used := credential(t)
	svc := of(aztables.NewServiceClientWithSharedKey(setting(t, "TABLESTONE_TEST_ENDPOINT"), used, options())).must(t)
	table := svc.NewClient(name)
	for _, one := range []struct {
		key  string
		code aztables.TableErrorCode
	}{{"bm90IHRoZSBrZXk=", authenticationFailed}, {setting(t, "TABLESTONE_TEST_KEY"), ""}, {"bm90IHRoZSBrZXk=", authenticationFailed}} {
		if err := used.SetAccountKey(one.key); err != nil {
			t.Fatal(err)
		}
		if err := listing(table); one.code != "" {
			wantFailure(t, err, 403, one.code)
		} else if err != nil {
			t.Error(err)
		}
	}
}

func setPolicies(t *testing.T, table *aztables.Client, policies ...*aztables.SignedIdentifier) error {
	t.Helper()
	_, err := table.SetAccessPolicy(ctx, &aztables.SetAccessPolicyOptions{TableACL: policies})
	return err
}

func storedPolicy(id, permission string, start, expiry *time.Time) *aztables.SignedIdentifier {
	return &aztables.SignedIdentifier{
		ID:           to.Ptr(id),
		AccessPolicy: &aztables.AccessPolicy{Permission: to.Ptr(permission), Start: start, Expiry: expiry},
	}
}

func TestStoredAccessPolicies(t *testing.T) {
	table, _ := filledTable(t)
	before := of(table.GetAccessPolicy(ctx, nil)).must(t)
	same(t, "the number of policies of a new table", len(before.SignedIdentifiers), 0)
	if err := setPolicies(t, table, storedPolicy("full", "raud", &policyStart, &policyEnd), storedPolicy("<&>", "r", nil, nil)); err != nil {
		t.Fatal(err)
	}
	found := of(table.GetAccessPolicy(ctx, nil)).must(t)
	same(t, "the number of policies", len(found.SignedIdentifiers), 2)
	full := found.SignedIdentifiers[0]
	same(t, "id", *full.ID, "full")
	same(t, "permission", *full.AccessPolicy.Permission, "raud")
	same(t, "start", full.AccessPolicy.Start.UTC(), policyStart)
	same(t, "expiry", full.AccessPolicy.Expiry.UTC(), policyEnd)
	same(t, "id", *found.SignedIdentifiers[1].ID, "<&>")
	twice := storedPolicy("twice", "r", nil, nil) // six are refused by the SDK itself
	wantFailure(t, setPolicies(t, table, twice, twice), 400, "InvalidXmlDocument")
	if err := setPolicies(t, table); err != nil {
		t.Fatal(err)
	}
}

func TestPolicyActsOnTheNextRequest(t *testing.T) {
	table, name := filledTable(t)
	token := tableToken(t, name, "", func(v *aztables.SASSignatureValues) { v.Identifier = "readers"; v.ExpiryTime = time.Time{} })
	reader := signedService(t, token).NewClient(name)
	wantFailure(t, listing(reader), 403, authenticationFailed)
	for _, one := range []struct {
		permission string
		expiry     time.Time
		code       aztables.TableErrorCode
	}{
		{"r", policyEnd, ""},
		{"a", policyEnd, permissionMismatch},
		{"r", policyStart, authenticationFailed},
		{"raud", policyEnd, ""},
	} {
		if err := setPolicies(t, table, storedPolicy("readers", one.permission, nil, &one.expiry)); err != nil {
			t.Fatal(err)
		}
		if err := listing(reader); one.code != "" {
			wantFailure(t, err, 403, one.code)
		} else if err != nil {
			t.Error(err)
		}
	}
	if err := setPolicies(t, table); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, listing(reader), 403, authenticationFailed)
}
