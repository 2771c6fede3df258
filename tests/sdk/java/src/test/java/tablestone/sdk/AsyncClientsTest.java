package tablestone.sdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.azure.data.tables.TableAsyncClient;
import com.azure.data.tables.TableServiceAsyncClient;
import com.azure.data.tables.models.ListEntitiesOptions;
import com.azure.data.tables.models.ListTablesOptions;
import com.azure.data.tables.models.TableEntity;
import com.azure.data.tables.models.TableEntityUpdateMode;
import com.azure.data.tables.models.TableItem;
import com.azure.data.tables.models.TableTransactionAction;
import com.azure.data.tables.models.TableTransactionActionType;
import com.azure.data.tables.models.TableTransactionFailedException;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** The operations of the asynchronous clients, once each; their rules are those of the other classes here. */
class AsyncClientsTest extends ServiceUnderTest {
    private static final TableServiceAsyncClient ASYNC_SERVICE = BUILDER.buildAsyncClient();

    @Test
    void tables() {
        String name = freshName("Java");
        TableAsyncClient client = ASYNC_SERVICE.createTable(name).block();
        assertNotNull(client);
        assertEquals(409, ASYNC_SERVICE.createTableIfNotExistsWithResponse(name).block().getStatusCode());
        assertFails(409, "TableAlreadyExists", null, () -> ASYNC_SERVICE.createTableWithResponse(name).block());
        List<String> names = ASYNC_SERVICE.listTables(new ListTablesOptions().setFilter("TableName eq '" + name + "'"))
            .map(TableItem::getName).collectList().block();
        assertEquals(List.of(name), names);
        assertEquals(true, ASYNC_SERVICE.listTables().any(item -> item.getName().equals(name)).block());
        assertEquals(204, ASYNC_SERVICE.deleteTableWithResponse(name).block().getStatusCode());
        ASYNC_SERVICE.deleteTable(name).block(); // 404 is swallowed

        assertEquals(name, client.createTable().block().getName());
        assertFails(409, "TableAlreadyExists", null, () -> client.createTableWithResponse().block());
        client.deleteTable().block();
        assertEquals(404, client.deleteTableWithResponse().block().getStatusCode());
        assertNotNull(ASYNC_SERVICE.createTableIfNotExists(name).block());
        ASYNC_SERVICE.getTableClient(name).deleteTable().block();
    }

    @Test
    void entities() {
        TableAsyncClient client = ASYNC_SERVICE.getTableClient(table.getTableName());
        client.createEntity(entity("a", "N", 1)).block();
        assertFails(409, "EntityAlreadyExists", null, () -> client.createEntityWithResponse(entity("a")).block());
        client.upsertEntity(entity("a", "M", 2)).block();
        assertEquals(Map.of("N", 1, "M", 2), propertiesOf(client.getEntity("p", "a").block()));
        client.upsertEntityWithResponse(entity("a", "M", 3), TableEntityUpdateMode.REPLACE).block();
        client.updateEntity(entity("a", "N", 4)).block();
        client.updateEntity(entity("a", "O", 5), TableEntityUpdateMode.MERGE).block();
        TableEntity held = client.getEntity("p", "a").block();
        assertEquals(Map.of("M", 3, "N", 4, "O", 5), propertiesOf(held));
        client.updateEntityWithResponse(entity("a", "N", 6), TableEntityUpdateMode.REPLACE, false).block();
        assertFails(412, "UpdateConditionNotSatisfied", null,
            () -> client.updateEntityWithResponse(held, TableEntityUpdateMode.MERGE, true).block());
        assertFails(412, "UpdateConditionNotSatisfied", null, () -> client.deleteEntityWithResponse(held, true).block());
        assertEquals(Map.of("N", 6),
            propertiesOf(client.getEntityWithResponse("p", "a", List.of("N")).block().getValue()));
        client.deleteEntity("p", "a").block();
        client.deleteEntity(held).block(); // 404 is swallowed
        assertFails(404, "ResourceNotFound", null, () -> client.getEntity("p", "a").block());
    }

    @Test
    void listings() {
        TableAsyncClient client = ASYNC_SERVICE.getTableClient(table.getTableName());
        for (String rowKey : List.of("a", "b", "c")) {
            client.createEntity(entity(rowKey)).block();
        }
        assertEquals(3, client.listEntities().count().block());
        List<Integer> pages = client.listEntities(new ListEntitiesOptions().setTop(2)).byPage()
            .map(page -> page.getValue().size()).collectList().block();
        assertEquals(List.of(2, 1), pages);
        List<String> rowKeys = client.listEntities(filtered("RowKey gt 'a'"))
            .map(TableEntity::getRowKey).collectList().block();
        assertEquals(List.of("b", "c"), rowKeys);
    }

    @Test
    void transactions() {
        TableAsyncClient client = ASYNC_SERVICE.getTableClient(table.getTableName());
        List<TableTransactionAction> twice = List.of(
            new TableTransactionAction(TableTransactionActionType.UPSERT_MERGE, entity("a")),
            new TableTransactionAction(TableTransactionActionType.CREATE, entity("b")));
        assertEquals(2, client.submitTransaction(twice).block().getTransactionActionResponses().size());
        TableTransactionFailedException failure = assertThrows(TableTransactionFailedException.class,
            () -> client.submitTransactionWithResponse(twice).block());
        assertEquals(1, failure.getFailedTransactionActionIndex());
        assertError("EntityAlreadyExists", "1:The specified entity already exists.", failure.getValue());
    }
}
