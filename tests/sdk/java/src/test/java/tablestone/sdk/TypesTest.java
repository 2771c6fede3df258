package tablestone.sdk;

import static org.junit.jupiter.api.Assertions.assertAll;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.data.tables.models.TableEntity;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZonedDateTime;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.junit.jupiter.api.Test;

class TypesTest extends ServiceUnderTest {
    /** Each comes back equal, from a point read and from a listing. The interchange has the values of the other types. */
    private void assertKept(OffsetDateTime... values) {
        TableEntity sent = entity("r");
        for (int index = 0; index < values.length; index++) {
            sent.addProperty("V" + index, values[index]);
        }
        table.createEntity(sent);
        for (TableEntity read : List.of(table.getEntity("p", "r"), table.listEntities().iterator().next())) {
            for (int index = 0; index < values.length; index++) {
                assertEquals(values[index], read.getProperty("V" + index));
            }
        }
    }

    /** The SDK writes them as strings without an annotation; the caller adds it (wire 5.3). */
    @Test
    void doublesThatAreNoNumbers() {
        TableEntity sent = entity("r", "A", Double.NaN, "B", Double.POSITIVE_INFINITY, "C", Double.NEGATIVE_INFINITY);
        for (String name : List.of("A", "B", "C")) {
            sent.addProperty(name + "@odata.type", "Edm.Double");
        }
        table.createEntity(sent);
        assertEquals(Map.of("A", Double.NaN, "B", Double.POSITIVE_INFINITY, "C", Double.NEGATIVE_INFINITY), stored("r"));
    }

    /** The SDK writes 0, 3, 6 or 9 digits of the fraction: a tick of 100 ns travels as ...700Z, which must be kept. */
    @Test
    void instants() {
        assertKept(OffsetDateTime.parse("2012-11-10T03:04:05Z"), OffsetDateTime.parse("2012-11-10T03:04:05.2Z"),
            OffsetDateTime.parse("2012-11-10T03:04:05.123456Z"), OffsetDateTime.parse("2012-11-10T03:04:05.1234567Z"),
            OffsetDateTime.parse("1601-01-01T00:00:00Z"), OffsetDateTime.parse("9999-12-31T23:59:59.9999999Z"));
    }

    @Test
    void otherClassesOfTime() { // wire 5.3: no zone is UTC, an offset is converted
        OffsetDateTime instant = OffsetDateTime.parse("2012-11-10T03:04:05.12Z");
        Map<String, Object> sent = new LinkedHashMap<>();
        sent.put("offset", OffsetDateTime.parse("2012-11-10T05:04:05.12+02:00"));
        sent.put("zoned", ZonedDateTime.parse("2012-11-10T05:04:05.12+02:00"));
        sent.put("instant", instant.toInstant());
        sent.put("local", LocalDateTime.parse("2012-11-10T03:04:05.12"));
        sent.put("date", Date.from(instant.toInstant()));
        assertAll(sent.entrySet().stream().map(one -> () -> {
            table.createEntity(entity(one.getKey(), "V", one.getValue()));
            assertEquals(Map.of("V", instant), stored(one.getKey()));
        }));
        table.createEntity(entity("epoch", "V", Instant.EPOCH));
        assertEquals(Map.of("V", OffsetDateTime.parse("1970-01-01T00:00:00Z")), stored("epoch"));
    }

    @Test
    void nullIsAbsent() { // wire 5.3
        table.createEntity(entity("r", "A", 1, "B", null));
        assertEquals(Map.of("A", 1), stored("r"));
    }

    @Test
    void whatWasReadMayBeSentBack() { // its odata members and Timestamp are ignored (wire 5.5)
        table.createEntity(entity("r", "A", 1L, "B", UUID.fromString("c9da6455-213d-42c9-9a79-3e9149a57833")));
        TableEntity read = table.getEntity("p", "r");
        OffsetDateTime first = read.getTimestamp();
        table.updateEntity(read);
        assertEquals(propertiesOf(read), stored("r"));
        assertEquals(true, table.getEntity("p", "r").getTimestamp().isAfter(first));
    }

    @Test
    void namesOfProperties() {
        table.createEntity(entity("r", "_leading", 1, "名前", 2, "Case", 3, "case", 4));
        assertEquals(Map.of("_leading", 1, "名前", 2, "Case", 3, "case", 4), stored("r"));
    }

    @Test
    void valuesAndEntitiesRefused() { // source: wire 5.3, 9
        TableEntity many = entity("many");
        for (int index = 0; index < 253; index++) {
            many.addProperty("P" + index, index);
        }
        TableEntity large = entity("large");
        for (int index = 0; index < 17; index++) {
            large.addProperty("P" + index, "x".repeat(32768));
        }
        assertAll(
            () -> assertFails(400, "InvalidInput", null,
                () -> table.createEntity(entity("a", "V", "-3.1", "V@odata.type", "Edm.Int32"))),
            () -> assertFails(400, "InvalidInput", null, () -> table.createEntity(entity("b", "V", List.of(1)))),
            () -> assertFails(400, "OutOfRangeInput", "The 'V' parameter of value '01/01/0001 00:00:00' is out of range.",
                () -> table.createEntity(entity("c", "V", OffsetDateTime.parse("0001-01-01T00:00:00Z")))),
            () -> assertFails(400, "PropertyNameTooLong", "The property name exceeds the maximum allowed length (255).",
                () -> table.createEntity(entity("d", "n".repeat(256), 1))),
            () -> assertFails(400, "PropertyNameInvalid", "The property name is invalid.",
                () -> table.createEntity(entity("e", "a-b", 1))),
            () -> assertFails(400, "PropertyValueTooLarge", "The property value exceeds the maximum allowed size (64KB). "
                + "If the property value is a string, it is UTF-16 encoded and the maximum number of characters should be "
                + "32K or less.", () -> table.createEntity(entity("f", "V", "x".repeat(32769)))),
            () -> assertFails(400, "TooManyProperties", "The entity contains more properties than allowed. Each entity can "
                + "include up to 252 properties to store data. Each entity also has 3 system properties.",
                () -> table.createEntity(many)),
            () -> assertFails(400, "EntityTooLarge", "The entity is larger than the maximum allowed size (1MB).",
                () -> table.createEntity(large)));
        assertEquals(List.of(), rowKeys());
    }
}
