// The tests of the orders, with faults, a snapshot and a clock over HTTP.
package orders

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

type members map[string]any

var (
	ctx    = context.Background()
	server *tablestone
	order  = members{"PartitionKey": "anna", "RowKey": "1", "total": 5.0, "status": "new"}
)

func TestMain(m *testing.M) {
	started, err := startTablestone()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server = started
	status := m.Run()
	server.stop()
	os.Exit(status)
}

// scene is an empty account for one test.
type scene struct {
	*testing.T
	orders  Orders
	account struct {
		Name             string
		Endpoint         string
		ConnectionString string `json:"connection_string"`
	}
}

func newScene(t *testing.T) *scene {
	test := &scene{T: t}
	test.ask("POST", "/accounts", members{}, &test.account)
	t.Cleanup(func() {
		test.ask("DELETE", "/faults", nil, nil)
		test.ask("POST", "/clock/reset", nil, nil)
	})
	service, err := aztables.NewServiceClientFromConnectionString(test.account.ConnectionString, nil)
	test.must(err)
	test.orders = Orders{service.NewClient("Orders")}
	_, err = test.orders.Table.CreateTable(ctx, nil)
	test.must(err)
	return test
}

func (test *scene) must(err error) {
	test.Helper()
	if err != nil {
		test.Fatal(err)
	}
}

func (test *scene) ask(method, path string, given, value any) {
	test.Helper()
	test.must(server.ask(method, path, given, value))
}

func (test *scene) expect(got, wanted any) {
	test.Helper()
	if !reflect.DeepEqual(got, wanted) {
		test.Fatalf("%v, expected %v", got, wanted)
	}
}

func (test *scene) dump() map[string][]members {
	test.Helper()
	var found map[string][]members
	test.ask("GET", "/dump?account="+test.account.Name, nil, &found)
	return found
}

func (test *scene) statuses(operation string) []int {
	test.Helper()
	var made struct {
		Requests []struct {
			Account, Operation string
			Status             int
		}
	}
	test.ask("GET", "/requests", nil, &made)
	found := []int{}
	for _, each := range made.Requests {
		if each.Account == test.account.Name && each.Operation == operation {
			found = append(found, each.Status)
		}
	}
	return found
}

func TestAnOrderIsPlacedThoughTheServerIsBusy(t *testing.T) {
	test := newScene(t)
	busy := members{"operation": "InsertEntity", "count": 2, "error": "ServerBusy", "retry_after": 0}
	test.ask("POST", "/faults", busy, nil)
	test.must(test.orders.Place(ctx, "anna", "1", 5))
	test.expect(test.statuses("InsertEntity"), []int{503, 503, 201})
}

func TestAnOrderWhoseAnswerWasLostIsStoredOnce(t *testing.T) {
	test := newScene(t)
	test.ask("POST", "/faults", members{"operation": "InsertEntity", "count": 1, "reset": "after"}, nil)
	test.must(test.orders.Place(ctx, "anna", "1", 5))
	test.expect(test.dump(), map[string][]members{"Orders": {order}})
}

func TestAPaymentThatIsOvertakenIsMadeAgain(t *testing.T) {
	test := newScene(t)
	test.ask("POST", "/seed?account="+test.account.Name, members{"Orders": []members{order}}, nil)
	test.ask("POST", "/faults", members{"conflict": true, "count": 1}, nil)
	test.must(test.orders.Pay(ctx, "anna", "1"))
	test.expect(test.statuses("MergeEntity"), []int{412, 204})
	found, err := test.orders.Of(ctx, "anna")
	test.must(err)
	test.expect(found, []Order{{"anna", "1", 5, "paid"}})
}

func TestASnapshotBringsEverythingBack(t *testing.T) {
	test := newScene(t)
	test.must(test.orders.Place(ctx, "anna", "1", 5))
	var snapshot struct{ ID string }
	test.ask("POST", "/snapshots", nil, &snapshot)
	test.must(test.orders.Pay(ctx, "anna", "1"))
	test.ask("POST", "/snapshots/"+snapshot.ID+"/restore", nil, nil)
	test.expect(test.dump(), map[string][]members{"Orders": {order}})
}

func TestASignatureExpires(t *testing.T) {
	test := newScene(t)
	signed, err := test.orders.Table.GetTableSASURL(
		aztables.SASPermissions{Read: true}, time.Time{}, time.Now().Add(time.Hour),
	)
	test.must(err)
	_, signature, _ := strings.Cut(signed, "?")
	service, err := aztables.NewServiceClientWithNoCredential(test.account.Endpoint+"?"+signature, nil)
	test.must(err)
	guest := Orders{service.NewClient("Orders")}
	_, err = guest.Of(ctx, "anna")
	test.must(err)
	test.ask("POST", "/clock/advance", members{"hours": 2}, nil)
	if _, err = guest.Of(ctx, "anna"); !hasStatus(err, http.StatusForbidden) {
		test.Fatalf("%v, expected 403", err)
	}
}

func TestTheOrdersOfACustomerCostOneRequest(t *testing.T) {
	test := newScene(t)
	var before struct{ Count int }
	test.ask("GET", "/requests", nil, &before)
	_, err := test.orders.Of(ctx, "anna")
	test.must(err)
	var cost struct{ Complaints []string }
	limits := members{"since": before.Count, "scans": 0, "requests": 1, "account": test.account.Name}
	test.ask("POST", "/cost", limits, &cost)
	test.expect(cost.Complaints, []string{})
}
