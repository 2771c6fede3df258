package tablestone.sdk;

import static com.azure.data.tables.models.TableTransactionActionType.CREATE;
import static com.azure.data.tables.models.TableTransactionActionType.DELETE;
import static com.azure.data.tables.models.TableTransactionActionType.UPDATE_MERGE;
import static com.azure.data.tables.models.TableTransactionActionType.UPDATE_REPLACE;
import static com.azure.data.tables.models.TableTransactionActionType.UPSERT_MERGE;
import static com.azure.data.tables.models.TableTransactionActionType.UPSERT_REPLACE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.azure.core.http.rest.Response;
import com.azure.core.util.Context;
import com.azure.data.tables.TableClient;
import com.azure.data.tables.models.TableEntity;
import com.azure.data.tables.models.TableTransactionAction;
import com.azure.data.tables.models.TableTransactionActionResponse;
import com.azure.data.tables.models.TableTransactionActionType;
import com.azure.data.tables.models.TableTransactionFailedException;
import com.azure.data.tables.models.TableTransactionResult;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class TransactionsTest extends ServiceUnderTest {
    private static TableTransactionAction action(TableTransactionActionType type, TableEntity entity) {
        return new TableTransactionAction(type, entity);
    }

    private static TableTransactionAction ifUnchanged(TableTransactionActionType type, TableEntity entity) {
        return new TableTransactionAction(type, entity, true);
    }

    private TableEntity present(String rowKey) {
        table.createEntity(entity(rowKey, "Old", "kept?"));
        return table.getEntity("p", rowKey);
    }

    @Test
    void everyAction() {
        TableEntity byTag = present("mergedByTag").addProperty("New", true);
        TableEntity replacedByTag = present("replacedByTag").addProperty("New", true);
        TableEntity deletedByTag = present("deletedByTag");
        List.of("merged", "replaced", "deleted", "upsertMerged", "upsertReplaced").forEach(this::present);
        List<TableTransactionAction> actions = List.of(
            action(CREATE, entity("created", "New", true)),
            action(UPDATE_MERGE, entity("merged", "New", true)),
            ifUnchanged(UPDATE_MERGE, byTag),
            action(UPDATE_REPLACE, entity("replaced", "New", true)),
            ifUnchanged(UPDATE_REPLACE, replacedByTag),
            action(DELETE, entity("deleted")),
            ifUnchanged(DELETE, deletedByTag),
            action(UPSERT_MERGE, entity("upsertMerged", "New", true)),
            action(UPSERT_REPLACE, entity("upsertReplaced", "New", true)),
            action(UPSERT_MERGE, entity("created by merge", "New", true)),
            action(UPSERT_REPLACE, entity("it's %20 +é😀", "New", true)));
        Response<TableTransactionResult> response
            = table.submitTransactionWithResponse(actions, Duration.ofSeconds(20), Context.NONE);
        assertEquals(202, response.getStatusCode());
        List<Integer> statuses = response.getValue().getTransactionActionResponses().stream()
            .map(TableTransactionActionResponse::getStatusCode).collect(Collectors.toList());
        assertEquals(actions.stream().map(each -> 204).collect(Collectors.toList()), statuses);
        assertEquals(204, response.getValue().getTableTransactionActionResponseByRowKey("merged").getStatusCode());

        Map<String, Object> fresh = Map.of("New", true);
        Map<String, Object> both = Map.of("New", true, "Old", "kept?");
        Map<String, Map<String, Object>> expected = new HashMap<>(Map.of("created", fresh, "merged", both,
            "mergedByTag", both, "replaced", fresh, "replacedByTag", both, "upsertMerged", both,
            "upsertReplaced", fresh, "created by merge", fresh, "it's %20 +é😀", fresh));
        Map<String, Map<String, Object>> found = new HashMap<>();
        table.listEntities().forEach(entity -> found.put(entity.getRowKey(), propertiesOf(entity)));
        assertEquals(expected, found);
    }

    @Test
    void everyType() {
        Map<String, Object> properties = Map.of("S", "a\r\n--changeset_x\r\n", "I", 1, "L", 1L << 40, "D", 10.0, "B", true,
            "T", OffsetDateTime.parse("2012-11-10T03:04:05.1234567Z"), "G", new UUID(1, 2));
        table.submitTransaction(List.of(action(UPSERT_REPLACE, entity("r").setProperties(properties))));
        assertEquals(properties, stored("r"));
    }

    @Test
    void aHundred() {
        table.submitTransaction(IntStream.range(0, 100)
            .mapToObj(row -> action(CREATE, entity(String.format("%03d", row), "N", row))).collect(Collectors.toList()));
        assertEquals(100, rowKeys().size());
        assertEquals(Map.of("N", 99), stored("099"));
    }

    @Test
    void anEmptyTransactionIsRefusedByTheSdk() {
        assertThrows(IllegalArgumentException.class, () -> table.submitTransaction(List.of()));
    }

    /** The failing index, the service's code and its text; nothing of the transaction is stored. */
    private void assertRolledBack(Integer index, String code, String message, TableTransactionAction... actions) {
        List<String> before = rowKeys();
        TableTransactionFailedException failure = assertThrows(TableTransactionFailedException.class,
            () -> table.submitTransaction(Arrays.asList(actions)));
        assertEquals(index, failure.getFailedTransactionActionIndex());
        assertError(code, message, failure.getValue());
        assertEquals(before, rowKeys());
    }

    @Test
    void insertOfAPresentEntityFails() { // source of this and the next: wire 7.3
        present("present");
        assertRolledBack(2, "EntityAlreadyExists", "2:The specified entity already exists.",
            action(CREATE, entity("a")), action(CREATE, entity("b")), action(CREATE, entity("present")));
        assertRolledBack(null, "EntityAlreadyExists", "The specified entity already exists.", // alone: no index
            action(CREATE, entity("present")));
    }

    @Test
    void absentEntityFails() {
        assertRolledBack(1, "ResourceNotFound", "1:The specified resource does not exist.",
            action(CREATE, entity("a")), action(UPDATE_REPLACE, entity("absent")));
        assertRolledBack(1, "ResourceNotFound", "1:The specified resource does not exist.",
            action(UPSERT_MERGE, entity("a")), action(DELETE, entity("absent")));
    }

    @Test
    void staleEtagFails() {
        TableEntity stale = present("present");
        table.updateEntity(entity("present", "N", 1));
        assertRolledBack(1, "UpdateConditionNotSatisfied",
            "1:The update condition specified in the request was not satisfied.",
            action(UPSERT_REPLACE, entity("a")), ifUnchanged(UPDATE_MERGE, stale));
        assertRolledBack(0, "UpdateConditionNotSatisfied",
            "0:The update condition specified in the request was not satisfied.",
            ifUnchanged(DELETE, stale), action(CREATE, entity("a")));
        assertEquals(Map.of("Old", "kept?", "N", 1), stored("present"));
    }

    @Test
    void oneRowTwiceFails() {
        assertRolledBack(1, "InvalidDuplicateRow", "1:The batch request contains multiple changes with same row key. "
            + "An entity can appear only once in a batch request.",
            action(CREATE, entity("a")), action(UPSERT_MERGE, entity("a")));
    }

    @Test
    void twoPartitionsFail() {
        assertRolledBack(1, "CommandsInBatchActOnDifferentPartitions",
            "1:All commands in a batch must operate on same entity group.",
            action(CREATE, entity("a")), action(CREATE, new TableEntity("q", "b")));
    }

    @Test
    void aHundredAndOneFail() {
        List<TableTransactionAction> actions = new ArrayList<>();
        for (int row = 0; row < 101; row++) {
            actions.add(action(CREATE, entity(String.valueOf(row))));
        }
        assertRolledBack(99, "InvalidInput", "99:The batch request operation exceeds the maximum 100 changes per change set.",
            actions.toArray(new TableTransactionAction[0]));
    }

    @Test
    void missingTableFails() {
        TableClient absent = SERVICE.getTableClient(freshName("absent"));
        TableTransactionFailedException failure = assertThrows(TableTransactionFailedException.class,
            () -> absent.submitTransaction(List.of(action(CREATE, entity("a")))));
        assertEquals(0, failure.getFailedTransactionActionIndex());
        assertError("TableNotFound", "0:The table specified does not exist.", failure.getValue());
    }

    @Test
    void overFourMebibytesFails() { // wire 7.3: refused as a whole, before any part is read
        List<TableTransactionAction> actions = new ArrayList<>();
        for (int row = 0; row < 5; row++) {
            TableEntity entity = entity(String.valueOf(row));
            for (int property = 0; property < 15; property++) {
                entity.addProperty("P" + property, "é".repeat(32760));
            }
            actions.add(action(CREATE, entity));
        }
        assertFails(413, "RequestBodyTooLarge",
            "The request body is too large and exceeds the maximum permissible limit.",
            () -> table.submitTransaction(actions));
        assertEquals(List.of(), rowKeys());
    }
}
