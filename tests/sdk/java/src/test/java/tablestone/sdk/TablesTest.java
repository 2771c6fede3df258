package tablestone.sdk;

import static org.junit.jupiter.api.Assertions.assertAll;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.credential.AzureNamedKeyCredential;
import com.azure.core.http.rest.PagedResponse;
import com.azure.core.http.rest.Response;
import com.azure.core.util.Context;
import com.azure.data.tables.TableClient;
import com.azure.data.tables.TableClientBuilder;
import com.azure.data.tables.TableServiceClient;
import com.azure.data.tables.TableServiceClientBuilder;
import com.azure.data.tables.TableServiceVersion;
import com.azure.data.tables.models.ListTablesOptions;
import com.azure.data.tables.models.TableEntity;
import com.azure.data.tables.models.TableItem;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

class TablesTest extends ServiceUnderTest {
    private static final Duration SOON = Duration.ofSeconds(20);
    private static final String NOT_FOUND = "The table specified does not exist.";

    @Test
    void serviceClientCreatesAndDeletes() {
        String name = freshName("Java");
        Response<TableClient> created = SERVICE.createTableWithResponse(name, SOON, Context.NONE);
        assertEquals(204, created.getStatusCode()); // the SDK sends Prefer: return-no-content
        assertEquals(name, created.getValue().getTableName());
        assertEquals("return-no-content", created.getHeaders().getValue("Preference-Applied"));
        assertEquals(SERVICE.getServiceEndpoint() + "/Tables('" + name + "')",
            created.getHeaders().getValue("DataServiceId"));

        assertEquals(204, SERVICE.deleteTableWithResponse(name, SOON, Context.NONE).getStatusCode());
        assertEquals(404, SERVICE.deleteTableWithResponse(name, SOON, Context.NONE).getStatusCode()); // swallowed
        SERVICE.deleteTable(name);
    }

    @Test
    void tableClientCreatesAndDeletes() {
        TableClient client = SERVICE.getTableClient(freshName("java"));
        assertEquals(client.getTableName(), client.createTable().getName());
        client.createEntity(new TableEntity("p", "r"));
        client.deleteTable();
        assertFails(404, "TableNotFound", NOT_FOUND, () -> client.getEntity("p", "r"));
        assertEquals(404, client.deleteTableWithResponse(SOON, Context.NONE).getStatusCode());

        TableClient another = SERVICE.getTableClient(freshName("java"));
        assertEquals(204, another.createTableWithResponse(SOON, Context.NONE).getStatusCode());
        assertEquals(204, another.deleteTableWithResponse(SOON, Context.NONE).getStatusCode());
    }

    @Test
    void clientsKnowWhereTheyWork() { // but getAccountName() reads the first label of the host, here of an address
        assertEquals(setting("TABLESTONE_TEST_ENDPOINT"), SERVICE.getServiceEndpoint());
        assertEquals(TableServiceVersion.getLatest(), SERVICE.getServiceVersion());
        assertTrue(table.getTableEndpoint().endsWith("/" + table.getTableName()));
        assertEquals(TableServiceVersion.getLatest(), table.getServiceVersion());
    }

    @Test
    void connectionStringsWork() {
        String text = String.format("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;TableEndpoint=%s",
            setting("TABLESTONE_TEST_ACCOUNT"), setting("TABLESTONE_TEST_KEY"), setting("TABLESTONE_TEST_ENDPOINT"));
        TableServiceClient service = new TableServiceClientBuilder().connectionString(text).buildClient();
        TableClient client = service.createTable(freshName("java"));
        new TableClientBuilder().connectionString(text).tableName(client.getTableName()).buildClient()
            .createEntity(new TableEntity("p", "r"));
        client.deleteTable();
    }

    @Test
    void createTableIfNotExists() {
        String name = freshName("java");
        assertNotNull(SERVICE.createTableIfNotExists(name));
        assertNotNull(SERVICE.createTableIfNotExists(name));
        assertEquals(409, SERVICE.createTableIfNotExistsWithResponse(name, SOON, Context.NONE).getStatusCode());
        SERVICE.deleteTable(name);
        assertEquals(204, SERVICE.createTableIfNotExistsWithResponse(name, SOON, Context.NONE).getStatusCode());
        SERVICE.deleteTable(name);
    }

    @Test
    void tableThatExistsIsRefused() { // wire 1.4: case is ignored
        for (String again : List.of(table.getTableName(), table.getTableName().toUpperCase(Locale.ROOT))) {
            assertFails(409, "TableAlreadyExists", "The table specified already exists.",
                () -> SERVICE.createTable(again));
        }
    }

    @Test
    void tableNamesAreRefused() { // source: wire 1.4
        String characters = "The specifed resource name contains invalid characters.";
        String length = "The specified resource name length is not within the permissible limits.";
        String input = "One of the request inputs is not valid.";
        assertAll(List.of(
            List.of("with-hyphen", "InvalidResourceName", characters),
            List.of("with blank", "InvalidResourceName", characters),
            List.of("1digitfirst", "InvalidResourceName", characters),
            List.of("tablé", "InvalidResourceName", characters),
            List.of("ab", "OutOfRangeInput", length),
            List.of("a".repeat(64), "OutOfRangeInput", length),
            List.of("tables", "InvalidInput", input)
        ).stream().map(c -> () -> assertFails(400, c.get(1), c.get(2), () -> SERVICE.createTable(c.get(0)))));
    }

    @Test
    void tablesAreListedWithTheirCaseInPages() { // wire 3.1
        String prefix = freshName("JavaList");
        List<String> names = List.of("a", "b", "C", "D").stream().map(last -> prefix + last).collect(Collectors.toList());
        names.forEach(SERVICE::createTable);
        ListTablesOptions ours = new ListTablesOptions()
            .setFilter(String.format("TableName ge '%s' and TableName lt '%s{'", prefix, prefix));
        assertEquals(names, namesOf(SERVICE.listTables(ours, SOON, Context.NONE)));
        assertTrue(namesOf(SERVICE.listTables()).containsAll(names));

        ours.setTop(3);
        List<List<String>> pages = new ArrayList<>();
        SERVICE.listTables(ours, null, null).iterableByPage().forEach(page -> pages.add(namesOf(page.getElements())));
        assertEquals(List.of(names.subList(0, 3), names.subList(3, 4)), pages);

        String token = SERVICE.listTables(ours, null, null).iterableByPage().iterator().next().getContinuationToken();
        Iterator<PagedResponse<TableItem>> resumed
            = SERVICE.listTables(ours, null, null).iterableByPage(token).iterator();
        assertEquals(names.subList(3, 4), namesOf(resumed.next().getElements()));
        names.forEach(SERVICE::deleteTable);
    }

    private static List<String> namesOf(Iterable<TableItem> tables) {
        List<String> names = new ArrayList<>();
        tables.forEach(item -> names.add(item.getName()));
        return names;
    }

    @Test
    void wrongKeyIsRefused() { // wire 8.4
        TableServiceClient stranger = new TableServiceClientBuilder().endpoint(setting("TABLESTONE_TEST_ENDPOINT"))
            .credential(new AzureNamedKeyCredential(
                setting("TABLESTONE_TEST_ACCOUNT"), "bm90IHRoZSBrZXkgb2YgdGhlIGFjY291bnQ="))
            .buildClient();
        assertFails(403, "AuthenticationFailed", "Server failed to authenticate the request. Make sure the value of "
            + "Authorization header is formed correctly including the signature.", () -> stranger.createTable("any"));
    }
}
