// Interchange is this SDK's side of tests/sdk/interchange/README.md, contract 1: it writes the entities of a description
// with the types of aztables and reads a table back into the description's terms. It does not know what a reader expects.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

const contract = 1

const instantLayout = "2006-01-02T15:04:05.0000000Z"

type property struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value string `json:"value"`
}

type description struct {
	Contract int `json:"contract"`
	Entities []struct {
		PartitionKey string     `json:"partitionKey"`
		RowKey       string     `json:"rowKey"`
		Properties   []property `json:"properties"`
	} `json:"entities"`
}

type line struct {
	Source       string      `json:"source,omitempty"`
	PartitionKey string      `json:"partitionKey"`
	RowKey       string      `json:"rowKey"`
	Properties   *[]property `json:"properties,omitempty"`
	Refused      string      `json:"refused,omitempty"`
}

func main() {
	if err := run(context.Background(), os.Args[1:], json.NewEncoder(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A credential that has a token and asks nobody for it.
type staticToken string

func (token staticToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(token), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// From the connection string; one with a signature in the place of the key makes the SDK forget the endpoint beside it.
func serviceClient() (*aztables.ServiceClient, error) {
	if token := os.Getenv("TABLESTONE_TEST_TOKEN"); token != "" {
		return aztables.NewServiceClient(os.Getenv("TABLESTONE_TEST_ENDPOINT"), staticToken(token), nil)
	}
	if signature := os.Getenv("TABLESTONE_TEST_SIGNATURE"); signature != "" {
		return aztables.NewServiceClientWithNoCredential(os.Getenv("TABLESTONE_TEST_ENDPOINT")+"?"+signature, nil)
	}
	return aztables.NewServiceClientFromConnectionString(os.Getenv("TABLESTONE_TEST_CONNECTION_STRING"), nil)
}

func run(ctx context.Context, arguments []string, out *json.Encoder) error {
	service, err := serviceClient()
	if err != nil {
		return err
	}
	switch {
	case len(arguments) == 3 && arguments[0] == "write":
		return write(ctx, service.NewClient(arguments[1]), arguments[2], out)
	case len(arguments) == 2 && arguments[0] == "read":
		return read(ctx, service.NewClient(arguments[1]), out)
	case len(arguments) == 2 && arguments[0] == "sign":
		return sign(service, arguments[1], out)
	case len(arguments) > 1 && arguments[0] == "attempt":
		for _, asked := range arguments[1:] {
			operation, table, _ := strings.Cut(asked, ":")
			if err := out.Encode(attempted{asked, attempt(ctx, service.NewClient(table), operation)}); err != nil {
				return err
			}
		}
		return nil
	default:
		return errors.New("usage: interchange write TABLE ENTITIES_JSON | read TABLE | sign TABLE | attempt OPERATION:TABLE ...")
	}
}

type attempted struct {
	Attempt string `json:"attempt"`
	Status  int    `json:"status"`
}

// With the retries that the SDK has by itself: 0, the status of its error, or -1 without an answer.
func attempt(ctx context.Context, table *aztables.Client, operation string) int {
	err := carryOut(ctx, table, operation)
	var answered *azcore.ResponseError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &answered):
		return answered.StatusCode
	default:
		return -1
	}
}

func carryOut(ctx context.Context, table *aztables.Client, operation string) error {
	entity := []byte(`{"PartitionKey": "p", "RowKey": "r"}`)
	switch operation {
	case "insert":
		_, err := table.AddEntity(ctx, entity, nil)
		return err
	case "get":
		_, err := table.GetEntity(ctx, "p", "r", nil)
		return err
	case "update":
		found, err := table.GetEntity(ctx, "p", "r", nil)
		if err != nil {
			return err
		}
		options := aztables.UpdateEntityOptions{IfMatch: &found.ETag, UpdateMode: aztables.UpdateModeReplace}
		_, err = table.UpdateEntity(ctx, entity, &options)
		return err
	default:
		return fmt.Errorf("unknown operation %s", operation)
	}
}

type signed struct {
	Signature string `json:"signature"`
	Token     string `json:"token"`
}

func sign(service *aztables.ServiceClient, table string, out *json.Encoder) error {
	expiry := time.Now().Add(time.Hour)
	everything := aztables.AccountSASPermissions{
		Read: true, Write: true, Delete: true, List: true, Add: true, Create: true, Update: true,
	}
	resources := aztables.AccountSASResourceTypes{Service: true, Container: true, Object: true}
	account, err := service.GetAccountSASURL(resources, everything, time.Time{}, expiry)
	if err != nil {
		return err
	}
	permissions := aztables.SASPermissions{Read: true, Add: true, Update: true, Delete: true}
	limited, err := service.NewClient(table).GetTableSASURL(permissions, time.Time{}, expiry)
	if err != nil {
		return err
	}
	for kind, url := range map[string]string{"account": account, "table": limited} {
		_, token, _ := strings.Cut(url, "?")
		if err := out.Encode(signed{kind, token}); err != nil {
			return err
		}
	}
	return nil
}

// An error that is not an answer of the service or of the network was raised before anything was sent.
func refused(err error) bool {
	var answered *azcore.ResponseError
	return err != nil && !errors.As(err, &answered) && strings.HasSuffix(err.Error(), "cannot be empty")
}

func write(ctx context.Context, table *aztables.Client, path string, out *json.Encoder) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var described description
	if err := json.Unmarshal(text, &described); err != nil {
		return err
	}
	if described.Contract != contract {
		return fmt.Errorf("contract %d, but this program knows %d", described.Contract, contract)
	}
	for _, entity := range described.Entities {
		// A map: EDMEntity would double the quotes of the keys, and has no way to mark a whole number as Edm.Double.
		members := map[string]any{"PartitionKey": entity.PartitionKey, "RowKey": entity.RowKey}
		for _, property := range entity.Properties {
			value, err := valueOf(property)
			if err != nil {
				return fmt.Errorf("%s: %w", property.Name, err)
			}
			members[property.Name], members[property.Name+"@odata.type"] = value, property.Type
		}
		body, err := json.Marshal(members)
		if err != nil {
			return err
		}
		if _, err = table.AddEntity(ctx, body, nil); refused(err) {
			err = out.Encode(line{PartitionKey: entity.PartitionKey, RowKey: entity.RowKey, Refused: err.Error()})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The value as the SDK's type; doubles that JSON has no number for go as the service's text.
func valueOf(property property) (any, error) {
	switch property.Type {
	case "Edm.String":
		return property.Value, nil
	case "Edm.Int32":
		number, err := strconv.ParseInt(property.Value, 10, 32)
		return int32(number), err
	case "Edm.Int64":
		number, err := strconv.ParseInt(property.Value, 10, 64)
		return aztables.EDMInt64(number), err
	case "Edm.Double":
		bits, err := strconv.ParseUint(property.Value, 16, 64)
		number := math.Float64frombits(bits)
		switch {
		case math.IsNaN(number):
			return "NaN", err
		case math.IsInf(number, 1):
			return "Infinity", err
		case math.IsInf(number, -1):
			return "-Infinity", err
		}
		return number, err
	case "Edm.Boolean":
		return strconv.ParseBool(property.Value)
	case "Edm.DateTime":
		instant, err := time.Parse(instantLayout, property.Value)
		return aztables.EDMDateTime(instant), err
	case "Edm.Guid":
		return aztables.EDMGUID(property.Value), nil
	case "Edm.Binary":
		content, err := base64.StdEncoding.DecodeString(property.Value)
		return aztables.EDMBinary(content), err
	default:
		return nil, fmt.Errorf("unknown type %s", property.Type)
	}
}

func read(ctx context.Context, table *aztables.Client, out *json.Encoder) error {
	listed := []line{}
	for pager := table.NewListEntitiesPager(nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, body := range page.Entities {
			entity, err := described("list", body)
			if err != nil {
				return err
			}
			listed = append(listed, entity)
			if err := out.Encode(entity); err != nil {
				return err
			}
		}
	}
	for _, entity := range listed {
		response, err := table.GetEntity(ctx, entity.PartitionKey, entity.RowKey, nil)
		answer := line{Source: "get", PartitionKey: entity.PartitionKey, RowKey: entity.RowKey}
		if refused(err) {
			answer.Refused = err.Error()
		} else if err != nil {
			return err
		} else if answer, err = described("get", response.Value); err != nil {
			return err
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return nil
}

func described(source string, body []byte) (line, error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &members); err != nil {
		return line{}, err
	}
	var keys aztables.Entity
	if err := json.Unmarshal(body, &keys); err != nil {
		return line{}, err
	}
	properties := []property{}
	for name, raw := range members {
		if name == "PartitionKey" || name == "RowKey" || name == "Timestamp" ||
			strings.HasPrefix(name, "odata.") || strings.HasSuffix(name, "@odata.type") {
			continue
		}
		edmType := ""
		if marked, found := members[name+"@odata.type"]; found {
			if err := json.Unmarshal(marked, &edmType); err != nil {
				return line{}, err
			}
		}
		edmType, value, err := textOf(edmType, raw)
		if err != nil {
			return line{}, fmt.Errorf("%s: %w", name, err)
		}
		properties = append(properties, property{Name: name, Type: edmType, Value: value})
	}
	return line{Source: source, PartitionKey: keys.PartitionKey, RowKey: keys.RowKey, Properties: &properties}, nil
}

// The contract's type and text of a value. The SDK hands entities over as JSON it has made from its own float64s, so a
// number without an annotation is just a number.
func textOf(edmType string, raw json.RawMessage) (string, string, error) {
	switch edmType {
	case "":
		return inferred(raw)
	case "Edm.Int64":
		var number aztables.EDMInt64
		err := json.Unmarshal(raw, &number)
		return edmType, strconv.FormatInt(int64(number), 10), err
	case "Edm.Double":
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return "", "", err
		}
		number, err := strconv.ParseFloat(text, 64)
		return edmType, bitsOf(number), err
	case "Edm.DateTime":
		var instant aztables.EDMDateTime
		err := json.Unmarshal(raw, &instant)
		return edmType, time.Time(instant).UTC().Format(instantLayout), err
	case "Edm.Guid":
		var guid aztables.EDMGUID
		err := json.Unmarshal(raw, &guid)
		return edmType, string(guid), err
	case "Edm.Binary":
		var content aztables.EDMBinary
		err := json.Unmarshal(raw, &content)
		return edmType, base64.StdEncoding.EncodeToString(content), err
	default:
		return "", "", fmt.Errorf("unknown type %s", edmType)
	}
}

func inferred(raw json.RawMessage) (string, string, error) {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return "", "", err
	}
	switch value := value.(type) {
	case string:
		return "Edm.String", value, nil
	case bool:
		return "Edm.Boolean", strconv.FormatBool(value), nil
	case float64:
		return "number", bitsOf(value), nil
	default:
		return "", "", fmt.Errorf("no property value: %s", raw)
	}
}

func bitsOf(number float64) string {
	if math.IsNaN(number) {
		return "7ff8000000000000"
	}
	return fmt.Sprintf("%016x", math.Float64bits(number))
}
