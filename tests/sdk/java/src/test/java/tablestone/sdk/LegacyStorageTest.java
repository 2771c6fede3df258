package tablestone.sdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.data.tables.models.TableEntity;
import com.microsoft.azure.storage.OperationContext;
import com.microsoft.azure.storage.StorageCredentialsAccountAndKey;
import com.microsoft.azure.storage.table.CloudTable;
import com.microsoft.azure.storage.table.CloudTableClient;
import com.microsoft.azure.storage.table.DynamicTableEntity;
import com.microsoft.azure.storage.table.EntityProperty;
import com.microsoft.azure.storage.table.TableBatchOperation;
import com.microsoft.azure.storage.table.TableOperation;
import com.microsoft.azure.storage.table.TableResult;
import com.microsoft.azure.storage.table.TableServiceException;
import java.net.URI;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * azure-storage 8.6.6, which is no longer maintained, on the same tables. Outside of a batch it tunnels MERGE through
 * POST; inside one it writes the verb MERGE and X-HTTP-Method beside it (wire 3.10, 12.8).
 */
class LegacyStorageTest extends ServiceUnderTest {
    private CloudTable legacy;

    @BeforeEach
    void openTable() throws Exception {
        legacy = new CloudTableClient(
            URI.create(setting("TABLESTONE_TEST_ENDPOINT")),
            new StorageCredentialsAccountAndKey(setting("TABLESTONE_TEST_ACCOUNT"), setting("TABLESTONE_TEST_KEY")))
            .getTableReference(table.getTableName());
    }

    private static DynamicTableEntity written(String rowKey, String name, int value) {
        HashMap<String, EntityProperty> properties = new HashMap<>();
        properties.put(name, new EntityProperty(value));
        return new DynamicTableEntity("p", rowKey, "*", properties);
    }

    private static List<Integer> statuses(List<TableResult> results) {
        return results.stream().map(TableResult::getHttpStatusCode).collect(Collectors.toList());
    }

    @Test
    void mergeOutsideOfABatch() throws Exception {
        table.createEntity(entity("r", "kept", 1));
        assertEquals(204, legacy.execute(TableOperation.merge(written("r", "n", 2))).getHttpStatusCode());
        assertEquals(204, legacy.execute(TableOperation.insertOrMerge(written("new", "n", 3))).getHttpStatusCode());
        assertEquals(Map.of("kept", 1, "n", 2), stored("r"));
        assertEquals(Map.of("n", 3), stored("new"));
    }

    @Test
    void everyWriteInABatch() throws Exception {
        for (String rowKey : List.of("merged", "replaced", "deleted")) {
            table.createEntity(entity(rowKey, "kept", 1));
        }
        TableBatchOperation batch = new TableBatchOperation();
        batch.insert(written("inserted", "n", 1));
        batch.merge(written("merged", "n", 2));
        batch.insertOrMerge(written("upserted", "n", 3));
        batch.replace(written("replaced", "n", 4));
        batch.insertOrReplace(written("new", "n", 5));
        batch.delete(written("deleted", "n", 6));
        assertEquals(List.of(204, 204, 204, 204, 204, 204), statuses(legacy.execute(batch)));
        assertEquals(List.of("inserted", "merged", "new", "replaced", "upserted"), rowKeys());
        assertEquals(Map.of("kept", 1, "n", 2), stored("merged"));
        assertEquals(Map.of("n", 4), stored("replaced"));
    }

    @Test
    void aMergeThatFailsInABatch() {
        TableBatchOperation batch = new TableBatchOperation();
        batch.insert(written("inserted", "n", 1));
        batch.merge(written("absent", "n", 2));
        TableServiceException failure = assertThrows(
            TableServiceException.class, () -> legacy.execute(batch, null, new OperationContext()));
        assertEquals(404, failure.getHttpStatusCode());
        assertEquals("ResourceNotFound", failure.getErrorCode());
        assertTrue(failure.getExtendedErrorInformation().getErrorMessage().startsWith("1:"));
        assertEquals(List.of(), rowKeys());
    }

    @Test
    void aReadThroughBoth() throws Exception {
        legacy.execute(TableOperation.insert(written("r", "n", 7)));
        TableEntity found = table.getEntity("p", "r");
        DynamicTableEntity same = legacy.execute(TableOperation.retrieve("p", "r", DynamicTableEntity.class))
            .getResultAsType();
        assertEquals(found.getETag(), same.getEtag());
        assertEquals(7, same.getProperties().get("n").getValueAsInteger());
    }
}
