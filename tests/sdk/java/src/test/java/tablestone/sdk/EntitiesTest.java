package tablestone.sdk;

import static org.junit.jupiter.api.Assertions.assertAll;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.http.rest.Response;
import com.azure.core.util.Context;
import com.azure.data.tables.TableClient;
import com.azure.data.tables.models.TableEntity;
import com.azure.data.tables.models.TableEntityUpdateMode;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class EntitiesTest extends ServiceUnderTest {
    private static final Duration SOON = Duration.ofSeconds(20);
    private static final String NOT_FOUND = "The specified resource does not exist.";
    private static final String CONDITION = "The update condition specified in the request was not satisfied.";

    /** The SDK's TableScrubEtagPolicy takes the closing quote off the header of every response. */
    private static String asHeader(String etag) {
        return etag.substring(0, etag.length() - 1);
    }

    @Test
    void createdEntityIsRead() {
        table.createEntity(entity("r", "Name", "x"));
        TableEntity read = table.getEntity("p", "r");
        assertEquals(Map.of("Name", "x"), propertiesOf(read));
        assertEquals(List.of("p", "r"), List.of(read.getPartitionKey(), read.getRowKey()));
        // The SDK asks for full metadata (wire 5.2).
        assertEquals(setting("TABLESTONE_TEST_ACCOUNT") + "." + table.getTableName(), read.getProperty("odata.type"));
        assertEquals(locationOf("PartitionKey='p',RowKey='r'"), read.getProperty("odata.id"));
        assertEquals(table.getTableName() + "(PartitionKey='p',RowKey='r')", read.getProperty("odata.editLink"));
        assertEquals("Edm.DateTime", read.getProperty("Timestamp@odata.type"));
    }

    @Test
    void headersOfAnInsert() { // wire 2.2, 3.9: the SDK sends Prefer: return-no-content
        Response<Void> created = table.createEntityWithResponse(entity("a'b c"), SOON, Context.NONE);
        String location = locationOf("PartitionKey='p',RowKey='a''b%20c'");
        assertEquals(204, created.getStatusCode());
        assertEquals(location, created.getHeaders().getValue("Location"));
        assertEquals(location, created.getHeaders().getValue("DataServiceId"));
        assertEquals("return-no-content", created.getHeaders().getValue("Preference-Applied"));
        assertEquals(asHeader(table.getEntity("p", "a'b c").getETag()), created.getHeaders().getValue("ETag"));
    }

    @Test
    void etagDerivesFromTimestamp() { // wire 4
        table.createEntity(entity("r"));
        TableEntity read = table.getEntity("p", "r");
        String etag = read.getETag();
        String text = etag.substring("W/\"datetime'".length(), etag.length() - "'\"".length());
        String decoded = URLDecoder.decode(text, StandardCharsets.UTF_8);
        assertEquals(text, URLEncoder.encode(decoded, StandardCharsets.UTF_8));
        assertEquals(read.getTimestamp(), OffsetDateTime.parse(decoded));
    }

    @Test
    void entityThatExistsIsRefused() {
        table.createEntity(entity("r", "Kept", true));
        assertFails(409, "EntityAlreadyExists", "The specified entity already exists.",
            () -> table.createEntity(entity("r")));
        assertEquals(Map.of("Kept", true), stored("r"));
    }

    @Test
    void missingEntity() { // wire 3.9
        assertFails(404, "ResourceNotFound", NOT_FOUND, () -> table.getEntity("p", "absent"));
        assertFails(404, "ResourceNotFound", NOT_FOUND, () -> table.updateEntity(entity("absent")));
        assertFails(404, "ResourceNotFound", NOT_FOUND,
            () -> table.updateEntity(entity("absent"), TableEntityUpdateMode.REPLACE));
        assertEquals(404, table.deleteEntityWithResponse(entity("absent"), false, SOON, Context.NONE)
            .getStatusCode()); // swallowed
        assertEquals(List.of(), rowKeys());
    }

    @Test
    void missingTable() { // wire 3.9
        TableClient absent = SERVICE.getTableClient(freshName("absent"));
        String message = "The table specified does not exist.";
        assertAll(
            () -> assertFails(404, "TableNotFound", message, () -> absent.getEntity("p", "r")),
            () -> assertFails(404, "TableNotFound", message, () -> absent.createEntity(entity("r"))),
            () -> assertFails(404, "TableNotFound", message, () -> absent.upsertEntity(entity("r"))),
            () -> assertFails(404, "TableNotFound", message, () -> absent.updateEntity(entity("r"))),
            () -> assertFails(404, "TableNotFound", message, () -> absent.listEntities().stream().count()),
            () -> absent.deleteEntity("p", "r")); // swallowed
    }

    @Test
    void updateReplacesOrMerges() { // wire 3.10
        Map<TableEntityUpdateMode, Map<String, Object>> outcomes = new HashMap<>();
        outcomes.put(null, Map.of("Old", "kept?", "Both", "new", "New", true)); // merge is the SDK's default
        outcomes.put(TableEntityUpdateMode.MERGE, outcomes.get(null));
        outcomes.put(TableEntityUpdateMode.REPLACE, Map.of("Both", "new", "New", true));
        outcomes.forEach((mode, outcome) -> {
            String rowKey = String.valueOf(mode);
            table.createEntity(entity(rowKey, "Old", "kept?", "Both", "old"));
            String before = table.getEntity("p", rowKey).getETag();
            table.updateEntity(entity(rowKey, "Both", "new", "New", true), mode);
            assertEquals(outcome, stored(rowKey));
            assertNotEquals(before, table.getEntity("p", rowKey).getETag());
        });
    }

    @Test
    void updateIfUnchanged() { // wire 3.9
        for (TableEntityUpdateMode mode : TableEntityUpdateMode.values()) {
            String rowKey = mode.toString();
            table.createEntity(entity(rowKey, "N", 1));
            TableEntity held = table.getEntity("p", rowKey).addProperty("N", 2);
            Response<Void> updated = table.updateEntityWithResponse(held, mode, true, SOON, Context.NONE);
            assertEquals(204, updated.getStatusCode());
            assertEquals(asHeader(table.getEntity("p", rowKey).getETag()), updated.getHeaders().getValue("ETag"));
            held.addProperty("N", 3); // its ETag is stale now
            assertFails(412, "UpdateConditionNotSatisfied", CONDITION,
                () -> table.updateEntityWithResponse(held, mode, true, SOON, Context.NONE));
            assertEquals(Map.of("N", 2), stored(rowKey));
            table.updateEntityWithResponse(held, mode, false, SOON, Context.NONE);
            assertEquals(Map.of("N", 3), stored(rowKey));
        }
    }

    @Test
    void upsertReplacesOrMerges() { // wire 3.9
        table.upsertEntity(entity("default", "Old", 1));
        table.upsertEntity(entity("default", "New", 2));
        assertEquals(Map.of("Old", 1, "New", 2), stored("default"));
        for (TableEntityUpdateMode mode : TableEntityUpdateMode.values()) {
            String rowKey = mode.toString();
            Response<Void> created = table.upsertEntityWithResponse(entity(rowKey, "Old", 1), mode, SOON, Context.NONE);
            assertEquals(204, created.getStatusCode());
            assertEquals(asHeader(table.getEntity("p", rowKey).getETag()), created.getHeaders().getValue("ETag"));
            assertEquals(Map.of("Old", 1), stored(rowKey));
            table.upsertEntityWithResponse(entity(rowKey, "New", 2), mode, SOON, Context.NONE);
            assertEquals(mode == TableEntityUpdateMode.MERGE ? Map.of("Old", 1, "New", 2) : Map.of("New", 2),
                stored(rowKey));
        }
    }

    @Test
    void deletes() { // wire 3.9
        table.createEntity(entity("by keys"));
        table.deleteEntity("p", "by keys");
        table.createEntity(entity("by entity"));
        table.deleteEntity(table.getEntity("p", "by entity"));
        table.createEntity(entity("if unchanged"));
        TableEntity held = table.getEntity("p", "if unchanged");
        table.updateEntity(entity("if unchanged", "N", 1));
        assertFails(412, "UpdateConditionNotSatisfied", CONDITION,
            () -> table.deleteEntityWithResponse(held, true, SOON, Context.NONE));
        assertEquals(List.of("if unchanged"), rowKeys());
        TableEntity latest = table.getEntity("p", "if unchanged");
        assertEquals(204, table.deleteEntityWithResponse(latest, true, SOON, Context.NONE).getStatusCode());
        assertEquals(List.of(), rowKeys());
    }

    @Test
    void pointReadWithProjection() { // wire 5.6
        table.createEntity(entity("r", "A", 1, "B", 2));
        Response<TableEntity> read
            = table.getEntityWithResponse("p", "r", Arrays.asList("A", "Absent"), SOON, Context.NONE);
        Map<String, Object> expected = new HashMap<>();
        expected.put("A", 1);
        expected.put("Absent", null);
        assertEquals(expected, propertiesOf(read.getValue()));
        assertTrue(read.getValue().getProperties().containsKey("Absent"));
        assertEquals(asHeader(read.getValue().getETag()), read.getHeaders().getValue("ETag"));
    }

    @Test
    void unusualKeys() { // wire 1.3
        List<String> keys = List.of("", " ", " lead and trail ", "it's", "''", "a%20b", "100%", "1+1=2", "a,b;c", "a&b=c",
            "\"double\"", "a:b@c!$*(){}[]<>|^`~", "é", "中文", "😀 astral", "%27", "PartitionKey='x'");
        assertAll(Stream.iterate(0, index -> index < keys.size(), index -> index + 1).map(index -> () -> {
            String partitionKey = keys.get(index);
            String rowKey = keys.get(keys.size() - 1 - index);
            table.createEntity(new TableEntity(partitionKey, rowKey).addProperty("N", 1));
            assertEquals(Map.of("N", 1), propertiesOf(table.getEntity(partitionKey, rowKey)));
            table.updateEntity(new TableEntity(partitionKey, rowKey).addProperty("N", 2));
            table.upsertEntity(new TableEntity(partitionKey, rowKey).addProperty("M", 3));
            String filter = String.format("PartitionKey eq '%s' and RowKey eq '%s'",
                partitionKey.replace("'", "''"), rowKey.replace("'", "''"));
            List<TableEntity> found = new ArrayList<>();
            table.listEntities(filtered(filter), null, null).forEach(found::add);
            assertEquals(1, found.size(), filter);
            assertEquals(List.of(partitionKey, rowKey),
                List.of(found.get(0).getPartitionKey(), found.get(0).getRowKey()));
            assertEquals(Map.of("N", 2, "M", 3), propertiesOf(found.get(0)));
            table.deleteEntity(partitionKey, rowKey);
            assertEquals(List.of(), rowKeysOf(filtered(filter)));
        }));
    }

    @Test
    void forbiddenKeyCharacters() { // wire 1.3, 9
        assertAll(Stream.of("a/b", "a\\b", "a#b", "a?b", "a\tb", "a\u007fb", "a\u0085b").map(key -> () ->
            assertFails(400, "OutOfRangeInput", "The 'RowKey' parameter of value '" + key + "' is out of range.",
                () -> table.createEntity(entity(key)))));
    }
}
