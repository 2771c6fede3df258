package orders;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.azure.core.credential.AzureSasCredential;
import com.azure.core.exception.HttpResponseException;
import com.azure.data.tables.TableClient;
import com.azure.data.tables.TableClientBuilder;
import com.azure.data.tables.TableServiceClientBuilder;
import com.azure.data.tables.sas.TableSasPermission;
import com.azure.data.tables.sas.TableSasSignatureValues;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The tests of the orders, with faults, a snapshot and a clock over HTTP. */
class OrdersTest {
    private static final Map<String, Object> ORDER =
        Map.of("PartitionKey", "anna", "RowKey", "1", "total", 5, "status", "new");

    private static Tablestone server;

    private Map<String, Object> account;
    private TableClient table;
    private Orders orders;

    @BeforeAll
    static void start() throws Exception {
        server = new Tablestone();
    }

    @AfterAll
    static void stop() throws Exception {
        server.close();
    }

    @BeforeEach
    void anEmptyAccount() throws Exception {
        account = server.ask("POST", "/accounts", "{}");
        table = new TableServiceClientBuilder().connectionString((String) account.get("connection_string"))
            .buildClient().createTable("Orders");
        orders = new Orders(table);
    }

    @AfterEach
    void noFaults() throws Exception {
        server.ask("DELETE", "/faults", null);
        server.ask("POST", "/clock/reset", null);
    }

    @SuppressWarnings("unchecked")
    private List<Object> statuses(String operation) throws Exception {
        List<Map<String, Object>> made =
            (List<Map<String, Object>>) server.ask("GET", "/requests", null).get("requests");
        return made.stream().filter(each -> each.get("account").equals(account.get("name")))
            .filter(each -> each.get("operation").equals(operation)).map(each -> each.get("status"))
            .collect(Collectors.toList());
    }

    private Map<String, Object> dump() throws Exception {
        return server.ask("GET", "/dump?account=" + account.get("name"), null);
    }

    @Test
    void anOrderIsPlacedThoughTheServerIsBusy() throws Exception {
        server.ask("POST", "/faults",
            "{\"operation\": \"InsertEntity\", \"count\": 2, \"error\": \"ServerBusy\", \"retry_after\": 0}");
        orders.place("anna", "1", 5);
        assertEquals(List.of(503, 503, 204), statuses("InsertEntity"));
    }

    @Test
    void anOrderWhoseAnswerWasLostIsStoredOnce() throws Exception {
        server.ask("POST", "/faults", "{\"operation\": \"InsertEntity\", \"count\": 1, \"reset\": \"after\"}");
        orders.place("anna", "1", 5);
        assertEquals(Map.of("Orders", List.of(ORDER)), dump());
    }

    @Test
    void aPaymentThatIsOvertakenIsMadeAgain() throws Exception {
        server.ask("POST", "/seed?account=" + account.get("name"),
            "{\"Orders\": [{\"PartitionKey\": \"anna\", \"RowKey\": \"1\", \"total\": 5, \"status\": \"new\"}]}");
        server.ask("POST", "/faults", "{\"conflict\": true, \"count\": 1}");
        orders.pay("anna", "1");
        assertEquals(List.of(412, 204), statuses("MergeEntity"));
        assertEquals("paid", table.getEntity("anna", "1").getProperty("status"));
    }

    @Test
    void aSnapshotBringsEverythingBack() throws Exception {
        orders.place("anna", "1", 5);
        Object snapshot = server.ask("POST", "/snapshots", null).get("id");
        orders.pay("anna", "1");
        server.ask("POST", "/snapshots/" + snapshot + "/restore", null);
        assertEquals(Map.of("Orders", List.of(ORDER)), dump());
    }

    @Test
    void aSignatureExpires() throws Exception {
        String signature = table.generateSas(
            new TableSasSignatureValues(OffsetDateTime.now().plusHours(1), TableSasPermission.parse("r")));
        Orders guest = new Orders(new TableClientBuilder().endpoint((String) account.get("endpoint"))
            .tableName("Orders").credential(new AzureSasCredential(signature)).buildClient());
        assertEquals(List.of(), guest.of("anna"));
        server.ask("POST", "/clock/advance", "{\"hours\": 2}");
        HttpResponseException refused = assertThrows(HttpResponseException.class, () -> guest.of("anna"));
        assertEquals(403, refused.getResponse().getStatusCode());
    }

    @Test
    void theOrdersOfACustomerCostOneRequest() throws Exception {
        Object before = server.ask("GET", "/requests", null).get("count");
        orders.of("anna");
        Map<String, Object> cost = server.ask("POST", "/cost", "{\"since\": " + before
            + ", \"scans\": 0, \"requests\": 1, \"account\": \"" + account.get("name") + "\"}");
        assertEquals(List.of(), cost.get("complaints"));
    }
}
