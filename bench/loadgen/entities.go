package main

import "strconv"

// The benchmarks' entity: ten properties of mixed types, about 1 KiB as JSON. Every value is derived
// from the entity's number, so that a filter's matches can be counted beforehand: Count is the
// number modulo 100, and Temperature stays below 100.
const description = "Hourly reading of a weather station, as the station sent it. The text is long " +
	"enough to make the entity one KiB: it stands for the free text that real entities carry " +
	"beside their numbers, such as a comment, a message or an address. It has commas, quotes of " +
	"the 'single' kind and a few words in other scripts (Grüße, 東京), as real text has. " +
	"Nothing here is repeated by the generator, and nothing is compressed on the way. " +
	"Sensors drift with age; see the calibration protocol of the station, chapter 4."

// entityLeast is the size of the shortest entity in bytes; the longest has some 30 more.
const entityLeast = 1000

const payload = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw=="

// appendEntity appends the JSON of entity number n; revision changes some of its values, as an
// update does. With keys false it is a body whose keys are in the address.
func appendEntity(out []byte, n, revision int, partitionKey, rowKey []byte) []byte {
	out = append(out, `{"PartitionKey":"`...)
	out = append(out, partitionKey...)
	out = append(out, `","RowKey":"`...)
	out = append(out, rowKey...)
	out = append(out, `","Name":"station-`...)
	out = appendPadded(out, n%977, 4)
	out = append(out, `","Description":"`...)
	out = append(out, description...)
	out = append(out, `","Count":`...)
	out = strconv.AppendInt(out, int64(n%100), 10)
	out = append(out, `,"Total@odata.type":"Edm.Int64","Total":"`...)
	out = strconv.AppendInt(out, 9_000_000_000+int64(n)+int64(revision), 10)
	out = append(out, `","Temperature":`...)
	out = strconv.AppendInt(out, int64((n+revision)%100-20), 10)
	out = append(out, `.25,"Pressure":101`...)
	out = strconv.AppendInt(out, int64(n%10), 10)
	out = append(out, `.5,"Active":true,"MeasuredAt@odata.type":"Edm.DateTime","MeasuredAt":"2026-03-`...)
	out = appendPadded(out, 1+n%28, 2)
	out = append(out, `T12:00:00.1234567Z","Device@odata.type":"Edm.Guid","Device":"0f8fad5b-d9cb-469f-a165-`...)
	out = appendPadded(out, n, 12)
	out = append(out, `","Payload@odata.type":"Edm.Binary","Payload":"`...)
	out = append(out, payload...)
	return append(out, `"}`...)
}

// appendMerge appends what a merge of entity number n changes: two properties.
func appendMerge(out []byte, n, revision int) []byte {
	out = append(out, `{"Temperature":`...)
	out = strconv.AppendInt(out, int64((n+revision)%100-20), 10)
	out = append(out, `.75,"Total@odata.type":"Edm.Int64","Total":"`...)
	out = strconv.AppendInt(out, 9_000_000_000+int64(n)+int64(revision), 10)
	return append(out, `"}`...)
}
