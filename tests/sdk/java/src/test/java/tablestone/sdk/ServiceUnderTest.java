package tablestone.sdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.credential.AzureNamedKeyCredential;
import com.azure.core.exception.HttpResponseException;
import com.azure.core.http.policy.FixedDelayOptions;
import com.azure.core.http.policy.RetryOptions;
import com.azure.data.tables.TableClient;
import com.azure.data.tables.TableServiceClient;
import com.azure.data.tables.TableServiceClientBuilder;
import com.azure.data.tables.implementation.TableUtils;
import com.azure.data.tables.implementation.models.TableServiceJsonError;
import com.azure.data.tables.models.ListEntitiesOptions;
import com.azure.data.tables.models.TableEntity;
import com.azure.data.tables.models.TableServiceError;
import com.azure.data.tables.models.TableServiceException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.function.Executable;

/**
 * A table of its own for every test, in the service that the environment names, and the words the tests have in common.
 * It knows the protocol's outcomes ("wire 3.9" and so on name the rule) and not which server answers.
 */
abstract class ServiceUnderTest {
    private static final AtomicLong TABLES_NAMED = new AtomicLong();

    static final TableServiceClientBuilder BUILDER = new TableServiceClientBuilder()
        .endpoint(setting("TABLESTONE_TEST_ENDPOINT"))
        .credential(new AzureNamedKeyCredential(
            setting("TABLESTONE_TEST_ACCOUNT"), setting("TABLESTONE_TEST_KEY")))
        // A server error must show as itself, so nothing is retried.
        .retryOptions(new RetryOptions(new FixedDelayOptions(0, Duration.ofMillis(1))));
    static final TableServiceClient SERVICE = BUILDER.buildClient();

    TableClient table;

    @BeforeEach
    void createTable() {
        table = SERVICE.createTable(freshName("java"));
    }

    @AfterEach
    void deleteTable() {
        table.deleteTable();
    }

    static String setting(String name) {
        String value = System.getenv(name);
        if (value == null) {
            throw new IllegalStateException(name + " is not set: it says where the Table service is");
        }
        return value;
    }

    /** Fresh on every call and in every process: several SDKs may use one server at once. */
    static String freshName(String prefix) {
        return prefix + Long.toHexString(System.nanoTime()) + Long.toHexString(ProcessHandle.current().pid())
            + "x" + TABLES_NAMED.incrementAndGet();
    }

    /** Where an entity is, as the service writes it; the SDK's getTableEndpoint() forgets the account of a path. */
    String locationOf(String keys) {
        return setting("TABLESTONE_TEST_ENDPOINT") + "/" + table.getTableName() + "(" + keys + ")";
    }

    static TableEntity entity(String rowKey, Object... namesAndValues) {
        TableEntity entity = new TableEntity("p", rowKey);
        for (int index = 0; index < namesAndValues.length; index += 2) {
            entity.addProperty((String) namesAndValues[index], namesAndValues[index + 1]);
        }
        return entity;
    }

    /** The caller's own properties of an entity that was read. */
    static Map<String, Object> propertiesOf(TableEntity entity) {
        Map<String, Object> properties = new HashMap<>(entity.getProperties());
        properties.keySet().removeIf(name -> name.startsWith("odata.") || name.endsWith("@odata.type")
            || List.of("PartitionKey", "RowKey", "Timestamp").contains(name));
        return properties;
    }

    Map<String, Object> stored(String rowKey) {
        return propertiesOf(table.getEntity("p", rowKey));
    }

    static ListEntitiesOptions filtered(String filter) {
        return new ListEntitiesOptions().setFilter(filter);
    }

    List<List<String>> pagesOf(ListEntitiesOptions options) {
        List<List<String>> pages = new ArrayList<>();
        table.listEntities(options, null, null).iterableByPage().forEach(page -> {
            pages.add(page.getValue().stream().map(TableEntity::getRowKey).collect(Collectors.toList()));
            assertTrue(pages.size() <= 100, "the listing does not end");
        });
        return pages;
    }

    List<String> rowKeysOf(ListEntitiesOptions options) {
        return table.listEntities(options, null, null).stream().map(TableEntity::getRowKey)
            .collect(Collectors.toList());
    }

    List<String> rowKeys() {
        return rowKeysOf(new ListEntitiesOptions());
    }

    static void assertFails(int status, String code, String message, Executable call) {
        HttpResponseException failure = assertThrows(HttpResponseException.class, call);
        assertEquals(status, failure.getResponse().getStatusCode());
        if (failure instanceof TableServiceException) {
            assertError(code, message, ((TableServiceException) failure).getValue());
        } else { // the synchronous listings let the SDK's inner exception through
            assertError(code, message, TableUtils.toTableServiceError((TableServiceJsonError) failure.getValue()));
        }
    }

    /** For answers in XML, of which this SDK decodes no code. */
    static void assertRefused(int status, Executable call) {
        HttpResponseException failure = assertThrows(HttpResponseException.class, call);
        assertEquals(status, failure.getResponse().getStatusCode());
    }

    /** The service's code and text; RequestId and Time follow the text (wire 8.1). */
    static void assertError(String code, String message, TableServiceError error) {
        assertEquals(code, String.valueOf(error.getErrorCode()));
        String text = error.getErrorMessage();
        int end = text.indexOf("\nRequestId:");
        assertTrue(end >= 0 && text.indexOf("\nTime:") > end, text);
        if (message != null) {
            assertEquals(message, text.substring(0, end));
        }
    }
}
