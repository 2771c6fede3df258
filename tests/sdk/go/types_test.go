package sdk

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

func TestTypesOfEDMEntity(t *testing.T) {
	table := newTable(t)
	day := func(text string) aztables.EDMDateTime {
		instant := of(time.Parse(time.RFC3339Nano, text)).must(t)
		return aztables.EDMDateTime(instant)
	}
	allBytes := make([]byte, 256)
	for index := range allBytes {
		allBytes[index] = byte(index)
	}
	cases := map[string]members{ // source: wire 5.3
		"string": {"Empty": "", "Blanks": " \t ", "Lines": "a\r\nb", "Markup": `<a b='c'>&"\`, "Han": "表格", "Astral": "😀𐍈",
			"LikeDate": "2014-05-07T08:20:53Z", "Longest": strings.Repeat("x", 32768)},
		"int32": {"Zero": int32(0), "Max": int32(math.MaxInt32), "Min": int32(math.MinInt32)},
		"int64": {"Small": aztables.EDMInt64(7), "Max": aztables.EDMInt64(math.MaxInt64), "Min": aztables.EDMInt64(math.MinInt64)},
		"double": {"Tenth": 0.1, "Pi": math.Pi, "Max": math.MaxFloat64, "Tiny": math.SmallestNonzeroFloat64,
			"Large": 1.5e300, "Small": 1e-7, "OutsideInt32": 3e9}, // the last: wire 5.4, an integer outside int32 is a Double
		"boolean": {"True": true, "False": false},
		"datetime": {"Whole": day("2012-11-10T03:04:05Z"), "Tenths": day("2012-11-10T03:04:05.2Z"),
			"Ticks": day("2012-11-10T03:04:05.1234567Z"), "First": day("1601-01-01T00:00:00Z"), "Last": day("9999-12-31T23:59:59.9999999Z")},
		"guid":   {"Some": aztables.EDMGUID("c9da6455-213d-42c9-9a79-3e9149a57833")},
		"binary": {"Empty": aztables.EDMBinary{}, "All": aztables.EDMBinary(allBytes)},
		"names":  {"_leading": "u", "名前": "han", "Case": "upper", "case": "lower"},
	}
	for name, properties := range cases {
		t.Run(name, func(t *testing.T) {
			sent := aztables.EDMEntity{Entity: aztables.Entity{PartitionKey: "p", RowKey: name}, Properties: properties}
			of(table.AddEntity(ctx, encoded(t, sent), nil)).must(t)
			for property, want := range properties {
				same(t, property, get(t, table, "p", name).Properties[property], want)
				page := of(table.NewListEntitiesPager(filtered("RowKey eq '" + name + "'")).NextPage(ctx)).must(t)
				same(t, property+" in a list", decoded(t, page.Entities[0]).Properties[property], want)
			}
		})
	}
}

func TestAnnotatedValues(t *testing.T) {
	table := newTable(t)
	cases := []struct {
		edmType string
		sent    any
		got     any
		marked  any // the annotation in the answer
	}{ // source: wire 5.3
		{"Edm.Double", "NaN", "NaN", "Edm.Double"},
		{"Edm.Double", "Infinity", "Infinity", "Edm.Double"},
		{"Edm.Double", "-Infinity", "-Infinity", "Edm.Double"},
		{"Edm.Double", "10.5", 10.5, nil},
		{"Edm.Int32", "-31", float64(-31), nil},
		{"Edm.Int64", "7", "7", "Edm.Int64"},
		{"Edm.Boolean", "FALSE", false, nil},
		{"Edm.String", "text", "text", nil},
		{"Edm.Guid", "C9DA6455-213D-42C9-9A79-3E9149A57833", "c9da6455-213d-42c9-9a79-3e9149a57833", "Edm.Guid"},
		{"Edm.DateTime", "2012-11-10T05:04:05.120+02:00", "2012-11-10T03:04:05.12Z", "Edm.DateTime"},
		{"Edm.DateTime", "2012-11-10T03:04:05", "2012-11-10T03:04:05Z", "Edm.DateTime"},
		// Not of the service, but of this project: docs/compatibility.md.
		{"Edm.DateTimeOffset", "2012-11-10T05:04:05.1234567+02:00", "2012-11-10T03:04:05.1234567Z", "Edm.DateTime"},
	}
	for _, c := range cases {
		t.Run(c.edmType+" "+c.sent.(string), func(t *testing.T) {
			entity := withKeys("p", freshName("r"), members{"V": c.sent, "V@odata.type": c.edmType})
			response := of(table.AddEntity(ctx, encoded(t, entity), nil)).must(t)
			echoed := members{}
			if err := json.Unmarshal(response.Value, &echoed); err != nil {
				t.Fatal(err)
			}
			same(t, "value", echoed["V"], c.got)
			same(t, "annotation", echoed["V@odata.type"], c.marked)
		})
	}
}

// A whole Double needs the annotation: without it the SDK's float64 5 travels as 5, which is an Int32 (wire 5.4).
func TestWholeDoubles(t *testing.T) {
	table := newTable(t)
	add(t, table, withKeys("p", "bare", members{"V": 5.0}))
	add(t, table, withKeys("p", "marked", members{"V": 5.0, "V@odata.type": "Edm.Double"}))
	same(t, "matches of a Double", rowKeysOf(t, table, filtered("V eq 5.0")), []string{"marked"})
	same(t, "matches of an Int32", rowKeysOf(t, table, filtered("V eq 5")), []string{"bare", "marked"})
}

func TestNullsAndZeroTimestampAreIgnored(t *testing.T) { // wire 5.3, 12.6
	table := newTable(t)
	type reading struct {
		aztables.Entity // brings "Timestamp":"0001-01-01T00:00:00Z"
		Value           int32
		Missing         *string
	}
	body := encoded(t, reading{Entity: aztables.Entity{PartitionKey: "p", RowKey: "r"}, Value: 1})
	of(table.AddEntity(ctx, body, nil)).must(t)
	entity := get(t, table, "p", "r")
	same(t, "properties", entity.Properties, members{"Value": int32(1)})
	if time.Time(entity.Timestamp).Year() < 2000 {
		t.Errorf("Timestamp is the client's: %v", time.Time(entity.Timestamp))
	}
	// What was read may be sent back whole, with its odata members and Timestamp.
	response := of(table.GetEntity(ctx, "p", "r", nil)).must(t)
	of(table.UpsertEntity(ctx, response.Value, &aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeReplace})).must(t)
	same(t, "properties", get(t, table, "p", "r").Properties, members{"Value": int32(1)})
}

func TestValuesAndEntitiesRefused(t *testing.T) {
	table := newTable(t)
	many := members{}
	for len(many) < 253 {
		many[fmt.Sprint("P", len(many))] = 1
	}
	large := members{}
	for _, name := range strings.Split("ABCDEFGHIJKLMNOPQ", "") {
		large[name] = strings.Repeat("x", 32768)
	}
	cases := []struct {
		name       string
		properties members
		code       aztables.TableErrorCode
		message    string // "" where the text is open
	}{ // source: wire 5.3, 5.5, 9
		{"Int32 with a fraction", members{"V": "-3.1", "V@odata.type": "Edm.Int32"}, aztables.InvalidInput, ""},
		{"Int64 as words", members{"V": "seven", "V@odata.type": "Edm.Int64"}, aztables.InvalidInput, ""},
		{"Guid cut short", members{"V": "c9da6455", "V@odata.type": "Edm.Guid"}, aztables.InvalidInput, ""},
		{"Binary no base64", members{"V": "*", "V@odata.type": "Edm.Binary"}, aztables.InvalidInput, ""},
		{"an array", members{"V": []int{1}}, aztables.InvalidInput, ""},
		{"DateTime before 1601", members{"V": aztables.EDMDateTime{}, "V@odata.type": "Edm.DateTime"}, aztables.OutOfRangeInput,
			"The 'V' parameter of value '01/01/0001 00:00:00' is out of range."},
		{"name of 256", members{strings.Repeat("n", 256): 1}, aztables.PropertyNameTooLong,
			"The property name exceeds the maximum allowed length (255)."},
		{"name with a hyphen", members{"a-b": 1}, aztables.PropertyNameInvalid, "The property name is invalid."},
		{"string of 32769", members{"V": strings.Repeat("x", 32769)}, aztables.PropertyValueTooLarge,
			"The property value exceeds the maximum allowed size (64KB). If the property value is a string, it is UTF-16 " +
				"encoded and the maximum number of characters should be 32K or less."},
		{"253 properties", many, aztables.TooManyProperties, "The entity contains more properties than allowed. " +
			"Each entity can include up to 252 properties to store data. Each entity also has 3 system properties."},
		{"over 1 MiB", large, aztables.EntityTooLarge, "The entity is larger than the maximum allowed size (1MB)."},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			failure := of(table.AddEntity(ctx, encoded(t, withKeys("p", freshName("r"), c.properties)), nil)).fails(t, 400, c.code)
			if c.message != "" {
				same(t, "message", messageOf(t, failure), c.message)
			}
		})
	}
	page := of(table.NewListEntitiesPager(nil).NextPage(ctx)).must(t)
	same(t, "entities stored", len(page.Entities), 0)
}
